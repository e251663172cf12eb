"""Texts cut to what a record has room for, with a mark that says so.

Sizes are bytes of UTF-8. What has no UTF-8 (file names with stray bytes, say) is written as escapes.
"""

from __future__ import annotations

from typing import Final

from jetjobs._core.models import RunError

MAX_ERROR_MESSAGE: Final = 8 * 1024
MAX_TRACEBACK: Final = 32 * 1024
MAX_REASON: Final = 1024
MAX_NAME: Final = 200


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and a mark that tells its length.

    >>> cut("x" * 3_000_000, 40)
    'xxxxxxxxxxx… [cut, 3000000 characters]'
    """
    data = _too_long(text, limit)
    if isinstance(data, str):
        return data
    mark = f"… [cut, {len(text)} characters]"
    return data[: max(0, limit - len(mark.encode()))].decode("utf-8", "ignore") + mark


def cut_front(text: str, limit: int) -> str:
    """The text, or a mark and its end: of a traceback the end tells most."""
    data = _too_long(text, limit)
    if isinstance(data, str):
        return data
    mark = f"[cut, {len(text)} characters] …"
    room = max(0, limit - len(mark.encode()))
    return mark + data[len(data) - room :].decode("utf-8", "ignore")


def run_error(kind: str, message: str = "", traceback: str = "") -> RunError:
    """How an attempt failed, with every text cut to size."""
    return RunError(cut(kind, MAX_NAME), cut(message, MAX_ERROR_MESSAGE), cut_front(traceback, MAX_TRACEBACK))


def reason(text: str) -> str:
    """Why a run was skipped, cut to size."""
    return cut(text, MAX_REASON)


def _too_long(text: str, limit: int) -> bytes | str:
    """The bytes of a text that takes more of them than it may; of one that fits the text, without half characters."""
    if len(text) <= limit and text.isascii():
        return text
    data = text.encode("utf-8", "backslashreplace")
    return data if len(data) > limit else data.decode()
