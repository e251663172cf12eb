"""What every part of an open client works with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from jetjobs._client.broker_time import BrokerTime
from jetjobs._client.calls import Deadline, Life
from jetjobs._client.lookup import JobLookup
from jetjobs._core.durations import DurationLike, duration
from jetjobs._ports import Backend
from jetjobs.errors import (
    AnswerUnknown,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    ConfigError,
    PermissionMissing,
    ProjectNotPrepared,
)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


@dataclass(frozen=True, slots=True)
class Scope:
    """One project over one connection. `timeout` is in seconds, `max_payload` in bytes."""

    backend: Backend
    project: str
    timeout: float
    max_payload: int
    lookup: JobLookup
    time: BrokerTime = field(default_factory=BrokerTime)
    life: Life = field(default_factory=Life)
    loop: asyncio.AbstractEventLoop | None = field(default_factory=_running_loop)

    def deadline(self, timeout: DurationLike | None = None) -> Deadline:
        """The end of a call that begins now.

        Raises:
            ConfigError: the timeout is no duration, or zero.
            ClientError: this is closed.
        """
        return self.within(self.timeout if timeout is None else seconds(timeout, "timeout"))

    def within(self, some: float) -> Deadline:
        """The end of a call that begins now and may take so many seconds."""
        self.check_open()
        return Deadline(some, self._stands, self.life)

    def check_open(self) -> None:
        """Refuse what nobody could answer.

        Raises:
            ClientError: the client or host is closed, or belongs to another event loop.
        """
        if self.life.over:
            raise ClientError(
                "the client or host that this came from is closed; ask within its `async with` block, or get the run "
                "anew from an open client with `client.run(module, job, run_id)`"
            )
        here = _running_loop()
        if here is not self.loop and here is not None and self.loop is not None:
            raise ClientError(
                "this client or host belongs to the event loop it was connected on, and another one is running now; "
                "connect a client within each asyncio.run, or take jetjobs.sync.JobClient, which has a loop of its own"
            )

    async def _stands(self) -> bool:
        try:
            await self.backend.broker.measure_clock()  # asks for the stream by its name
        except ProjectNotPrepared:
            return False
        except (BrokerUnavailable, AnswerUnknown):
            return True  # nobody can tell: as in a cluster that is choosing who may
        except PermissionMissing:
            return self.lookup.knows_any
        except BrokerError:
            return False
        return True


def seconds(span: DurationLike, what: str) -> float:
    """A span as seconds, more than zero."""
    found = duration(span, what).total_seconds()
    if found <= 0:
        raise ConfigError(f"{what} must be more than zero, not {span!r}")
    return found
