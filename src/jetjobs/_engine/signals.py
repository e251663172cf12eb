"""SIGTERM, SIGINT and SIGHUP while a host runs a process of its own. Nothing else in jetjobs touches signals."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from jetjobs._engine.forks import in_child
from jetjobs._log import get_logger
from jetjobs.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType

log = get_logger("jetjobs.engine")

LOOK_EVERY = 1.0
EXIT_OK = 0
EXIT_INTERRUPTED = 130


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _hear_nothing(*_: object) -> None:
    """A function and not SIG_IGN, which programs that the child executes would keep."""


def hang_ups() -> tuple[int, ...]:
    """SIGHUP, where it would end the process: not under `nohup`, nor where the program has a use of its own for it."""
    number = getattr(signal, "SIGHUP", None)  # not on Windows
    return (number,) if number is not None and signal.getsignal(number) is signal.SIG_DFL else ()


class StopSignals:
    """Owns these signals from `with` to its end, and puts back what was there before.

    The first signal resolves `stop()` with the exit code, the second ends the process at once. A hang-up is a first
    one and never a second: of one closed terminal a process hears from the shell and from the kernel, and a service
    manager adds SIGTERM.

    Plain handlers instead of the loop's: they run even while a handler blocks the loop, on loops that have none
    (Windows), and before there is a loop.

    A forked child isn't deaf to SIGTERM: `multiprocessing` ends the workers of a pool by it, and waits. Ctrl-C and a
    hang-up, which a terminal sends to all of them, are the host's alone to hear: it drains, and its runs need their
    children.
    """

    def __init__(self) -> None:
        self._before: dict[int, Any] = {}
        self._keep_from_children: Callable[[], None] | None = None
        self._hang_ups: tuple[int, ...] = ()
        self._heard: int | None = None
        self._asked = False
        self._stop: asyncio.Future[int] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is not threading.main_thread():
            raise HostError(
                "run() owns the process's signals, which only the main thread may; in another thread write "
                "`async with JobHost(…) as host: await host.wait_closed()` and run that with asyncio.run"
            )
        if _loop_runs():
            raise HostError(
                "run() blocks and has an event loop of its own, and on this thread one is running already; there write "
                "`async with JobHost(…) as host: await host.wait_closed()`"
            )
        self._hang_ups = hang_ups()
        for number in (signal.SIGINT, signal.SIGTERM, *self._hang_ups):
            self._before[number] = signal.signal(number, self._on_signal)
        self._keep_from_children = in_child(self._in_child)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._keep_from_children is not None:
            self._keep_from_children()
        self._put_back()

    def _in_child(self) -> None:
        self._put_back()
        for number in (signal.SIGINT, *self._hang_ups):
            signal.signal(number, _hear_nothing)

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            # None: not set by Python code, so Python can't put it back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def stop(self) -> asyncio.Future[int]:
        """What the first signal resolves; made for the running loop, at once when the signal came already."""
        self._stop = asyncio.get_running_loop().create_future()
        if self._heard is not None:
            self._resolve()
        self._keep(self._stop)
        return self._stop

    def _keep(self, stop: asyncio.Future[int]) -> None:
        """Own them still, should code of a handler have taken them: deaf, a host could only be killed."""
        for number in self._before:
            if signal.getsignal(number) != self._on_signal:
                signal.signal(number, self._on_signal)
                log.warning("signal_taken_back", signal=signal.Signals(number).name)
        if not stop.done():
            stop.get_loop().call_later(LOOK_EVERY, self._keep, stop)

    def _on_signal(self, number: int, _frame: object) -> None:
        if number not in self._hang_ups:
            if self._asked:
                os._exit(128 + number)
            self._asked = True
        if self._heard is not None:
            return
        self._heard = number
        if self._stop is not None:
            with suppress(RuntimeError):  # the loop is closed: the process is ending anyway
                self._stop.get_loop().call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        if self._stop is not None and not self._stop.done():
            self._stop.set_result(EXIT_INTERRUPTED if self._heard == signal.SIGINT else EXIT_OK)


async def first_of(work: Coroutine[Any, Any, None], stop: asyncio.Future[int]) -> bool:
    """Await `work`; False, with it cancelled, when `stop` was resolved before it ended."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task, stop], return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
        return True
    task.cancel()
    await asyncio.wait([task])
    return False
