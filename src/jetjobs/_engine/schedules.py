"""What happens to schedules on this host: the loop around the core's decision, and what follows from it.

::

    read the record ─▶ read the live runs ─▶ decide ─▶ records of stretches ─▶ the schedule, under its revision
          ▲                                                                       │              │
          └────────────── somebody else wrote, or there is more ──────────────────┘              ▼
                                                                               triggers of what is open (expected 0)

Whoever gets the write through has decided; the others read again and find it done. A crash behind any of the
arrows is repaired by the next one who comes by: the ids of stretches are derived, an occurrence in `open` without a
record gets its trigger, one in `active` whose run has ended is taken out.

The message in the stream follows from the record alone, and is looked at in this order: message, record, then what
to do. A record that was written meanwhile is seen, and the whole begins again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal
from zoneinfo import ZoneInfoNotFoundError

from jetjobs._core import names
from jetjobs._core.declared import Keep, Publish, Purge, mend
from jetjobs._core.intervals import anchor_of
from jetjobs._core.models import RunStatus
from jetjobs._core.occurrences import Decision, DecisionRules, decide
from jetjobs._core.retention import record_ttl
from jetjobs._core.schedule_messages import start_message
from jetjobs._core.schedule_record import ScheduleState
from jetjobs._core.schedules import TOMBSTONE_FOR, anchored
from jetjobs._core.settled_runs import run_ended
from jetjobs._core.starting import run_key, starts_of, stretch_record
from jetjobs._log import get_logger
from jetjobs._ports import StoredSchedule
from jetjobs.errors import (
    AnswerUnknown,
    BrokerError,
    BrokerUnavailable,
    PayloadInvalidError,
    ScheduleError,
    WrongRevision,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from datetime import datetime, timedelta

    from jetjobs._core.messages import Outgoing
    from jetjobs._core.models import RunKey, RunRecord
    from jetjobs._core.occurrences import Tick
    from jetjobs._core.schedule_record import ScheduleRecord, Stretch
    from jetjobs._core.starting import Start
    from jetjobs._engine.engine import Engine
    from jetjobs._ports import Stored

log = get_logger("jetjobs.engine")

UNREADABLE: Final = (ScheduleError, ZoneInfoNotFoundError, PayloadInvalidError)
"""A schedule that this machine can't judge: written by a newer release, or in a zone that isn't known here."""

_AGAIN: Final = (WrongRevision, AnswerUnknown)  # read: the write may stand, or another one does
_SHORTEST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0
_STORING: Final = 100  # triggers on their way at once


class Schedules:
    """Decides, starts and mends schedules of whatever job. Holds nothing but its host's ports."""

    __slots__ = ("_engine", "rules")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        # A trigger must still be able to wait for a slot and run within what the stream keeps.
        self.rules = DecisionRules(max_age=engine.settings.max_age)

    async def decide(
        self, schedule_id: str, *, tick: Tick | None = None, now: datetime | None = None
    ) -> ScheduleRecord | None:
        """The schedule with everything due decided and written; `None` when there is no record.

        Triggers are the caller's: see `start_open`.
        """
        store = self._engine.backend.schedules
        while True:
            stored = await store.get(schedule_id)
            if stored is None:
                return None
            at = self._engine.backend.broker.now()
            runs = await self.runs_of(stored.schedule)
            decision = decide(
                stored.schedule, max(at, now) if now is not None else at, runs=runs, tick=tick, rules=self.rules
            )
            written = await self.write(stored, decision)
            if written is not None and not decision.more:
                return written.schedule

    async def runs_of(self, schedule: ScheduleRecord) -> dict[str, RunRecord | None]:
        """What the leader has of those live runs that may have a record, by run id."""
        runs = self._engine.backend.runs
        live = [*schedule.active, *(start.occurrence for start in starts_of(schedule))]
        keys = [run_key(schedule, occurrence) for occurrence in live]
        found = await asyncio.gather(*(runs.get(key) for key in keys))
        return {
            key.run_id: stored.record if stored is not None else None for key, stored in zip(keys, found, strict=True)
        }

    async def write(self, stored: StoredSchedule | None, decision: Decision) -> StoredSchedule | None:
        """Write a decision about the schedule read; `None` when it must be read and decided again."""
        engine, schedule = self._engine, decision.schedule
        shorter = await self._record_all(decision, counted=False)
        if stored is not None and schedule == stored.schedule:
            return stored
        ttl = TOMBSTONE_FOR if schedule.state is ScheduleState.DELETED else None
        try:
            if stored is None:
                revision = await engine.backend.schedules.create(schedule)
            else:
                revision = await engine.backend.schedules.update(schedule, stored.revision, ttl=ttl)
        except WrongRevision:
            await self._put_back(shorter)
            return None
        except AnswerUnknown:
            return None
        await self._record_all(decision, counted=True)
        return StoredSchedule(schedule, revision)

    async def _record_all(self, decision: Decision, *, counted: bool) -> list[Stored]:
        """Records of the stretches, before the decision counts, and as it counted them after it does.

        Returns those that others had written and that were overwritten, each with the revision it has now.
        """
        schedule = decision.schedule
        written = [await self._record(schedule, RunStatus.MISSED, each, counted=counted) for each in decision.missed]
        written += [await self._record(schedule, RunStatus.SKIPPED, each, counted=counted) for each in decision.skipped]
        return [each for each in written if each is not None]

    async def _put_back(self, overwritten: list[Stored]) -> None:
        """What others had written, once it is clear that the decision of one of them counts and this one doesn't.

        Whoever decided may have looked at its record before this one overwrote it, and would not look again.
        """
        for each in overwritten:
            ttl = self._ttl(each.record)
            with suppress(*_AGAIN):  # it has been written again since: by one who knew
                await self._engine.backend.runs.update(each.record, each.revision, ttl=ttl)

    async def _record(
        self,
        schedule: ScheduleRecord,
        status: Literal[RunStatus.MISSED, RunStatus.SKIPPED],
        stretch: Stretch,
        *,
        counted: bool,
    ) -> Stored | None:
        """One record for a stretch. Before a decision counts, the longer one stays: it may be the one that will."""
        engine = self._engine
        record = stretch_record(schedule, status, stretch, engine.backend.broker.now())
        ttl = self._ttl(record)
        while True:
            found = await engine.backend.runs.get(record.run_key)
            known = _count(found.record) if found is not None else 0
            if known == stretch.count or (known > stretch.count and not counted):
                return None
            try:
                if found is None:
                    await engine.backend.runs.create(record, ttl=ttl)
                    _tell(status, schedule, stretch)
                    return None
                return found._replace(revision=await engine.backend.runs.update(record, found.revision, ttl=ttl))
            except _AGAIN:
                continue

    def _ttl(self, record: RunRecord) -> timedelta:
        return record_ttl(record, self._engine.retention.of(record.run_key.address))

    # ------------------------------------------------------------------------------------------- triggers

    async def start_open(self, schedule: ScheduleRecord, *, but: datetime | None = None) -> None:
        """Store the triggers of what is open, except that of the occurrence whose tick is in hand."""
        starts = [start for start in starts_of(schedule) if start.occurrence != but]
        for first in range(0, len(starts), _STORING):
            part = starts[first : first + _STORING]
            await asyncio.gather(*(self._start(schedule, start) for start in part))

    async def _start(self, schedule: ScheduleRecord, start: Start) -> None:
        broker = self._engine.backend.broker
        message = start_message(broker.project, schedule, start, broker.now())
        while True:
            try:
                await broker.store(message, expected=0)
            except WrongRevision:
                return  # it is there
            except AnswerUnknown:
                continue
            return

    # ------------------------------------------------------------------------------------------- ends

    async def note_end(self, record: RunRecord) -> None:
        """Tell a run's schedule that the run has ended, and start what waited for that.

        Returns when that is written. A host that dies before leaves it to the next decider.
        """
        if record.schedule_id is None or not record.status.is_terminal:
            return
        pause = _SHORTEST_PAUSE
        while True:
            try:
                if await self._note_end(record, record.schedule_id):
                    return
                continue
            except UNREADABLE as error:
                log.warning("schedule_unreadable", schedule=record.schedule_id, error=str(error))
                return  # a host that can read it takes the run out
            except BrokerError as error:
                if pause == _SHORTEST_PAUSE:
                    log.warning("schedule_not_told", run=str(record.run_key), error=str(error))
            await self._engine.clock.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _note_end(self, record: RunRecord, schedule_id: str) -> bool:
        stored = await self._engine.backend.schedules.get(schedule_id)
        if stored is None:
            return True
        after = run_ended(stored.schedule, record)
        written = await self.write(stored, Decision(after))
        if written is None:
            return False
        if after.overlap == "queue" and after.open:
            await self.start_open(after)
        return True

    # ------------------------------------------------------------------------------------------- the stream's message

    async def mend(self, schedule: ScheduleRecord) -> ScheduleRecord | None:
        """Bring the stream's message in line with the record; the record as it is then, `None` if it has gone."""
        broker, store = self._engine.backend.broker, self._engine.backend.schedules
        subject = names.schedule_subject(broker.project, schedule.address, schedule.schedule_id)
        while True:
            message = await broker.last(subject)
            stored = await store.get(schedule.schedule_id)
            if stored is None:
                return None
            match mend(broker.project, stored.schedule, message):
                case Keep():
                    return await self._anchor(stored, message.stored_at if message is not None else None)
                case Purge(sequence):
                    await broker.purge(subject, up_to=sequence)
                    log.info("schedule_stopped", schedule=schedule.name, state=stored.schedule.state.value)
                case Publish(wanted, expected):
                    await self._publish(wanted, expected, stored.schedule)

    async def _publish(self, wanted: Outgoing, expected: int, schedule: ScheduleRecord) -> None:
        try:
            await self._engine.backend.broker.store(wanted, expected=expected)
        except _AGAIN:
            return  # the next look shows what stands
        except BrokerUnavailable:
            raise
        except BrokerError as refused:
            raise ScheduleError(f"the broker refuses schedule {schedule.name}: {refused}{_hint(schedule)}") from refused
        log.info("schedule_published", schedule=schedule.name, changed=expected > 0)

    async def _anchor(self, stored: StoredSchedule, published_at: datetime | None) -> ScheduleRecord:
        """The schedule on the rhythm of its message, which began when the broker stored it."""
        while published_at is not None and stored.schedule.interval is not None:
            schedule = stored.schedule
            after = anchored(schedule, published_at)
            if after is schedule and anchor_of(published_at) > schedule.anchor:
                decided = await self.decide(schedule.schedule_id)  # the old rhythm's last occurrences come first
                if decided is None or decided.anchor >= anchor_of(published_at):
                    return decided or schedule
            elif await self.write(stored, Decision(after)) is not None:
                return after
            again = await self._engine.backend.schedules.get(schedule.schedule_id)
            if again is None or (again.schedule == schedule and after is schedule):
                return schedule
            stored = again
        return stored.schedule

    async def drop_orphan(self, job: RunKey) -> None:
        """Remove the message of a schedule that has no record, `job.run_id` being the schedule's id."""
        broker = self._engine.backend.broker
        subject = names.schedule_subject(broker.project, job.address, job.run_id)
        message = await broker.last(subject)
        if message is not None and await self._engine.backend.schedules.get(job.run_id) is None:
            await broker.purge(subject, up_to=message.sequence)
            log.warning("schedule_without_record_removed", subject=subject)

    async def live_runs(self) -> Collection[str]:
        """Ids of all runs that schedules wait for: their records must stay."""
        return set(_live_ids(stored.schedule for stored in await self._engine.backend.schedules.all()))


def _live_ids(schedules: Iterable[ScheduleRecord]) -> Iterable[str]:
    for schedule in schedules:
        for occurrence in schedule.live:
            yield schedule.run_id(occurrence)


def _hint(schedule: ScheduleRecord) -> str:
    if schedule.timezone == "UTC":
        return ""
    return (
        f'. Does the broker know the zone "{schedule.timezone}"? nats-server reads the time zone database of its own '
        'machine, not this one\'s: install tzdata there and restart it, or write timezone="UTC"'
    )


def _tell(status: RunStatus, schedule: ScheduleRecord, stretch: Stretch) -> None:
    if status is RunStatus.MISSED:
        log.warning("occurrences_missed", schedule=schedule.name, occurrences=stretch.count)
    else:
        log.info("occurrences_skipped", schedule=schedule.name, occurrences=stretch.count)


def _count(record: RunRecord) -> int:
    count = record.extra.get("occurrences", 1)
    return count if isinstance(count, int) else 1
