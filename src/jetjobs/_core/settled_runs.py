"""What a schedule learns from the records of its runs: which were seen, which ended, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from jetjobs._core.models import LOST, RunRecord, RunStatus
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.texts import cut

_FAILURES: Final = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT})
_LONGEST_ERROR: Final = 500


def settle_runs(schedule: ScheduleRecord, runs: Mapping[str, RunRecord | None]) -> ScheduleRecord:
    """The schedule after a look at its live runs, by run id; `None` is a record that isn't there.

    Not there and never seen: its trigger is on its way. Not there though it was seen: somebody removed it, and it
    can't end any more.
    """
    if not runs:
        return schedule
    for occurrence in schedule.live:
        run_id = schedule.run_id(occurrence)
        record = runs.get(run_id)
        if record is not None:
            schedule = run_ended(schedule, record) if record.status.is_terminal else run_started(schedule, record)
        elif run_id in runs and occurrence in schedule.active:
            schedule = replace(schedule, active=_without(schedule.active, occurrence))
    return schedule


def run_started(schedule: ScheduleRecord, record: RunRecord) -> ScheduleRecord:
    """The schedule once a run's record was seen; itself when that is known, or the run isn't one of its own."""
    occurrence = _occurrence(schedule, record.run_id)
    if occurrence is None or occurrence not in schedule.open:
        return schedule
    active = tuple(sorted((*schedule.active, occurrence)))
    return replace(schedule, open=_without(schedule.open, occurrence), active=active)


def run_ended(schedule: ScheduleRecord, record: RunRecord) -> ScheduleRecord:
    """The schedule after the end of one of its runs; itself when that is known, or the run isn't one of its own.

    The host writes it between the run's record and the ack. A decider does it for a host that died there.
    """
    occurrence = _occurrence(schedule, record.run_id)
    if occurrence is None:
        return schedule
    failed = record.status in _FAILURES
    counters = schedule.counters
    return replace(
        schedule,
        active=_without(schedule.active, occurrence),
        open=_without(schedule.open, occurrence),
        last_ended_at=_later(schedule.last_ended_at, _went_until(record)),
        counters=replace(counters, failures=counters.failures + 1) if failed else counters,
        last_error=cut(str(record.error), _LONGEST_ERROR) if failed and record.error else schedule.last_error,
    )


def going_until(schedule: ScheduleRecord, runs: Mapping[str, RunRecord | None]) -> datetime | None:
    """Up to when a run of the schedule is known to have been going."""
    until = schedule.last_ended_at
    for occurrence in schedule.active:
        record = runs.get(schedule.run_id(occurrence))
        if record is not None:
            until = _later(until, record.heartbeat_at)
    return until


def _went_until(record: RunRecord) -> datetime | None:
    """When a run stopped going: a lost one with its last heartbeat, not when that was found out."""
    if record.error is not None and record.error.type == LOST:
        return record.heartbeat_at or record.started_at
    return record.finished_at if record.started_at is not None else None


def _occurrence(schedule: ScheduleRecord, run_id: str) -> datetime | None:
    return next((at for at in schedule.live if schedule.run_id(at) == run_id), None)


def _without(occurrences: tuple[datetime, ...], gone: datetime) -> tuple[datetime, ...]:
    return tuple(at for at in occurrences if at != gone)


def _later(one: datetime | None, other: datetime | None) -> datetime | None:
    return max(filter(None, (one, other)), default=None)
