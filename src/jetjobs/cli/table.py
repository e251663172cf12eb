"""Tables and spans of time as people read them in a terminal. Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta

_GAP = "  "
_STEPS = ((86_400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s"))
_LEAST = 8


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> str:
    r"""Columns under their heads, each as wide as it must be; the last one is cut to fit into `width`.

    >>> print(table(["JOB", "STATUS"], [["a.b", "FAILED"], ["a.longer", "RUNNING"]]))
    JOB       STATUS
    a.b       FAILED
    a.longer  RUNNING
    """
    lines = [list(head), *([one_line(cell) for cell in row] for row in rows)]
    widths = [max(cells(line[column]) for line in lines) for column in range(len(head))]
    if width is not None:
        widths[-1] = max(_LEAST, min(widths[-1], width - sum(widths[:-1]) - len(_GAP) * (len(head) - 1)))
    return "\n".join(_GAP.join(map(_fit, line, widths)).rstrip() for line in lines)


def one_line(text: str) -> str:
    r"""The text without line breaks and control characters.

    >>> one_line("a\n  b\x1b[31m")
    'a b[31m'
    """
    return " ".join("".join(c if c.isprintable() or c.isspace() else "" for c in text).split())


def cells(text: str) -> int:
    """How many columns of a terminal the text takes.

    >>> cells("ab"), cells("日本")
    (2, 4)
    """
    if text.isascii():
        return len(text)
    return sum(_cells_of(letter) for letter in text)


def _cells_of(letter: str) -> int:
    if unicodedata.combining(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _fit(text: str, width: int) -> str:
    taken = cells(text)
    if taken <= width:
        return text + " " * (width - taken)
    kept, taken = "", 0
    for letter in text:
        taken += _cells_of(letter)
        if taken > width - 1:
            break
        kept += letter
    return kept + "…"


def span(length: timedelta | None) -> str:
    """A span in at most two units.

    >>> span(timedelta(seconds=0.0123)), span(timedelta(seconds=75)), span(timedelta(days=2, hours=5))
    ('12ms', '1m15s', '2d5h')
    """
    if length is None:
        return "-"
    seconds = length.total_seconds()
    if seconds < 0:
        return f"-{span(-length)}"
    if seconds < 1:
        return f"{int(seconds * 1000)}ms"
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{int(seconds)}s"
    for size, unit, smaller, its_unit in _STEPS:
        if seconds >= size:
            whole, rest = divmod(int(seconds), size)
            part = rest // smaller
            return f"{whole}{unit}{part}{its_unit}" if part else f"{whole}{unit}"
    return "0s"  # not reached: everything from a minute on has its step


def ago(instant: datetime | None, now: datetime) -> str:
    """How long ago, or in how long.

    >>> from datetime import UTC
    >>> now = datetime(2030, 1, 1, tzinfo=UTC)
    >>> ago(now - timedelta(minutes=5), now), ago(now + timedelta(hours=1), now), ago(None, now)
    ('5m ago', 'in 1h', '-')
    """
    if instant is None:
        return "-"
    return f"in {span(instant - now)}" if instant > now else f"{span(now - instant)} ago"
