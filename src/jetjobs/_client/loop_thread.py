"""The one thread of a process whose event loop does the I/O of all its blocking clients.

It starts with the first call and ends with the interpreter. Two things make it delicate:

A fork. The child has the parent's loop and sockets, and no thread to serve them. They are cut off at once: the
child's copies of the descriptors come to lead nowhere, so that nothing the child does or frees can reach the parent's
connection, nor the epoll instance they share. The child's first call starts a thread of its own. A server written in C
may fork without telling Python (uWSGI does unless it is asked to): then that first call notices it.

The exit. Connections are closed and what still runs is cancelled before the interpreter takes its modules apart. Who
still waits then is a daemon thread, about to end without being asked: it is told nothing.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Protocol, TypeVar

from jetjobs.errors import BlockingCallError, ClientError

T = TypeVar("T")

# A wait looks up this often: an interrupt sent to a handler's thread, and Ctrl-C on Windows, come in only between
# two waits.
_LOOK_UP = 0.25
_CLOSE_WITHIN = 1.0


class Closable(Protocol):
    """What a thread closes at the end."""

    def close(self) -> Awaitable[None]:
        """Let go of everything."""
        ...


def refuse_on_a_loop() -> None:
    """Refuse to block a thread whose event loop is running.

    Raises:
        BlockingCallError: it is.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BlockingCallError(
        "a blocking call on a thread whose event loop is running would stop that loop; await the async client's "
        "call instead (jetjobs.JobClient, job.trigger), or call from a thread (await asyncio.to_thread(...))"
    )


def call_on(loop: asyncio.AbstractEventLoop, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What a coroutine returns that runs on another thread's loop; it is cancelled when this wait is interrupted.

    Raises:
        BlockingCallError: this thread runs a loop itself.
        ClientError: that loop isn't running, or ended first.
    """
    refuse_on_a_loop()
    answered = threading.Event()
    future = _sent_to(loop, ask)
    try:
        future.add_done_callback(lambda _: answered.set())
        while not answered.wait(_LOOK_UP) and loop.is_running():
            pass
    finally:
        future.cancel()  # no effect on one that is done
    try:
        return future.result()
    except CancelledError:
        _stay_if_ending(loop)
        raise ClientError("the event loop this call ran on ended first; it may have been carried out") from None
    except Exception:
        _stay_if_ending(loop)  # it may be of a client that the exit has just closed
        raise


def _sent_to(loop: asyncio.AbstractEventLoop, ask: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
    if loop.is_running():
        call = _started(ask)
        try:
            return asyncio.run_coroutine_threadsafe(call, loop)
        except RuntimeError:  # closed between the two lines
            call.close()
    raise ClientError("the event loop this call would run on is not running any more; nothing was sent")


async def _started(ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await ask()


class LoopThread:
    """A daemon thread and the event loop it serves."""

    def __init__(self) -> None:
        # Not the policy's loop: after a fork its selector must be within reach.
        self._selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self.ending = False
        self._inherited = False
        self._held: set[Closable] = set()
        self._thread = threading.Thread(target=self._serve, name="jetjobs-blocking", daemon=True)
        started = threading.Event()
        self.loop.call_soon(started.set)
        self._thread.start()
        started.wait()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def hold(self, closable: Closable) -> None:
        """Close it at the exit, if nobody did. For the loop's thread."""
        self._held.add(closable)

    async def close(self, closable: Closable) -> None:
        """Close what was held."""
        if closable in self._held:
            # The fence: it is let go of either way, and nobody is left to be told.
            with suppress(Exception):
                async with asyncio.timeout(_CLOSE_WITHIN):
                    await closable.close()
            self._held.discard(closable)

    def abandon(self, closable: Closable) -> None:
        """Have something closed that nobody uses any more; from any thread, and harmless in a child."""
        _process.notice_fork()
        if not (self._inherited or self.ending):
            with suppress(RuntimeError):  # closed between the two lines
                asyncio.run_coroutine_threadsafe(self.close(closable), self.loop)

    def end(self) -> None:
        """Close everything and stop, at the interpreter's exit."""
        self.ending = True
        finishing = asyncio.run_coroutine_threadsafe(self._finish(), self.loop)
        with suppress(TimeoutError, CancelledError):
            finishing.result(2 * _CLOSE_WITHIN)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_WITHIN)
        if not self._thread.is_alive():
            self.loop.close()

    async def _finish(self) -> None:
        await asyncio.gather(*(self.close(each) for each in tuple(self._held)))
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.loop.shutdown_asyncgens()

    def cut_off(self) -> None:
        """In a child just forked: make the parent's loop and sockets lead nowhere."""
        self._inherited = True
        descriptors = [key.fd for key in self._selector.get_map().values()]
        with suppress(OSError):  # macOS: a kqueue isn't inherited
            self._selector.close()
        # An empty one in its place: a transport that is freed takes its descriptor out of it, not out of the parent's.
        self._selector.__init__()
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in descriptors:
            # Not closed: its socket object would later close whatever got the same number.
            os.dup2(nowhere, descriptor, inheritable=False)
        os.close(nowhere)


class _Process:
    """What this process has of it."""

    def __init__(self) -> None:
        self.process_id = os.getpid()
        self.noticing = threading.Lock()
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.over = False
        # A loop that was never closed complains when it is freed.
        self.inherited: list[LoopThread] = []

    def notice_fork(self) -> None:
        """Do what the hook would have done, if Python wasn't told of the fork."""
        if self.process_id != os.getpid():
            with self.noticing:
                if self.process_id != os.getpid():
                    self.forked()

    def forked(self) -> None:
        self.lock = threading.Lock()  # another thread of the parent may have held it
        thread, self.thread = self.thread, None
        if thread is not None:
            self.inherited.append(thread)
            thread.cut_off()
        self.process_id = os.getpid()

    def end(self) -> None:
        self.notice_fork()
        with self.lock:
            self.over = True
        if self.thread is not None:
            self.thread.end()


_process = _Process()
# Registered early, so run late: a program's own exit handlers may still call.
atexit.register(_process.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_process.forked)


def loop_thread() -> LoopThread:
    """This process's thread, started if it isn't yet.

    Raises:
        ClientError: the process is ending.
    """
    _process.notice_fork()
    found = _process.thread
    if found is not None and not found.ending:
        return found
    with _process.lock:
        if _process.over:
            raise ClientError("this process is ending: blocking clients are closed")
        if _process.thread is None:
            _process.thread = LoopThread()
        return _process.thread


def _stay_if_ending(loop: asyncio.AbstractEventLoop) -> None:
    thread = _process.thread
    while thread is not None and thread.loop is loop and thread.ending:
        time.sleep(_CLOSE_WITHIN)
