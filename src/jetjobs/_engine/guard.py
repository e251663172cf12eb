"""Children of a host that stands still: killed by a process beside it, before another host may start their runs.

A host frozen by SIGSTOP can't fence its runs, and its children, which are processes of their own, would go on. They
can't be trusted to notice it either: a handler in C code lets no thread of its process look at a clock. So the host
tells a guard until when each child may run, which is as long as the host itself would let it: two thirds of the ack
wait after the last confirmed renewal. As long as the host says more, nothing happens; once it is silent, each child's
time runs out, a third of the ack wait before the broker hands its run to somebody else.

When the broker is away for everybody the host goes on to extend the time, as it does for handlers in threads.

The guard is started with the first child and ends with the host. Not on Windows, where nothing freezes a process so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from jetjobs._log import get_logger

log = get_logger("jetjobs.engine")

_PROGRAM = Path(__file__).with_name("guard_program.py")
_GATHER = 0.02
_NEXT_TRY = 1.0
_LEAVE_WITHIN = 1.0


class Guarded(Protocol):
    """A child's work, as long as it is watched."""

    told_until: float

    def allowance(self) -> tuple[int, float] | None:
        """Its process, and the monotonic instant until which that may run; `None` while it has none."""
        ...


class Guard:
    """The host's side. A thread of its own tells, so that a blocked event loop stops no child."""

    def __init__(self) -> None:
        self._watched: set[Guarded] = set()
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._changed = threading.Event()
        self._closed = threading.Event()

    @property
    def used(self) -> bool:
        """Whether there is something to close."""
        return self._thread is not None

    def watch(self, guarded: Guarded, every: float) -> None:
        """Begin to answer for this one, and tell so each `every` seconds. On the event loop's thread."""
        self._watched.add(guarded)
        if self._thread is None and sys.platform != "win32" and not self._closed.is_set():
            self._thread = threading.Thread(target=self._serve, args=(every,), name="jetjobs guard", daemon=True)
            self._thread.start()

    def look(self) -> None:
        """A child was given work: don't wait for the next turn."""
        self._changed.set()

    def forget(self, guarded: Guarded) -> None:
        """It has ended."""
        self._watched.discard(guarded)

    def close(self) -> None:
        """End thread and process; what is still told of would be killed. Blocks."""
        self._closed.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(_LEAVE_WITHIN)
        if self._process is not None:  # the thread may have started it only now
            self._end(self._process)

    def _serve(self, every: float) -> None:
        last = b""
        while not self._closed.is_set():
            watched = [(each, allowed) for each in list(self._watched) if (allowed := each.allowance()) is not None]
            line = json.dumps({str(pid): until for _, (pid, until) in watched}).encode() + b"\n"
            if line != last and not self._told(line):
                self._closed.wait(_NEXT_TRY)
                continue
            last = line
            for each, (_, until) in watched:
                each.told_until = until
            self._closed.wait(_GATHER)
            self._changed.wait(every)
            self._changed.clear()

    def _told(self, line: bytes) -> bool:
        try:
            if self._process is None:
                self._process = _spawn()
            if self._process.stdin is not None:
                self._process.stdin.write(line)
                self._process.stdin.flush()
        except OSError as error:
            log.warning("guard_lost", error=str(error))
            broken, self._process = self._process, None
            if broken is not None:
                self._end(broken)
            return False
        return True

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        with suppress(OSError):
            if process.stdin is not None:
                process.stdin.close()
        try:
            process.wait(_LEAVE_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def passed(until: float) -> bool:
    """Whether the guard was to kill by now what may run until then."""
    return time.monotonic() >= until


def _spawn() -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this interpreter, with a constant program
        [sys.executable, "-I", "-S", str(_PROGRAM)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is for the host
    )
