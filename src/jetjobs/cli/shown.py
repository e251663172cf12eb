"""Text of others as a terminal may show it: what jobs and callers wrote must not move its cursor or recolour it."""

from __future__ import annotations

import io
import sys
from typing import Final, TextIO, cast

_CONTROLS: Final = (*range(9), *range(11, 32), *range(127, 160))  # all but tab and line feed
# Line breaks beside the line feed, and what turns the direction of the text that follows.
_UNSEEN: Final = (0x2028, 0x2029, 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPES: Final = {
    **{code: f"\\x{code:02x}" for code in _CONTROLS},
    **{code: f"\\u{code:04x}" for code in _UNSEEN},
}


def shown(text: str) -> str:
    r"""The text with its control characters written out; line feeds and tabs stay.

    >>> print(shown("one\ntwo\x1b[31m\rthree"))
    one
    two\x1b[31m\x0dthree
    """
    return text.translate(_ESCAPES)


class _Shown(io.TextIOWrapper):
    """A stream that shows what is written to it."""

    def write(self, text: str, /) -> int:
        return super().write(shown(text))


def show_output() -> None:
    """From now on everything printed by this process is shown. Not for commands that run code of users' own."""
    sys.stdout, sys.stderr = _made(sys.stdout), _made(sys.stderr)


def _made(stream: TextIO) -> TextIO:
    """Over the same bytes; the first stream stays open, in `sys.__stdout__`."""
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    return _Shown(
        cast("io.BufferedWriter", stream.buffer),
        stream.encoding,
        "backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
