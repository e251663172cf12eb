"""Which decided occurrences may start, when, and what a tick in hand has to do with it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from jetjobs._core.intervals import Timetable
from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._core.occurrences import Tick
from jetjobs._core.schedule_record import ScheduleRecord, Stretch
from jetjobs._core.timetables import timetable_of

TickVerdict = Literal["run", "retire", "purge"]

_MILLISECOND: Final = timedelta(milliseconds=1)
_DICE: Final = 1 << 64


@dataclass(frozen=True, slots=True)
class Start:
    """A run that a schedule asks for; `start_at` is the occurrence, or later by its jitter."""

    occurrence: datetime
    run_id: str
    start_at: datetime


def starts_of(schedule: ScheduleRecord) -> tuple[Start, ...]:
    """The runs whose triggers must be in the stream now, unless their record is there.

    Under `queue` that is the oldest one, and only when no other is going: the rest wait in the record, where
    they hold no slot and can't overtake.
    """
    waiting = schedule.open
    if schedule.overlap == "queue":
        waiting = waiting[:1] if not schedule.active else ()
    timetable = timetable_of(schedule)
    return tuple(Start(at, schedule.run_id(at), jittered(schedule, timetable, at)) for at in waiting)


def tick_verdict(schedule: ScheduleRecord, tick: Tick, now: datetime) -> TickVerdict:
    """What to do with a tick whose run has no record, once its schedule's decision is written.

    `run`: go on as a delivery of that run. `retire`: ack it; what is to start has a trigger of its own. `purge`: ack
    it and remove the schedule's message, which a schedule that isn't ACTIVE must not have.
    """
    if any(start.occurrence == tick.occurrence and start.start_at <= now for start in starts_of(schedule)):
        return "run"
    return "retire" if schedule.is_active or tick.occurrence <= schedule.state_at else "purge"


def jittered(schedule: ScheduleRecord, timetable: Timetable, occurrence: datetime) -> datetime:
    """When the run of an occurrence starts: later by a share of the jitter that every host computes alike.

    The share is evenly spread, and the run starts before the next occurrence.
    """
    if not schedule.jitter:
        return occurrence
    upcoming = timetable.next_after(occurrence)
    most = schedule.jitter if upcoming is None else min(schedule.jitter, upcoming - occurrence)
    dice = int.from_bytes(hashlib.sha256(schedule.run_id(occurrence).encode()).digest()[:8], "big")
    return occurrence + (most // _MILLISECOND * dice // _DICE) * _MILLISECOND


def stretch_record(
    schedule: ScheduleRecord, status: Literal[RunStatus.MISSED, RunStatus.SKIPPED], stretch: Stretch, now: datetime
) -> RunRecord:
    """The one record of occurrences that didn't run. Its id is that of the first one's run, with the status.

    Written before the schedule's record, with create. It may be there: of a decider that lost the race, or died before
    its decision counted. Whoever counts more occurrences overwrites it; the schedule's counters are the truth.
    """
    first, last = (at.isoformat(timespec="seconds") for at in (stretch.first, stretch.last))
    which = f"the occurrence of {first}" if stretch.count == 1 else f"{stretch.count} occurrences, {first} to {last},"
    verb = "was" if stretch.count == 1 else "were"
    return RunRecord.of(
        run_id=stretch_run_id(schedule, status, stretch),
        module=schedule.module,
        job=schedule.job,
        status=status,
        trigger=schedule.info(stretch.first),
        schedule_id=schedule.schedule_id,
        scheduled_for=stretch.first,
        created_at=now,
        finished_at=now,
        skip_reason=f"{which} {verb} {_REASONS[status]}",
        extra={"occurrences": stretch.count, "last_occurrence": stretch.last},
    )


def stretch_run_id(schedule: ScheduleRecord, status: RunStatus, stretch: Stretch) -> str:
    """Id of the record of a stretch."""
    return f"{schedule.run_id(stretch.first)}-{status.value.lower()}"


def run_key(schedule: ScheduleRecord, occurrence: datetime) -> RunKey:
    """The run of an occurrence."""
    return RunKey(schedule.module, schedule.job, schedule.run_id(occurrence))


_REASONS: Final = {
    RunStatus.MISSED: "past the misfire grace when a host could decide",
    RunStatus.SKIPPED: "due while an earlier run was going",
}
