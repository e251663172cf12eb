"""One start and stop contract for every loop of a host.

A `Service` repeats one pass at an interval, survives what a pass raises (logged, with the next pass as its
retry), and can be woken early. Nothing else in the engine writes such a loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jetjobs._log import get_logger
from jetjobs.errors import HostError, JetJobsError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from jetjobs._clock import Clock

log = get_logger("jetjobs.engine")


class Service:
    """Run `one_pass` every `interval` seconds, the first time at once when `at_once`.

    A pass that fails with an error of ours (the broker is away, say) is tried again at the next interval; anything
    else is a bug: it is logged with its traceback, and the loop goes on all the same.
    """

    def __init__(
        self,
        name: str,
        one_pass: Callable[[], Awaitable[None]],
        interval: float,
        *,
        clock: Clock,
        at_once: bool = False,
    ) -> None:
        self.name = name
        self._clock = clock
        self._pass = one_pass
        self._interval = interval
        self._at_once = at_once
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.passes = 0

    def start(self) -> None:
        """Begin. A second call does nothing."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._loop(), name=f"jetjobs {self.name}")

    def wake(self) -> None:
        """Make the next pass happen now."""
        self._woken.set()

    @property
    def died(self) -> BaseException | None:
        """What ended the loop against its will, if anything did."""
        task = self._task
        if task is None or not task.done():
            return None
        if task.cancelled():
            return HostError(f"something cancelled the task of loop {self.name!r}")
        return task.exception()

    async def stop(self) -> None:
        """End the loop and wait until it ended. Idempotent."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait([task])

    async def _loop(self) -> None:
        if not self._at_once:
            await self._pause()
        while True:
            try:
                await self._pass()
            except JetJobsError as error:
                log.warning("service_pass_failed", service=self.name, error=str(error))
            except Exception:
                log.exception("service_pass_broke", service=self.name)
            self.passes += 1
            await self._pause()

    async def _pause(self) -> None:
        timer = self._clock.call_later(self._interval, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()
        self._woken.clear()
