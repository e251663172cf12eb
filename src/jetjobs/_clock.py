"""The only reader of time: everything that asks what time it is, waits or sets a timer does it through a `Clock`.

Two clocks exist, this module's and the `ManualClock` of `jetjobs.testing`. Instants come from `now`, spans from
`monotonic`, because the wall clock may be set while a span is running.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Protocol

_NO_OFFSET = timedelta(0)


class Timer(Protocol):
    """A callback that waits for its time."""

    def cancel(self) -> None:
        """Forget the callback; after it ran this does nothing."""
        ...


class Clock(Protocol):
    """Tells the time, and wakes who waits for it."""

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds from an arbitrary zero, never going back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds; at once, but after others had a turn, when there are none."""
        ...

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Have the running loop call back after so many seconds."""
        ...


class SystemClock:
    """The machine's clock. `offset` moves `now` alone, as a badly set machine would."""

    __slots__ = ("offset",)

    def __init__(self, offset: timedelta = _NO_OFFSET) -> None:
        self.offset = offset

    def now(self) -> datetime:
        """The current instant, aware, in UTC."""
        now = datetime.now(UTC)
        return now + self.offset if self.offset else now

    def monotonic(self) -> float:
        """Seconds from an arbitrary zero, never going back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after so many seconds; at once, but after others had a turn, when there are none."""
        await asyncio.sleep(max(0.0, seconds))

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Have the running loop call back after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)
