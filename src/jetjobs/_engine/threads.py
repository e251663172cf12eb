"""Plain functions in threads: reused, interruptible, and never a reason for the process to stay.

A thread that is stuck in C code can't be stopped from outside; it keeps its slot until it returns, and because these
are daemon threads the process can end without it. `JobInterrupted` is raised in a thread with
`PyThreadState_SetAsyncExc`, which takes effect at the thread's next bytecode.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import queue
import threading
from concurrent import futures
from typing import TYPE_CHECKING, Any

from jetjobs._engine.forks import leave_if_forked, lineage
from jetjobs.outcomes import JobInterrupted

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from jetjobs._clock import Clock, Timer
    from jetjobs._core.completion import Ending
    from jetjobs._engine.execution import Verdict


_TURNS = 16  # each looks for an interrupt; one would do


class NoThread(Exception):
    """No thread for a handler, which has not been called."""


class HandlerThreads:
    """Threads that run handlers; idle ones are used again. Call from the event loop's thread.

    How many may run at once is decided where deliveries are taken (`Slots`), not here.
    """

    def __init__(self) -> None:
        self._idle: list[_Thread] = []
        self.busy = 0

    def take(self) -> _Thread:
        """A thread for one call; `give_back` it after.

        Raises:
            NoThread: the system gives no more.
        """
        try:
            thread = self._idle.pop() if self._idle else _Thread()
        except RuntimeError as error:
            raise NoThread(f"{error}: the system gives this host no more; fewer `threads`, or more memory") from error
        self.busy += 1
        return thread

    def give_back(self, thread: _Thread) -> None:
        """The thread's call has ended."""
        self.busy -= 1
        self._idle.append(thread)

    def close(self) -> None:
        """Let idle threads end."""
        for thread in self._idle:
            thread.calls.put(None)
        self._idle.clear()


class _Thread:
    """One daemon thread with an inbox of calls."""

    def __init__(self) -> None:
        self.calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._in_handler = False
        self._interrupted = False
        self._thread = threading.Thread(target=self._serve, name="jetjobs handler", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                call = self.calls.get()
                if call is None:
                    return
                call()
            except JobInterrupted:
                # An interrupt that arrived as the handler returned: it has nothing left to stop.
                continue

    def run_interruptible(self, handler: Callable[[], Any]) -> Any:
        """In the thread: run a handler so that `interrupt` may hit it, and only it."""
        with self._lock:
            self._in_handler, self._interrupted = True, False
        try:
            return handler()
        finally:
            left = False
            while not left:
                try:
                    with self._lock:
                        self._in_handler = False
                    if self._interrupted:
                        _let_it_strike()
                    left = True
                except JobInterrupted:
                    continue

    def interrupt(self) -> None:
        """From outside: raise `JobInterrupted` in the handler, if one runs."""
        with self._lock:
            ident = self._thread.ident
            if self._in_handler and ident is not None:
                self._interrupted = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(JobInterrupted))


def _let_it_strike() -> None:
    """Return once an interrupt of this thread that was set before can strike no later code: it struck here, if at all.

    Taking it back instead leaves CPython's mark for it, up to 3.12: every call and loop of the process is slower then,
    by a third on 3.12, and on 3.11 all threads of a process that is traced stand still.
    """
    for _ in range(_TURNS):
        pass


class ThreadExecution:
    """A `def` handler in a thread."""

    __slots__ = (
        "_clock",
        "_ended_with",
        "_grace",
        "_hook",
        "_ignored_once",
        "_lineage",
        "_loop",
        "_on_ignored",
        "_over",
        "_thread",
        "_threads",
        "_timer",
        "_verdict",
    )

    def __init__(
        self,
        verdict: Verdict,
        grace: float,
        on_ignored: Callable[[], None],
        *,
        clock: Clock,
        threads: HandlerThreads,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._verdict = verdict
        self._grace = grace
        self._on_ignored = on_ignored
        self._ignored_once = False
        self._lineage = lineage()
        self._threads = threads
        self._timer: Timer | None = None
        self._over = False
        self._hook: asyncio.Task[Any] | None = None
        self._ended_with: asyncio.Future[Ending] = self._loop.create_future()
        self._thread = threads.take()

    async def call(self, handler: Callable[[], Any]) -> Ending:
        """Run the handler in its thread and say how it ended; returns only when the thread has left it."""
        # A context of its own: threads are reused, and what one run binds must not show in the next.
        context = contextvars.copy_context()
        self._thread.calls.put(lambda: context.run(self._in_thread, handler))
        return await self._ended_with

    def on_loop(self, hook: Coroutine[Any, Any, None]) -> None:
        """From the handler's thread: await a hook on the event loop, where an interrupt cancels it.

        The thread itself hears nothing as long as it waits.
        """
        try:
            asyncio.run_coroutine_threadsafe(self._hooked(hook), self._loop).result()
        except futures.CancelledError:
            raise asyncio.CancelledError from None  # as it is raised where the handler is a coroutine

    async def _hooked(self, hook: Coroutine[Any, Any, None]) -> None:
        self._hook = asyncio.current_task()
        try:
            await hook
        finally:
            self._hook = None

    def _in_thread(self, handler: Callable[[], Any]) -> None:
        try:
            ending = self._verdict.returned(self._thread.run_interruptible(handler))
        except BaseException as error:  # noqa: BLE001 - the fence around a user's handler
            ending = self._verdict.raised(error)
        leave_if_forked(self._lineage)
        try:
            self._loop.call_soon_threadsafe(self._ended, ending)
        except RuntimeError:
            return  # The loop was closed while the thread was stuck: the process is ending, nobody waits any more.

    def _ended(self, ending: Ending) -> None:
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
        self._threads.give_back(self._thread)
        if not self._ended_with.done():
            self._ended_with.set_result(ending)

    def stop(self, reason: str) -> None:
        """Set `ctx.cancelled` at once, interrupt the thread after the grace and every grace again.

        A fenced thread gets no grace: another host may start the run at any moment.
        """
        journal = self._verdict.journal
        if journal.cancel_reason is None or reason == "fenced":
            journal.cancel_reason = reason
        if self._over:
            return
        if reason == "fenced":
            if self._timer is not None:
                self._timer.cancel()
            self._interrupt()
        elif self._timer is None:
            self._timer = self._clock.call_later(self._grace, self._interrupt)

    def _interrupt(self) -> None:
        self._thread.interrupt()
        if self._hook is not None:
            self._hook.cancel()
        self._timer = self._clock.call_later(self._grace, self._ignored)

    def _ignored(self) -> None:
        if not self._ignored_once:
            self._ignored_once = True
            self._on_ignored()
        self._interrupt()
