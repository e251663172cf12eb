"""The one owner of the hot path's tasks: one a run, one a handler, none forgotten.

A task group per run costs a fifth of the throughput (measured), so the runs of a host share this one owner.
It keeps every task alive until it ends, reports what escapes, and can wait for or cancel all of them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jetjobs._log import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

log = get_logger("jetjobs.engine")


class Tasks:
    """Start tasks that somebody owns. Use on one event loop only."""

    __slots__ = ("_idle", "_loop", "_running")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._running: set[asyncio.Task[Any]] = set()
        self._idle: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._running)

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine; what it raises is logged, because nobody awaits it."""
        task = self._loop.create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    def start_served(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine that raises nothing and calls `served` last: a callback per run costs as much as a task."""
        task = self._loop.create_task(coroutine)
        self._running.add(task)
        return task

    def served(self, task: asyncio.Task[None] | None) -> None:
        """A task of `start_served` is about to end."""
        if task is not None:
            self._running.discard(task)
        if not self._running and self._idle is not None:
            self._idle.set()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("engine_task_failed", exc_info=error)
        if not self._running and self._idle is not None:
            self._idle.set()

    async def wait_idle(self, timeout: float) -> bool:
        """Wait until no task runs; False when some still do after `timeout` seconds."""
        if not self._running:
            return True
        if self._idle is None or self._idle.is_set():
            self._idle = asyncio.Event()
        idle = self._idle  # others may wait for the same moment
        try:
            async with asyncio.timeout(timeout):
                await idle.wait()
        except TimeoutError:
            return False
        return True

    async def cancel_all(self) -> None:
        """Cancel what still runs and wait until it noticed, a second at most: some never do."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=1)


async def seen_through(work: Coroutine[Any, Any, None]) -> None:
    """Await work to its end, however often whoever awaits it is cancelled meanwhile; that is raised after it."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled


async def in_batches(work: Iterable[Coroutine[Any, Any, Any]], size: int = 100) -> None:
    """Await many coroutines, `size` at once. The first error ends the whole, when those beside it have ended."""
    waiting = list(work)
    try:
        while waiting:
            now, waiting = waiting[:size], waiting[size:]
            ended = await asyncio.gather(*now, return_exceptions=True)
            for outcome in ended:
                if isinstance(outcome, BaseException):
                    raise outcome
    finally:
        for coroutine in waiting:
            coroutine.close()
