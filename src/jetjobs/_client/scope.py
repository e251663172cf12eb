"""What every part of an open client works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from jetjobs._client.broker_time import BrokerTime
from jetjobs._client.calls import Deadline
from jetjobs._client.lookup import JobLookup
from jetjobs._core.durations import DurationLike, duration
from jetjobs._ports import Backend
from jetjobs.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Scope:
    """One project over one connection. `timeout` is in seconds, `max_payload` in bytes."""

    backend: Backend
    project: str
    timeout: float
    max_payload: int
    lookup: JobLookup
    time: BrokerTime = field(default_factory=BrokerTime)

    def deadline(self, timeout: DurationLike | None = None) -> Deadline:
        """The end of a call that begins now.

        Raises:
            ConfigError: the timeout is no duration, or zero.
        """
        return Deadline(self.timeout if timeout is None else seconds(timeout, "timeout"))


def seconds(span: DurationLike, what: str) -> float:
    """A span as seconds, more than zero."""
    found = duration(span, what).total_seconds()
    if found <= 0:
        raise ConfigError(f"{what} must be more than zero, not {span!r}")
    return found
