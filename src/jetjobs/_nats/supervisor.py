"""The process between a host and its embedded nats-server: it ends the server when the host is gone.

Run by its path in an interpreter of its own (`python -I -S supervisor.py …`), standard library only,
so it costs little and imports nothing of jetjobs. `jetjobs._nats.server` starts it and is its only user.

::

    host ──stdin pipe──▶ supervisor ──child──▶ nats-server
                         (a process group apart: Ctrl-C in the terminal reaches neither)

- The host holds the pipe's other end. However the host ends, kill -9 included, the pipe closes; the
  supervisor then sends SIGTERM, and SIGKILL to a server that hasn't gone within the grace. A child
  that the host forked may hold the pipe open longer, so the parent's pid is watched as well.
- A lock on `<folder>/lock` is held by supervisor *and* server (the server inherits the descriptor),
  so a store is never opened twice, even while a server whose supervisor was killed still runs.
- Linux also tells the server when the supervisor dies. PR_SET_PDEATHSIG is bound to the *thread*
  that forked: here that is the main thread, which lives as long as the process.

Arguments: owner's pid, folder, grace in seconds, then the server's command line.
Says one JSON line on stdout: `{"pid": …}`, `{"locked_by": … | null}` or `{"error": …}`.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

_LOCK_OFFSET = 1 << 20  # Windows locks are mandatory: lock a byte that nobody reads
_OWNER_GONE_PATIENCE = 5.0


def main(arguments: list[str]) -> int:
    """Run the server until it ends or the owner is gone; the server's exit code."""
    owner, folder, grace, *command = arguments
    lock = _take_lock(Path(folder) / "lock")
    if isinstance(lock, int):
        _say(locked_by=lock or None)
        return 1
    log = _fresh_log(Path(folder) / "nats-server.log")
    try:
        server = _start(command, log, lock)
    except OSError as error:
        _say(error=str(error))
        return 1
    _write_owner(lock, int(owner))
    _watch(server, int(owner), float(grace))
    _obey_signals(server)
    _say(pid=server.pid)
    return server.wait()


def _say(**fact: object) -> None:
    try:
        print(json.dumps(fact), flush=True)  # noqa: T201 - the answer the owner waits for
    except BrokenPipeError:
        return  # the owner is gone, and the watchers know


def _start(command: list[str], log: IO[bytes], lock: IO[bytes]) -> subprocess.Popen[bytes]:
    if sys.platform == "win32":
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        pass_fds=(lock.fileno(),),
        preexec_fn=_end_with_parent(),  # noqa: PLW1509 - no thread runs yet in this process
    )


def _end_with_parent() -> Callable[[], object] | None:
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up before the fork: nothing is loaded after it
    return lambda: prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _watch(server: subprocess.Popen[bytes], owner: int, grace: float) -> None:
    def end() -> None:
        server.terminate()
        try:
            server.wait(grace)
        except subprocess.TimeoutExpired:
            server.kill()  # reaches a stopped process too

    def wait_for_pipe() -> None:
        while os.read(0, 1024):
            pass
        end()

    def wait_for_parent() -> None:
        while os.getppid() == owner:
            time.sleep(0.5)
        end()

    threading.Thread(target=wait_for_pipe, daemon=True).start()
    if sys.platform != "win32":  # there the parent's pid may be a launcher's, and nothing forks
        threading.Thread(target=wait_for_parent, daemon=True).start()


def _obey_signals(server: subprocess.Popen[bytes]) -> None:
    def end(_number: int, _frame: object) -> None:
        server.terminate()

    for name in {"SIGTERM", "SIGINT", "SIGHUP"} & set(dir(signal)):
        signal.signal(signal.Signals[name], end)


def _take_lock(path: Path) -> IO[bytes] | int:
    """The locked file, or the pid of the process that holds it (0: not known).

    A holder that has gone leaves a server that is about to: it is worth a short wait.
    """
    file = path.open("a+b")
    deadline = time.monotonic() + _OWNER_GONE_PATIENCE
    while not _try_lock(file):
        holder = _read_owner(file)
        if time.monotonic() > deadline or (holder and _lives(holder)):
            return holder
        time.sleep(0.05)
    return file


def _try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt  # noqa: PLC0415 - exists on Windows only

            file.seek(_LOCK_OFFSET)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl  # noqa: PLC0415 - exists elsewhere only

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _lives(pid: int) -> bool:
    if sys.platform == "win32":
        return False  # os.kill(pid, 0) is Ctrl-C there; the short wait decides
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _read_owner(file: IO[bytes]) -> int:
    file.seek(0)
    text = file.read(32).strip()
    return int(text) if text.isdigit() else 0


def _write_owner(file: IO[bytes], owner: int) -> None:
    file.truncate(0)  # opened for appending: writes go to the end, which is now the start
    file.write(b"%d\n" % owner)
    file.flush()


def _fresh_log(path: Path) -> IO[bytes]:
    if path.exists():
        path.replace(path.with_suffix(".log.1"))  # one generation back, for what came before a crash
    return path.open("wb")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
