"""Texts and log lines cut to what a record has room for, with a mark that says so.

Sizes are bytes of UTF-8. What has no UTF-8 (file names with stray bytes, say) is written as escapes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, cast

import msgpack

from jetjobs._core.codec import to_jsonable
from jetjobs._core.models import LogLine, Progress, RunError

MAX_ERROR_MESSAGE: Final = 8 * 1024
MAX_TRACEBACK: Final = 32 * 1024
MAX_LOG_MESSAGE: Final = 4 * 1024
MAX_LOG_FIELDS: Final = 4 * 1024
MAX_REASON: Final = 1024
MAX_NAME: Final = 200


def cut(text: str, limit: int) -> str:
    """The text, or its beginning and a mark that tells its length.

    >>> cut("x" * 3_000_000, 40)
    'xxxxxxxxxxx… [cut, 3000000 characters]'
    """
    if len(text) <= limit and text.isascii():
        return text
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    mark = f"… [cut, {len(text)} characters]"
    return data[: max(0, limit - len(mark.encode()))].decode("utf-8", "ignore") + mark


def cut_front(text: str, limit: int) -> str:
    """The text, or a mark and its end: of a traceback the end tells most."""
    if len(text) <= limit and text.isascii():
        return text
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= limit:
        return data.decode()
    mark = f"[cut, {len(text)} characters] …"
    room = max(0, limit - len(mark.encode()))
    return mark + data[len(data) - room :].decode("utf-8", "ignore")


def run_error(kind: str, message: str = "", traceback: str = "") -> RunError:
    """How an attempt failed, with every text cut to size."""
    return RunError(cut(kind, MAX_NAME), cut(message, MAX_ERROR_MESSAGE), cut_front(traceback, MAX_TRACEBACK))


def reason(text: str) -> str:
    """Why a run was skipped, cut to size."""
    return cut(text, MAX_REASON)


def progress(done: float, total: float | None = None, message: str | None = None) -> Progress:
    """How far a run is, with its message cut to size."""
    return Progress(done, total, None if message is None else cut(message, MAX_REASON))


def log_line(at: datetime, level: str, message: str, fields: Mapping[str, object]) -> LogLine:
    """A log line whose fields are plain JSON values, message and fields cut to size each."""
    text = cut(message, MAX_LOG_MESSAGE)
    return LogLine(at, cut(level, MAX_NAME), text, _log_fields(fields)) if fields else LogLine(at, level, text)


def _log_fields(fields: Mapping[str, object]) -> Mapping[str, Any]:
    shown: dict[str, Any] = {cut(str(name), MAX_NAME): to_jsonable(value) for name, value in fields.items()}
    if _fits(shown):
        return shown
    share = max(40, MAX_LOG_FIELDS // len(shown) - MAX_NAME // 2)
    shown = {name: _short(value, share) for name, value in shown.items()}
    return shown if _fits(shown) else {"cut": f"{len(shown)} fields"}


def _short(value: object, limit: int) -> object:
    return value if value is None or isinstance(value, bool | float) else cut(str(value), limit)


def _fits(fields: Mapping[str, Any]) -> bool:
    try:
        return len(cast("bytes", msgpack.packb(fields))) <= MAX_LOG_FIELDS
    except (ValueError, TypeError, OverflowError):
        return False
