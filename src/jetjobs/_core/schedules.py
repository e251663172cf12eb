"""Edits of a schedule: pause, resume, disable, delete, update. Each is one write; history and live runs stay.

Pause, disable and delete only say since when: write that first, remove the message from the stream second. What fell
due until then is decided by whoever comes by. Resume and update decide first, so that nothing of the old time is
judged by the new rules; when their decision says `more`, the edit isn't in it yet: write it and call again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from jetjobs._core.intervals import IntervalTimetable, anchor_of
from jetjobs._core.models import RunRecord
from jetjobs._core.occurrences import PLAIN, Decision, DecisionRules, decide
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._core.timetables import next_occurrence, timetable_of

TOMBSTONE_FOR: Final = timedelta(days=8)
"""How long a deleted schedule's record stays: longer than a tick that waits in the stream may still start."""

IN_MESSAGE: Final = ("module", "job", "kind", "line", "interval", "timezone", "payload_body")
"""What the message in the stream says: a change of these needs another one, and begins a new rhythm."""

_Runs = Mapping[str, RunRecord | None]


def pause(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """The schedule, firing no more after `now` until it is resumed; itself unless it was ACTIVE or DISABLED."""
    stops = schedule.state in {ScheduleState.ACTIVE, ScheduleState.DISABLED}
    return _stopped(schedule, ScheduleState.PAUSED, now) if stops else schedule


def disable(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """The schedule of a job nobody hosts any more; itself unless it was ACTIVE."""
    return _stopped(schedule, ScheduleState.DISABLED, now) if schedule.is_active else schedule


def delete(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """The schedule's tombstone, to be kept for `TOMBSTONE_FOR`; itself when it is one."""
    gone = schedule.state is ScheduleState.DELETED
    return schedule if gone else _stopped(schedule, ScheduleState.DELETED, now)


def resume(
    schedule: ScheduleRecord, now: datetime, *, runs: _Runs | None = None, rules: DecisionRules = PLAIN
) -> Decision:
    """The schedule, ACTIVE from `now` on: what fell due before it was stopped is decided, what did since falls away."""
    decision = decide(schedule, now, runs=runs, rules=rules)
    if schedule.is_active or decision.more:
        return decision
    active = replace(decision.schedule, state=ScheduleState.ACTIVE, state_at=now)
    return replace(decision, schedule=_begun(active, now))


def update(
    schedule: ScheduleRecord,
    changes: Mapping[str, Any],
    now: datetime,
    *,
    runs: _Runs | None = None,
    rules: DecisionRules = PLAIN,
) -> Decision:
    """The schedule with some fields of its definition changed, for occurrences after `now`.

    Only what the stream's message says (`IN_MESSAGE`) begins a new rhythm and another revision; a new grace, policy or
    end leaves the message, and so the rhythm, as it is. A COMPLETED schedule goes on if it has occurrences again.
    """
    decision = decide(schedule, now, runs=runs, rules=rules)
    if decision.more:
        return decision
    before = decision.schedule
    after = replace(before, **changes)
    if after == before:
        return decision
    anew = any(getattr(after, name) != getattr(before, name) for name in IN_MESSAGE)
    after = replace(after, updated_at=now, revision=before.revision + anew)
    if schedule.state is not ScheduleState.COMPLETED:
        after = replace(after, state=schedule.state, state_at=schedule.state_at)
    revived = after.state is ScheduleState.COMPLETED
    if revived:
        after = replace(after, state=ScheduleState.ACTIVE, state_at=now)
    # Not only a new rhythm moves the cursor: a later end must not make occurrences due that are past.
    after = replace(after, cursor=max(after.cursor, now))
    return replace(decision, schedule=_begun(after, now) if anew or revived else _continued(after, now))


def anchored(schedule: ScheduleRecord, stored_at: datetime) -> ScheduleRecord:
    """The schedule on the rhythm that its message, as the broker stored it, began.

    Itself when it knows a later one, or when something of the old rhythm is due before: decide that first.
    """
    anchor = anchor_of(stored_at)
    old = timetable_of(schedule)
    if not isinstance(old, IntervalTimetable) or anchor <= schedule.anchor or old.between(schedule.cursor, anchor):
        return schedule
    return _continued(replace(schedule, anchor=anchor, cursor=max(schedule.cursor, anchor)), anchor)


def _stopped(schedule: ScheduleRecord, state: ScheduleState, now: datetime) -> ScheduleRecord:
    # One that was stopped before stays stopped since then: what it would have fired meanwhile fell away.
    since = now if schedule.is_active else schedule.state_at
    return replace(schedule, state=state, state_at=since, next_run_at=None)


def _begun(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """The schedule at the start of a rhythm, as the broker begins one: after the rounded second."""
    anchor = anchor_of(now)
    cursor = max(schedule.cursor, now, anchor)
    return _continued(replace(schedule, cursor=cursor, last_occurrence=None, anchor=anchor), now)


def _continued(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    """The schedule with its next occurrence computed anew; COMPLETED when there is none."""
    upcoming = next_occurrence(schedule, timetable_of(schedule)) if schedule.is_active else None
    if schedule.is_active and upcoming is None:
        return replace(schedule, state=ScheduleState.COMPLETED, state_at=now, next_run_at=None)
    return replace(schedule, next_run_at=upcoming)
