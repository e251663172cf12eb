"""The journal of what a handler says while it runs.

It is written by the handler, perhaps from another thread, and read by the heartbeat. It has no lock on purpose: a
handler's thread can be interrupted at any bytecode, and one that dies holding a lock would stop the heartbeat. Every
write is one atomic step of a list, a deque or an attribute.
"""

from __future__ import annotations

from collections import deque

from jetjobs._core.bodies import Body
from jetjobs._core.models import LogLine, Progress

MAX_LOG_BYTES = 256 * 1024
FIRST_LINES = 50
LAST_LINES = 949  # with the first ones and the mark between them: 1,000


class Journal:
    """What a running handler said: logs, progress, checkpoint; and why it must stop, once it must.

    `changed` is set by every write and cleared by whoever saved; clear it before reading.
    """

    __slots__ = ("_first", "_last", "_lines", "cancel_reason", "changed", "checkpoint", "progress")

    def __init__(self) -> None:
        self._first: list[LogLine] | None = None
        self._last: deque[LogLine] | None = None
        self._lines = 0
        self.progress: Progress | None = None
        self.checkpoint: Body | None = None
        self.changed = False
        self.cancel_reason: str | None = None

    def add(self, line: LogLine) -> None:
        """Keep a line: the first 50 and the newest of the rest."""
        first = self._first
        if first is None:
            first = self._first = []
        if len(first) < FIRST_LINES:
            first.append(line)
        else:
            if self._last is None:
                self._last = deque(maxlen=LAST_LINES)
            self._last.append(line)
        self._lines += 1
        self.changed = True

    @property
    def logs(self) -> list[LogLine]:
        """At most 1,000 lines and 256 KiB, in order; a mark stands where the middle was cut."""
        if self._first is None:
            return []
        first = self._first.copy()
        last = [] if self._last is None else list(self._last)
        room = MAX_LOG_BYTES - sum(map(_size, first))
        kept = len(last)
        for line in reversed(last):
            room -= _size(line)
            if room < 0:
                break
            kept -= 1
        tail = last[kept:]
        cut = self._lines - len(first) - len(tail)
        if cut <= 0:
            return first + tail
        at = tail[0].at if tail else first[-1].at
        return [*first, LogLine(at, "warning", f"… {cut} lines cut …"), *tail]


def _size(line: LogLine) -> int:
    """About how many bytes a line takes; UTF-8 is at most 4 a character, counted only where there are any."""
    size = 48 + _bytes(line.message)
    for name, value in line.fields.items():
        size += 8 + _bytes(name) + (_bytes(value) if type(value) is str else 16 + len(repr(value)))
    return size


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
