"""What a handler raises to say how its attempt ends, and what the host raises inside a handler.

All of these are `BaseException`s on purpose: a handler's `except Exception` must neither eat
its own decision nor the host's order to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta


class Outcome(BaseException):
    """Common parent of Skip, Discard, Snooze and RetryAfter."""


class Skip(Outcome):
    """There is nothing to do: the run becomes SKIPPED, never an error. `ctx.skip(reason)` raises it."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(Outcome):
    """This can never succeed: the run becomes FAILED at once, attempts left or not."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze(Outcome):
    """Not now: the run waits for `delay` and starts again. Costs no attempt, holds no slot."""

    def __init__(self, delay: timedelta | float | str) -> None:
        super().__init__(delay)
        self.delay = delay


class RetryAfter(Outcome):
    """This attempt failed, and the next one, if one is left, waits for `delay` instead of the backoff."""

    def __init__(self, delay: timedelta | float | str, reason: str = "") -> None:
        super().__init__(delay, reason)
        self.delay = delay
        self.reason = reason


class JobInterrupted(BaseException):
    """Raised inside a handler's thread, or by `ctx.raise_if_cancelled()`, when its attempt must stop.

    `reason` is `cancel`, `timeout`, `shutdown` or `fenced`. Let it pass; clean up in `finally`.
    """

    def __init__(self, reason: str = "cancel") -> None:
        super().__init__(reason)
        self.reason = reason
