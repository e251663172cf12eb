"""Schedules to start a test from, and what each must have come to."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from jetjobs._core.declared import Declarer, declared_schedule
from jetjobs._core.durations import duration
from jetjobs._core.models import JobAddress, RunError, RunRecord, RunStatus
from jetjobs._core.occurrences import Decision, Tick
from jetjobs._core.schedule_record import ScheduleRecord, Stretch
from jetjobs._core.timetables import next_occurrence, timetable_of
from jetjobs._core.triggers import Cron, Every

NOON: Final = datetime(2030, 5, 1, 12, tzinfo=UTC)
MINUTE: Final = timedelta(minutes=1)
JOB: Final = JobAddress("billing.invoices", "send")


def at(seconds: float) -> datetime:
    """So many seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def every(interval: str = "10s", **changes: Any) -> ScheduleRecord:
    """A schedule that began at noon; its grace is an hour."""
    return _begun(ScheduleRecord("s", "b.j/every", "b", "j", "every", interval, duration(interval, "")), changes)


def cron(line: str = "*/10 * * * * *", zone: str = "UTC", **changes: Any) -> ScheduleRecord:
    """The same by a cron line."""
    return _begun(ScheduleRecord("s", "b.j/cron", "b", "j", "cron", line, timezone=zone), changes)


def _begun(plain: ScheduleRecord, changes: dict[str, Any]) -> ScheduleRecord:
    begun = {"cursor": NOON, "anchor": NOON, "state_at": NOON, "created_at": NOON, "misfire_grace": timedelta(hours=1)}
    made = replace(plain, **begun | changes)
    upcoming = next_occurrence(made, timetable_of(made)) if made.is_active else None
    return replace(made, next_run_at=upcoming)


def host(name: str = "h1", version: str | None = None, *jobs: JobAddress) -> Declarer:
    """Who declares the schedules of these jobs, or of the one."""
    return Declarer(name, version, frozenset(jobs or (JOB,)), frozenset({JOB.module}))


def declared(trigger: Cron | Every | None = None, who: Declarer | None = None, now: datetime = NOON) -> ScheduleRecord:
    """The schedule of a trigger in the code of a host."""
    return declared_schedule(trigger or Every("60s"), JOB, who or host(), now)


def tick(schedule: ScheduleRecord, occurrence: datetime, **changes: Any) -> Tick:
    """A tick of the schedule as it is."""
    return replace(Tick(occurrence, schedule.line, schedule.timezone, schedule.revision), **changes)


def run(
    schedule: ScheduleRecord, occurrence: datetime, status: RunStatus = RunStatus.RUNNING, **changes: Any
) -> RunRecord:
    """The record of an occurrence's run."""
    plain = RunRecord(
        schedule.run_id(occurrence), schedule.module, schedule.job, status, started_at=occurrence, schedule_id="s"
    )
    return replace(plain, **changes)


def runs(*records: RunRecord) -> dict[str, RunRecord | None]:
    """Records by run id."""
    return {record.run_id: record for record in records}


def ended(
    schedule: ScheduleRecord, occurrence: datetime, when: datetime, status: RunStatus = RunStatus.SUCCEEDED
) -> RunRecord:
    """The record of a run that ended."""
    error = RunError("Boom", "x") if status is RunStatus.FAILED else None
    return run(schedule, occurrence, status, finished_at=when, heartbeat_at=when, error=error)


def counts(decision: Decision) -> tuple[int, int, int, int]:
    """Runs, missed, coalesced, skipped so far."""
    found = decision.schedule.counters
    return found.runs, found.missed, found.coalesced, found.overlap_skips


def stretch(first: float, last: float, count: int) -> Stretch:
    """A stretch from and to so many seconds after noon."""
    return Stretch(at(first), at(last), count)
