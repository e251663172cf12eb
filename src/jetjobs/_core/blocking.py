"""When an event loop counts as blocked, and what a thread beside it may still do for its runs.

The loop ticks; the thread looks. All spans are parts of the ack wait, after which the broker hands a run out again::

    0 ─── 1/4 ─────────────── 2/3 ───── 5/6 ── 1
       blocked; renew      the loop     too   handed
       what is this old    fences       late  out again
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from jetjobs._core.descriptors import HostPresence, takers


@dataclass(frozen=True, slots=True)
class Watch:
    """How a loop is watched; in seconds of the monotonic clock."""

    ack_wait: float

    @classmethod
    def over(cls, ack_wait: timedelta) -> Watch:
        """The watch of a host with this ack wait."""
        return cls(ack_wait.total_seconds())

    @property
    def tick_every(self) -> float:
        """How often the loop ticks and the thread looks."""
        return self.ack_wait / 24

    @property
    def renew_every(self) -> float:
        """How old a confirmation may be before another is asked for."""
        return self.ack_wait / 4

    def blocked_for(self, *, ticked_at: float, now: float) -> float:
        """Seconds since the loop's last tick, once that is long; 0 while it ticks.

        >>> watch = Watch(24.0)
        >>> watch.blocked_for(ticked_at=100, now=106), watch.blocked_for(ticked_at=100, now=107)
        (0.0, 7.0)
        """
        silent = float(now - ticked_at)
        return silent if silent > self.ack_wait / 4 else 0.0

    def stood_still(self, *, looked_at: float, now: float) -> bool:
        """Whether the watching thread is late itself: then the whole process stood still, and not the loop alone."""
        return now - looked_at > self.ack_wait / 4

    def may_renew(self, *, confirmed_at: float, now: float) -> bool:
        """Whether a run whose renewal was confirmed then is to be renewed now.

        Later than the loop fences its runs (it can't stop a handler that blocks it), but safely before the broker
        hands them out again: what is older may be another host's by now.

        >>> watch = Watch(24.0)
        >>> [watch.may_renew(confirmed_at=0, now=now) for now in (5, 6, 19, 20)]
        [False, True, True, False]
        """
        return self.renew_every <= now - confirmed_at < self.ack_wait * 5 / 6


def others_can(hosts: Iterable[HostPresence], host_id: str) -> bool:
    """Whether another host takes runs of a job that this one has: what the broker gives a blocked one is theirs."""
    living = list(hosts)
    ours = {job for host in living if host.host_id == host_id for job in host.jobs}
    others = takers(host for host in living if host.host_id != host_id)
    return any(str(job) in ours for job in others)
