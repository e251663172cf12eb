"""A clock that goes as the machine's does and can be moved ahead: nobody waits for what is due tomorrow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from jetjobs._clock import SystemClock, Timer


class _JumpingTimer:
    __slots__ = ("_callback", "_handle", "_timers", "due")

    def __init__(self, due: float, callback: Callable[[], object], timers: set[_JumpingTimer]) -> None:
        self.due = due
        self._callback = callback
        self._timers = timers
        self._handle: Timer | None = None
        timers.add(self)

    def set(self, now: float) -> None:
        """Have the loop call when it is due, by what is left now."""
        if self._handle is not None:
            self._handle.cancel()
        left = max(0.0, self.due - now)
        self._handle = asyncio.get_running_loop().call_later(left, self._fire)

    def cancel(self) -> None:
        """Forget the callback."""
        self._timers.discard(self)
        if self._handle is not None:
            self._handle.cancel()

    def _fire(self) -> None:
        self._timers.discard(self)
        self._callback()


class JumpingClock:
    """The machine's time, plus all jumps so far. What a jump passes over comes due in the loop's next turn."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead = timedelta(0)
        self._timers: set[_JumpingTimer] = set()

    def now(self) -> datetime:
        """The current instant, in UTC."""
        return self._system.now() + self._ahead

    def monotonic(self) -> float:
        """Seconds, moving together with `now`."""
        return self._system.monotonic() + self._ahead.total_seconds()

    async def sleep(self, seconds: float) -> None:
        """Wait until so many seconds have passed or were jumped over."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        over = asyncio.Event()
        timer = self.call_later(seconds, over.set)
        try:
            await over.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call back when so many seconds have passed or were jumped over."""
        now = self.monotonic()
        timer = _JumpingTimer(now + seconds, callback, self._timers)
        timer.set(now)
        return timer

    def jump(self, by: timedelta) -> None:
        """Move time ahead."""
        self._ahead += max(by, timedelta(0))
        now = self.monotonic()
        for timer in sorted(self._timers, key=lambda each: each.due):
            timer.set(now)
