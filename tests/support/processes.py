"""Freezing processes, and waiting for their end; they needn't be our children."""

import os
import select
import signal
import sys
import time
from pathlib import Path


def gone_within(pid: int, seconds: float) -> bool:
    """Whether the process ends in that time; woken by its end where the system can tell it."""
    if sys.platform == "linux":
        try:
            watch = os.pidfd_open(pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([watch], [], [], seconds)[0])
        finally:
            os.close(watch)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.02)
    return False


def freeze(pid: int) -> None:
    """SIGSTOP, back when every thread of the process stands still: the signal alone is only a promise."""
    os.kill(pid, signal.SIGSTOP)
    if sys.platform != "linux":
        return
    while not all(_state(task) in "Tt" for task in Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def _state(task: Path) -> str:
    return (task / "stat").read_text().rpartition(")")[2].split()[0]
