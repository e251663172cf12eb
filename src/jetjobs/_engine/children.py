"""Child processes that run handlers: spawned, kept warm, killed, and never left behind.

A child is a new interpreter, never a fork: it has none of the host's threads, locks or sockets. Two descriptors lead
to it, both unknown to every other process: the link, and the lifeline, a pipe that carries nothing and by whose end
the kernel tells that the host is gone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import connection
from typing import TYPE_CHECKING, Any, cast

from jetjobs._core import codec
from jetjobs._engine.guard import Guard

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEPT_IDLE = 16
LOOK_EVERY = 0.5
LEAVE_WITHIN = 1.0
_PATH = "JETJOBS_CHILD_PATH"
_PROGRAM = (
    # Deaf until it can tell a service manager's SIGTERM from its host's.
    "import os, signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    f"sys.path[:] = os.environ.pop({_PATH!r}).split(os.pathsep); "
    "from jetjobs._engine.child_main import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


class Child:
    """One child process. Made, read and ended in threads; `tell`, `terminate` and `kill` are quick."""

    def __init__(self, key: tuple[str, ...]) -> None:
        self.key = key
        self._link, theirs = connection.Pipe()
        lifeline, self._lifeline = os.pipe()
        try:
            self.process = _spawn(theirs.fileno(), lifeline)
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(lifeline)

    def tell(self, frames: Iterable[bytes]) -> None:
        """Send frames; one that is dead already hears nothing."""
        with suppress(OSError):
            for frame in frames:
                self._link.send_bytes(frame)

    def receive(self) -> list[Any] | None:
        """The next frame; `None` when the child is dead and all it said was read.

        The link alone could not tell: a process that the handler forked may hold its other end.
        """
        with suppress(EOFError, OSError):
            while True:
                if self._link.poll(LOOK_EVERY):
                    return codec.decode(self._link.recv_bytes())
                if not self.alive() and not self._link.poll(0):
                    break
        return None

    def alive(self) -> bool:
        """Whether the process runs; reaps it when it doesn't."""
        return self.process.poll() is None

    def terminate(self) -> None:
        """Ask it to leave the handler: SIGTERM. On Windows this kills."""
        self.process.terminate()

    def kill(self) -> None:
        """SIGKILL, to the programs its handler started too."""
        if not self.alive():
            return
        with suppress(ProcessLookupError, PermissionError):
            if sys.platform == "win32":
                self.process.kill()
            else:
                os.killpg(self.process.pid, signal.SIGKILL)

    def end(self, patience: float = 0.0) -> int:
        """Give it time to leave by itself, kill it, and return its exit code once it is gone; negative for a signal."""
        try:
            if patience:
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience)
            self.kill()
            return self.process.wait()
        finally:
            self._close()

    def dismiss(self) -> None:
        """Let an idle child leave as programs do, with what it has at exit; `end` it after."""
        self._link.close()

    def _close(self) -> None:
        self._link.close()
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1


def _spawn(link: int, lifeline: int) -> subprocess.Popen[bytes]:
    # As multiprocessing does it: what this interpreter was started with, -O and -X and -W, is the child's too.
    flags = cast("list[str]", subprocess._args_from_interpreter_flags())  # noqa: SLF001  # pyright: ignore
    environment = {**os.environ, _PATH: os.pathsep.join(map(str, sys.path))}
    command = [sys.executable, *flags, "-c", _PROGRAM]
    if sys.platform == "win32":
        return _spawn_on_windows(command, environment, link)
    return subprocess.Popen(  # noqa: S603 - this interpreter, with a constant program
        [*command, str(link), str(lifeline)],
        stdin=subprocess.DEVNULL,
        env=environment,
        pass_fds=(link, lifeline),
        process_group=0,  # Ctrl-C is for the host, which drains; and what the handler starts can be killed with it
    )


def _spawn_on_windows(command: list[str], environment: Mapping[str, str], link: int) -> subprocess.Popen[bytes]:
    os.set_handle_inheritable(link, True)
    only = subprocess.STARTUPINFO(lpAttributeList={"handle_list": [link]})
    return subprocess.Popen(  # noqa: S603
        [*command, str(link), "-1"], stdin=subprocess.DEVNULL, env=environment, startupinfo=only
    )


class ChildProcesses:
    """The children of a host; idle ones are used again by jobs with the same key. Call from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._all: set[Child] = set()
        self._closed = False
        self.busy = 0
        self.guard = Guard()

    @property
    def used(self) -> bool:
        """Whether there is a process to end."""
        return bool(self._all) or self.guard.used

    def take(self, key: tuple[str, ...]) -> Child | None:
        """A warm child, or `None`: spawn one."""
        with self._lock:
            dead = [child for child in self._idle if not child.alive()]
            self._idle = [child for child in self._idle if child not in dead]
            found = next((child for child in reversed(self._idle) if child.key == key), None)
            if found is not None:
                self._idle.remove(found)
        for child in dead:
            self.end(child)
        return found

    def spawn(self, key: tuple[str, ...]) -> Child:
        """A new child.

        Raises:
            OSError: the system gives none.
        """
        child = Child(key)
        with self._lock:
            self._all.add(child)
            closed = self._closed
        if closed:
            child.kill()
        return child

    def give_back(self, child: Child) -> None:
        """Its call has ended; it is kept warm if there is room."""
        with self._lock:
            self._idle.append(child)
            surplus = self._idle[: max(0, len(self._idle) - (0 if self._closed else KEPT_IDLE))]
            self._idle = self._idle[len(surplus) :]
        for each in surplus:
            each.dismiss()
            self.end(each, LEAVE_WITHIN)

    def end(self, child: Child, patience: float = 0.0) -> int:
        """Kill a child, and return its exit code once it is gone."""
        self._all.discard(child)
        return child.end(patience)

    def close(self) -> None:
        """Let the idle leave and kill the others; returns when all are gone. Blocks."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            busy = self._all.difference(idle)
            self._all.clear()
        for child in busy:
            child.kill()
        for child in idle:
            child.dismiss()
        until = time.monotonic() + LEAVE_WITHIN
        for child in idle:
            child.end(max(until - time.monotonic(), 0.01))
        self.guard.close()
