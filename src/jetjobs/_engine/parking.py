"""Triggers made for another release, put aside until a host of it comes: stored first, then retired.

A crash between the two redelivers the first message, and it is parked again under "nothing there yet"; of two copies
of a trigger the run's record retires one.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from jetjobs._core.delivery import expiry_of
from jetjobs._core.misfits import next_return, parked_message, verdict_on
from jetjobs._log import get_logger
from jetjobs.errors import WrongRevision

if TYPE_CHECKING:
    from datetime import datetime

    from jetjobs._core.messages import Trigger
    from jetjobs._core.models import RunKey
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.held import HeldRun
    from jetjobs._engine.hosted import HostedJob
    from jetjobs._ports import Delivery, Stored
    from jetjobs.errors import PayloadInvalidError

log = get_logger("jetjobs.engine")

SAID_EVERY = 10.0


class Parking:
    """Puts aside triggers of one job."""

    __slots__ = ("_engine", "_hosted", "_last", "_parked", "_told_at")

    def __init__(self, engine: Engine, hosted: HostedJob) -> None:
        self._engine = engine
        self._hosted = hosted
        self._last: datetime | None = None
        self._parked = 0
        self._told_at: float | None = None

    async def left_to_another(self, held: HeldRun, refused: PayloadInvalidError, stored: Stored | None) -> bool:
        """Whether a payload that doesn't validate here was made for another release's host, and left to one."""
        trigger, backend = held.trigger, self._engine.backend
        expires_at = expiry_of(trigger, self._hosted.rules)
        schema, now = self._hosted.job.payload_schema_digest, backend.broker.now()
        if stored is None and trigger.payload_schema not in {None, schema}:
            stored = await backend.runs.get(held.key)  # a first delivery, of a run that may have a record all the same
        record = None if stored is None else stored.record
        verdict = verdict_on(trigger, record, schema=schema, expires_at=expires_at, now=now)
        if verdict == "park":
            self._tell(held.key, refused)
            await self._park(held.delivery, trigger, expires_at=expires_at)
        elif verdict == "fail" and trigger.payload_schema not in {None, schema}:
            # No such host came in time. Why it can't be run tells more than that it is late.
            held.trigger = replace(trigger, start_deadline=None)
        return verdict != "fail"

    def _tell(self, run: RunKey, refused: PayloadInvalidError) -> None:
        """Warn of what doesn't fit here, now and then: the same run comes back every few seconds."""
        now = self._engine.clock.monotonic()
        self._parked += 1
        if self._told_at is None or now - self._told_at >= SAID_EVERY:
            log.warning("payload_of_another_release", run=str(run), error=str(refused), parked=self._parked)
            self._told_at, self._parked = now, 0

    async def _park(self, delivery: Delivery, trigger: Trigger, *, expires_at: datetime) -> None:
        """Have the trigger come again later; its slot is free.

        Raises:
            BrokerError: not stored, or that isn't known; the delivery may go back.
        """
        broker = self._engine.backend.broker
        self._last = next_return(self._last, broker.now())
        with suppress(WrongRevision):  # it waits already
            await broker.store(parked_message(broker.project, trigger, self._last, expires_at=expires_at), expected=0)
        delivery.ack()
