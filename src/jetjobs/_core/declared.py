"""Schedules in code against schedules in the store: who may make, change and remove what.

A host declares its schedules at each start, and several releases may run side by side. So:

* What is missing is made by anybody.
* A change, and the end of a tombstone, need a release not older than the one recorded.
* A host without a release changes only what another host without one declared that lives no more. One that has a
  release may change what has none.
* A removal is a change: it needs the same, and only concerns jobs that this host declares, or jobs of its modules
  that no live host has.
* PAUSED stays PAUSED whatever is declared. DISABLED becomes ACTIVE: its job is hosted again.

The message in the stream follows from the record alone, whoever looks: `mend` says what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.durations import format_duration
from jetjobs._core.intervals import anchor_of
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import JobAddress, RunRecord
from jetjobs._core.occurrences import PLAIN, Decision, DecisionRules
from jetjobs._core.rollout import Sign, is_newer, may_change
from jetjobs._core.schedule_messages import same_schedule, schedule_message
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._core.schedules import resume, update
from jetjobs._core.timetables import next_occurrence, timetable_of
from jetjobs._core.triggers import Cron, Every

DEFINED: Final = (
    "module",
    "job",
    "name",
    "kind",
    "line",
    "interval",
    "timezone",
    "payload_body",
    "payload_schema",
    "start_at",
    "end_at",
    "misfire_grace",
    "coalesce",
    "overlap",
    "max_instances",
    "jitter",
)
"""The fields a declaration sets."""


@dataclass(frozen=True, slots=True)
class Declarer:
    """The host that declares: what it serves, and its release."""

    host_id: str
    version: str | None
    jobs: frozenset[JobAddress]
    modules: frozenset[str]


@dataclass(frozen=True, slots=True)
class Ensured:
    """What to write for a declared schedule: a decision, or nothing; `warning` when another host's word stands."""

    decision: Decision | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Publish:
    """Store the schedule's message; `expected` is its subject's last sequence, 0 when there is none."""

    message: Outgoing
    expected: int


@dataclass(frozen=True, slots=True)
class Purge:
    """Remove the schedule's message, up to this sequence."""

    sequence: int


@dataclass(frozen=True, slots=True)
class Keep:
    """The stream is as it should be."""


Mend = Publish | Purge | Keep
_ASLEEP: Final = frozenset({ScheduleState.DISABLED, ScheduleState.DELETED})


def declared_schedule(
    trigger: Cron | Every, address: JobAddress, host: Declarer, now: datetime, *, payload_schema: str | None = None
) -> ScheduleRecord:
    """The record of a schedule that code declares, as if it were new; `payload_schema` is of the job's payload."""
    interval = trigger.interval if isinstance(trigger, Every) else None
    made = ScheduleRecord(
        schedule_id=trigger.schedule_id(address),
        name=f"{address}/{trigger.name}",
        module=address.module,
        job=address.job,
        kind="every" if isinstance(trigger, Every) else "cron",
        line=format_duration(trigger.interval) if isinstance(trigger, Every) else trigger.expression,
        interval=interval,
        timezone="UTC" if isinstance(trigger, Every) else trigger.timezone,
        payload_body=None if trigger.payload is None else Body(codec.encode(trigger.payload, path="payload")),
        payload_schema=payload_schema,
        start_at=trigger.start_at,
        end_at=trigger.end_at,
        misfire_grace=trigger.misfire_grace,
        coalesce=trigger.coalesce,
        overlap=trigger.overlap,
        max_instances=trigger.max_instances,
        jitter=trigger.jitter,
        state_at=now,
        anchor=anchor_of(now),
        cursor=max(now, anchor_of(now)),
        created_at=now,
        updated_at=now,
        version=host.version,
        declared_by=host.host_id,
    )
    upcoming = next_occurrence(made, timetable_of(made))
    if upcoming is None:
        return replace(made, state=ScheduleState.COMPLETED)
    return replace(made, next_run_at=upcoming)


def ensure(
    wanted: ScheduleRecord,
    found: ScheduleRecord | None,
    now: datetime,
    *,
    declarer_lives: bool,
    runs: Mapping[str, RunRecord | None] | None = None,
    rules: DecisionRules = PLAIN,
) -> Ensured:
    """What a starting host writes for one of its schedules; nothing when the record says it already.

    `declarer_lives` tells whether another host than this one, the one that `found` names, is alive.
    """
    if found is None:
        return Ensured(Decision(wanted))
    gone = found.state is ScheduleState.DELETED
    changes = {name: getattr(wanted, name) for name in DEFINED if getattr(wanted, name) != getattr(found, name)}
    if not changes and not gone:
        return _stand_by(wanted, found, now, runs=runs, rules=rules)
    if not _may_change(wanted, found, declarer_lives=declarer_lives):
        return Ensured(warning=_why_not(wanted, found, sorted(changes)))
    changes |= {"version": wanted.version, "declared_by": wanted.declared_by}
    if found.state in _ASLEEP:
        woken = resume(found, now, runs=runs, rules=rules)
        return Ensured(woken if woken.more else _with(woken, update(woken.schedule, changes, now, rules=rules)))
    return Ensured(update(found, changes, now, runs=runs, rules=rules))


def may_remove(found: ScheduleRecord, host: Declarer, *, declarer_lives: bool, job_lives: bool) -> bool:
    """Whether a schedule that this host doesn't declare is one that code removed; then `schedules.delete` it.

    `job_lives` tells whether some live host has the job.
    """
    if found.origin != "code" or found.state is ScheduleState.DELETED:
        return False
    mine = found.address in host.jobs or (found.module in host.modules and not job_lives)
    sign = replace(found, version=host.version, declared_by=host.host_id)
    return mine and _may_change(sign, found, declarer_lives=declarer_lives)


def mend(
    project: str, schedule: ScheduleRecord, stored: Message | None, *, expires_in: timedelta | None = None
) -> Mend:
    """What the stream needs so that the broker fires the schedule as its record says.

    A message that does so already is left alone: publishing it again would move the ticks of an interval.
    """
    if not schedule.is_active:
        return Keep() if stored is None else Purge(stored.sequence)
    wanted = schedule_message(project, schedule, expires_in=expires_in)
    if stored is None:
        return Publish(wanted, 0)
    return Keep() if same_schedule(stored, wanted) else Publish(wanted, stored.sequence)


def _may_change(wanted: ScheduleRecord, found: ScheduleRecord, *, declarer_lives: bool) -> bool:
    mine, theirs = Sign(wanted.version, wanted.declared_by), Sign(found.version, found.declared_by)
    return may_change(mine, theirs, theirs_lives=declarer_lives)


def _stand_by(
    wanted: ScheduleRecord,
    found: ScheduleRecord,
    now: datetime,
    *,
    runs: Mapping[str, RunRecord | None] | None,
    rules: DecisionRules,
) -> Ensured:
    """What a host writes for a record that says what it declares: awake again, and signed by the newest release."""
    newer = is_newer(wanted.version, found.version)
    signed = replace(found, version=wanted.version, declared_by=wanted.declared_by) if newer else found
    if found.state in _ASLEEP:
        return Ensured(resume(signed, now, runs=runs, rules=rules))
    return Ensured(Decision(signed) if newer else None)


def _with(first: Decision, second: Decision) -> Decision:
    """Two decisions in a row as one."""
    return replace(
        second,
        started=first.started + second.started,
        missed=first.missed + second.missed,
        skipped=first.skipped + second.skipped,
        coalesced=first.coalesced + second.coalesced,
    )


def _why_not(wanted: ScheduleRecord, found: ScheduleRecord, changes: list[str]) -> str:
    what = f"differs in {', '.join(changes)}" if changes else "was removed"
    theirs = f"release {found.version}" if found.version is not None else f"host {found.declared_by}"
    mine = f"release {wanted.version} is older" if wanted.version is not None else "this host has no release"
    return f"schedule {found.name} {what}: as declared by {theirs} it stays, since {mine}; give JobHost(version=…)"
