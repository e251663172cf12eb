"""What runs in a host's guard: kills the children of a host that no longer says that they may run.

It hears lines on its standard input, each a JSON object of process ids and the monotonic instants until which they may
run; the newest replaces those before. Run as a file, for it imports nothing of jetjobs, and so little else that it is
there in milliseconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

_HOST = 0
_MOST = 1 << 16


def main() -> None:
    """Serve until the host is gone, and then let none of its children run on."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # they are for the host, which drains
    until: dict[int, float] = {}
    watches: dict[int, int] = {}
    rest = b""
    while True:
        if select.select([_HOST], [], [], _patience(until))[0]:
            data = os.read(_HOST, _MOST)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                until = {int(pid): at for pid, at in json.loads(lines[-1]).items()}
                _watch(until, watches)
            continue  # all the host said counts before anything is done
        now = time.monotonic()
        for pid in [pid for pid, at in until.items() if at <= now]:
            del until[pid]
            _kill(pid, watches)
    for pid in until:
        _kill(pid, watches)


def _patience(until: dict[int, float]) -> float | None:
    return max(min(until.values()) - time.monotonic(), 0.0) if until else None


def _watch(until: dict[int, float], watches: dict[int, int]) -> None:
    """Hold on to the processes themselves: a number can be another process's when its time is up."""
    if sys.platform != "linux":
        return
    for pid in watches.keys() - until.keys():
        os.close(watches.pop(pid))
    for pid in until.keys() - watches.keys():
        try:
            watches[pid] = os.pidfd_open(pid)
        except OSError:
            continue


def _kill(pid: int, watches: dict[int, int]) -> None:
    if sys.platform == "win32":
        return
    watch = watches.get(pid)
    if watch is not None and select.select([watch], [], [], 0)[0]:
        return  # it ended by itself
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


if __name__ == "__main__":
    main()
