"""Ends the runs whose hosts are gone for good and that nothing will ever redeliver.

Every host reaps; the compare-and-set lets exactly one of them end a run. Runs in hand here are never touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetjobs._core import names
from jetjobs._core.reaping import ReapingRules, doubt, reap_running, reap_waiting
from jetjobs._core.retention import record_ttl
from jetjobs._engine.leftovers import anything_there
from jetjobs._engine.schedules import Schedules
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError, WrongRevision

if TYPE_CHECKING:
    from datetime import timedelta

    from jetjobs._core.models import RunKey, RunRecord
    from jetjobs._engine.engine import Engine
    from jetjobs._ports import Stored

log = get_logger("jetjobs.engine")


class Reaper:
    """Looks through all records for runs that nobody will end."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._schedules = Schedules(engine)
        lost_after = engine.settings.lost_after
        self._rules = ReapingRules(lost_after=lost_after, retry_slack=lost_after)

    async def one_pass(self) -> None:
        """Look at every record once."""
        engine = self._engine
        if not await self._connected_for_a_while():
            return
        async for stored in engine.backend.runs.scan():
            record = stored.record
            if record.status.is_terminal or record.run_key in engine.held:
                continue
            if doubt(record, self._rules, engine.backend.broker.now()) != "fine":
                await self._look_into(record.run_key)

    async def _connected_for_a_while(self) -> bool:
        """Wait out one ack wait since the (re)connect: every owner gets that long to come back. False when cut off."""
        broker, clock = self._engine.backend.broker, self._engine.clock
        grace = self._engine.settings.ack_wait.total_seconds()
        while (since := broker.connected_since) is not None:
            left = since + grace - clock.monotonic()
            if left <= 0:
                return True
            await clock.sleep(left)
        return False

    async def _look_into(self, run: RunKey) -> None:
        engine = self._engine
        try:
            if not await self._connected_for_a_while():  # The connection may have been lost since the scan began.
                return
            stored = await engine.backend.runs.get(run)  # The scan may be late; what decides a write may not.
            if stored is None or run in engine.held:
                return
            ended = await self._ended(stored)
            if ended is not None:
                await engine.backend.runs.update(ended, stored.revision, ttl=await self._ttl(ended))
                log.warning("run_reaped", run=str(run), status=ended.status.value)
                engine.backend.broker.announce_end(ended)
                await self._schedules.note_end(ended)
        except WrongRevision:
            return
        except BrokerError as error:
            log.warning("run_not_reaped", run=str(run), error=str(error))

    async def _ttl(self, record: RunRecord) -> timedelta:
        """After how long the record goes by itself, as its job says, whoever hosts that."""
        address = record.run_key.address
        described = await self._engine.backend.catalog.job(address)
        rules = self._engine.retention.described([] if described is None else [described])
        return record_ttl(record, rules.of(address))

    async def _ended(self, stored: Stored) -> RunRecord | None:
        record, broker = stored.record, self._engine.backend.broker
        match doubt(record, self._rules, broker.now()):
            case "owner":
                owner = record.owner
                there = await self._owner_message_there(record)
                if there and owner is not None:
                    there = not await broker.given_up(record.run_key.address, owner.sequence)
                holds = owner is not None and await broker.ask_owner(owner.host_id, record.run_key, record.claim)
                return reap_running(record, broker.now(), owner_message_there=there, owner_holds=holds)
            case "retry":
                return reap_waiting(record, broker.now(), anything_there=await self._anything_there(record))
            case "fine":
                return None

    async def _owner_message_there(self, record: RunRecord) -> bool:
        broker = self._engine.backend.broker
        if record.owner is None:
            return False
        message = await broker.message(record.owner.sequence)
        return message is not None and record.owner.is_message(message.sequence, message.stored_at)

    async def _anything_there(self, record: RunRecord) -> bool:
        broker, run = self._engine.backend.broker, record.run_key
        if await self._owner_message_there(record):
            return True  # Its redelivery publishes the retry; a tick's message isn't on the run's own subject.
        return await anything_there(broker, names.run_places(broker.project, run))
