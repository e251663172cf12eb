"""When the next attempt is, and when there is none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jetjobs._core.policy import Backoff

MAX_INTERRUPTIONS = 10
START_OF_TIME = datetime.min.replace(tzinfo=UTC)
END_OF_TIME = datetime.max.replace(tzinfo=UTC)


def backoff_delay(backoff: Backoff, attempt: int, roll: float) -> timedelta:
    """How long to wait after failed attempt number `attempt` (from 1): monotone in it, capped, spread by jitter.

    `roll` in [0, 1) is the caller's dice: 0.5 is the middle, the ends are `jitter` of the delay below and above,
    and the cap holds for the spread delay too.
    """
    base = backoff.base.total_seconds()
    cap = backoff.cap.total_seconds()
    # Step by step and no further than the cap: 2.0 ** 5000 overflows.
    grown = base
    for _ in range(attempt - 1):
        if grown >= cap or backoff.factor <= 1 or not base:
            break
        grown *= backoff.factor
    spread = min(grown, cap) * (1 + backoff.jitter * (2 * roll - 1))
    return timedelta(seconds=min(spread, cap))


def later(instant: datetime, span: timedelta) -> datetime:
    """`instant + span`, or the last instant there is: a delay of ten million years is asked for by mistake only.

    >>> later(datetime(2030, 1, 1, tzinfo=UTC), timedelta.max).year
    9999
    """
    try:
        return instant + span
    except OverflowError:
        return END_OF_TIME


def sooner(instant: datetime, span: timedelta) -> datetime:
    """`instant - span`, or the first instant there is: a grace without end is written as `timedelta.max`, too.

    >>> sooner(datetime(2030, 1, 1, tzinfo=UTC), timedelta.max).year
    1
    """
    try:
        return instant - span
    except OverflowError:
        return START_OF_TIME


def fits(retry_at: datetime, expires_at: datetime | None) -> bool:
    """Whether a retry at that instant still happens before the run expires."""
    return expires_at is None or retry_at < expires_at
