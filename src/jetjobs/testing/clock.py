"""A clock that moves only when a test says so."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from itertools import count

# Any instant does, as long as it is the same in every run; not midnight, so that day arithmetic shows.
_START = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)

# More turns than any chain of awaits that only waits for itself; a loop that never settles is stopped here.
_MOST_TURNS = 500


class _ManualTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        """Forget the callback."""
        self.callback = None


class ManualClock:
    """`now` and `monotonic` stand still until `advance` moves both together and wakes the sleepers in order."""

    def __init__(self, start: datetime = _START, *, monotonic: float = 1000.0) -> None:
        if start.tzinfo is None:
            message = "ManualClock starts at an aware instant, as in datetime(2030, 1, 1, tzinfo=UTC)"
            raise ValueError(message)
        self._origin = start.astimezone(UTC)
        self._base = monotonic
        self._elapsed = timedelta(0)
        self._numbers = count()
        self._timers: list[tuple[timedelta, int, _ManualTimer]] = []

    def now(self) -> datetime:
        """The instant the test is at, in UTC."""
        return self._origin + self._elapsed

    def monotonic(self) -> float:
        """Seconds, moving together with `now`."""
        return self._base + self._elapsed.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Wait until `advance` has passed so many seconds; none or fewer only give others a turn."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _ManualTimer:
        """Call back when `advance` has passed so many seconds, never within this call."""
        timer = _ManualTimer(callback)
        due = self._elapsed + timedelta(seconds=max(0.0, seconds))
        heapq.heappush(self._timers, (due, next(self._numbers), timer))
        return timer

    @property
    def next_due(self) -> timedelta | None:
        """How far `advance` must go to reach the next timer; `None` when nobody waits."""
        while self._timers and self._timers[0][2].callback is None:
            heapq.heappop(self._timers)
        return self._timers[0][0] - self._elapsed if self._timers else None

    async def advance(self, by: timedelta | float) -> None:
        """Move time forward, stopping at each timer on the way until all it set going has come to rest."""
        target = self._elapsed + (by if isinstance(by, timedelta) else timedelta(seconds=by))
        await self.settle()
        while (step := self.next_due) is not None and self._elapsed + step <= target:
            self._elapsed = max(self._elapsed, self._timers[0][0])
            callback = heapq.heappop(self._timers)[2].callback
            if callback is not None:
                callback()
            await self.settle()
        self._elapsed = max(self._elapsed, target)

    async def settle(self) -> None:
        """Give the loop turns until nothing is ready to run without time passing or another thread's doing."""
        loop = asyncio.get_running_loop()
        ready: Collection[object] | None = getattr(loop, "_ready", None)
        for turn in range(_MOST_TURNS):
            await asyncio.sleep(0)
            # A loop of another make doesn't show its queue: there, a fixed number of turns must do.
            if (not ready) if ready is not None else turn > _MOST_TURNS // 10:
                return
