"""How an attempt's end becomes a record and the message goes: saved, then published, then acked.

A crash between save and ack redelivers a finished run, and the record retires it; the other order could lose the
outcome. A save whose answer is lost is read back and recognised by its claim; a store that is away is waited for,
with the slot held and the delivery renewed, because the handler's work must not be done again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from jetjobs._core import headers, names
from jetjobs._core.bodies import INLINE_LIMIT, Body
from jetjobs._core.completion import CompletionRules, Ending, Raised, Returned, settle
from jetjobs._core.messages import Trigger
from jetjobs._core.models import RunStatus
from jetjobs._core.retention import record_ttl
from jetjobs._core.texts import run_error
from jetjobs._log import get_logger
from jetjobs.errors import AnswerUnknown, BrokerError, PayloadTooLargeError, WrongRevision

if TYPE_CHECKING:
    from datetime import timedelta

    from jetjobs._core.models import RunKey, RunRecord
    from jetjobs._core.policy import JobPolicy
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.held import HeldRun
    from jetjobs._ports import Stored

log = get_logger("jetjobs.engine")

REPEAT_AT_MOST_EVERY = 1.0
TOLD_FOR = 2.0


class Settling:
    """Settles the attempts of one job."""

    __slots__ = ("_engine", "_retention", "_rules")

    def __init__(self, engine: Engine, policy: JobPolicy) -> None:
        self._engine = engine
        self._rules = CompletionRules(engine.host_id, policy)
        self._retention = policy.retention or engine.settings.retention

    def ttl(self, record: RunRecord) -> timedelta:
        """How long a terminal record of this job stays."""
        return record_ttl(record, self._retention)

    def decide(self, held: HeldRun, ending: Ending) -> RunRecord:
        """What the run becomes by this ending, not yet saved."""
        record = held.record
        if record is None:
            msg = "a run is settled only after its claim"
            raise AssertionError(msg)
        engine = self._engine
        rules = self._rules
        if not isinstance(ending, Returned):
            rules = replace(rules, roll=engine.roll())
        settled = settle(record, ending, rules, engine.backend.broker.now())
        return settled.but(**held.said()) if held.has_said else settled

    async def save(self, held: HeldRun, ending: Ending) -> RunRecord | None:
        """The saved record, or `None` when the run turned out not to be this host's any more.

        Returns only when one of the two is certain.
        """
        if isinstance(ending, Returned) and ending.result is not None and len(ending.result.data) > INLINE_LIMIT:
            ending = await self._outsource(held, ending, ending.result.data)
        waited = 0.0
        while True:
            wanted = self.decide(held, ending)
            ttl = self.ttl(wanted) if wanted.status.is_terminal else None
            try:
                held.revision = await self._engine.backend.runs.update(wanted, held.revision, ttl=ttl)
            except (WrongRevision, AnswerUnknown):
                # A conflict can be with an earlier try of this very write, whose answer was lost and that came late.
                if not await self._still_mine(held, wanted):
                    return None
                if held.record is not None and held.record.status is wanted.status:
                    return held.record
            except BrokerError as error:
                waited = await self._pause("run_not_saved", held.key, error, waited)
            else:
                held.record = wanted
                return wanted

    async def _still_mine(self, held: HeldRun, written: RunRecord) -> bool:
        """Read the record into `held`; False when it is another's.

        `written` is what may have been stored although its answer was lost: finding it counts as mine.
        """
        stored = await self.read_until_known(held.key)
        if stored is None or stored.record.claim != held.claim:
            return False
        record = stored.record
        own = record.status is written.status and record.turn == written.turn
        if not own and record.status is not RunStatus.RUNNING:
            return False
        held.record, held.revision = record, stored.revision
        return True

    async def _outsource(self, held: HeldRun, ending: Returned, data: bytes) -> Ending:
        """The ending with its large result put into the payload store; a failure when it is too large for that."""
        waited = 0.0
        while True:
            try:
                name = held.claim or "result"
                check = await self._engine.backend.payloads.put(held.key.run_id, "out", name, data)
            except PayloadTooLargeError as error:
                if ending.late:
                    return Returned(late=True)
                return Raised(run_error(type(error).__name__, f"result not storable: {error}"), again=False)
            except BrokerError as error:
                waited = await self._pause("result_not_stored", held.key, error, waited)
            else:
                return replace(ending, result=Body(claim=check))

    async def read_until_known(self, key: RunKey) -> Stored | None:
        """The record as the leader has it; repeats until it can be read."""
        waited = 0.0
        while True:
            try:
                return await self._engine.backend.runs.get(key)
            except BrokerError as error:
                waited = await self._pause("record_not_read", key, error, waited)

    async def publish_retry(self, record: RunRecord, trigger: Trigger) -> None:
        """Store the `@at` message of the record's turn, unless it is there, has fired, or is no longer wanted."""
        engine = self._engine
        broker = engine.backend.broker
        message = headers.retry_message(
            broker.project, record, payload_schema=trigger.payload_schema, traceparent=trigger.traceparent
        )
        run_subject = names.trigger_subject(broker.project, record.run_key)
        tick = trigger.subject_kind == "tick"
        expected: int = 0 if tick else trigger.sequence
        waited = 0.0
        while True:
            try:
                await broker.store(message, expected=expected, expected_on=None if tick else run_subject)
            except WrongRevision:
                stray = await self._stray(record, run_subject)
                if tick or stray is None:
                    return
                expected = stray
            except (BrokerError, PayloadTooLargeError) as error:  # too large by a limit that somebody has set since
                waited = await self._pause("retry_not_stored", record.run_key, error, waited)
            else:
                return

    async def _stray(self, record: RunRecord, run_subject: str) -> int | None:
        """The sequence of a stray copy that followed the owner's message, or `None` when the retry is done."""
        broker = self._engine.backend.broker
        waited = 0.0
        while True:
            try:
                stored = await self._engine.backend.runs.get(record.run_key)
                if (
                    stored is None
                    or stored.record.status is not RunStatus.RETRYING
                    or stored.record.turn != record.turn
                ):
                    return None
                last = await broker.last(run_subject)
            except BrokerError as error:
                waited = await self._pause("retry_not_stored", record.run_key, error, waited)
            else:
                found = headers.read_trigger(broker.project, last) if last is not None else None
                if last is None or (isinstance(found, Trigger) and found.turn >= record.turn):
                    return None
                return last.sequence

    async def _pause(self, event: str, key: RunKey, error: Exception, waited: float) -> float:
        """Wait before a repetition, and say so at a volume that grows with the waiting."""
        limit = self._engine.settings.completion_error_after.total_seconds()
        pause = min(0.05 if waited == 0 else waited, REPEAT_AT_MOST_EVERY)
        if not isinstance(error, WrongRevision):
            # Health tells it until a while after the last repetition: nobody need take it back.
            until = self._engine.clock.monotonic() + pause + TOLD_FOR
            self._engine.not_stored = until, f"{event.replace('_', ' ')}: {error}"
        if waited < limit <= waited + pause:
            log.error(event, run=str(key), error=str(error), waited_s=round(waited))
        elif waited == 0:
            log.warning(event, run=str(key), error=str(error))
        await self._engine.clock.sleep(pause)
        return waited + pause
