"""What becomes of a schedule's occurrences: one pure function from record and time to record and consequences.

::

                     ┌─ fell due while an earlier run was going ─▶ SKIPPED (skip), or waits its turn (queue)
    due ─(cursor,    ├─ older than its grace ────────────────────▶ MISSED
         now]────────┤                 ┌─ chosen ────────────────▶ a run, in `open`
                     └─ in time ──▶ coalesce
                                       └─ not chosen ────────────▶ counted as coalesced

`decide` is called for a tick, by the reconciler, and before an edit. Whoever calls it writes its answer under
the revision read, in one write: cursor, open, active and counters move together, or not at all. So of any number
of deciders one wins, the others find everything decided, and an occurrence never comes to two ends. Records of
stretches are written before (their ids are derived), triggers after.

The rules, with what each prevents:

* Occurrences come from the timetable, not from counting ticks: a crashed broker repeats ticks, and loses some.
* A tick's own occurrence is always among the due ones: the broker's word counts where our search and its
  differ. Its interval grid moves when it was away; a tick off the grid stands for the grid's last instant
  before it, and the grid moves with it.
* Such a tick is dropped when it comes less than half an interval after the last occurrence, or with the
  catch-up that was decided just before it: an outage has one catch-up, not two.
* Only what fell due while an earlier run was going is judged as overlapping, and before coalescing: what waited
  behind a long run isn't an outage. It isn't late either: waiting for a run doesn't use up the grace.
* A run that was lost was going until its last heartbeat, not until somebody found out.
* `all` starts at most `pass_size` runs at once, and cron is searched for at most `search_limit` occurrences. What
  is left has a cursor before it; `more` says so, and the next call goes on. With `latest` nothing of a window
  that was cut short starts, since its latest is still to come.
* No decision twice: deciding again at the same time changes nothing, unless there was `more`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

from jetjobs._core.intervals import Grid, IntervalTimetable, Piece, Timetable
from jetjobs._core.models import RunRecord
from jetjobs._core.policy import MAX_AGE
from jetjobs._core.retry import sooner
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState, Stretch
from jetjobs._core.settled_runs import going_until, settle_runs
from jetjobs._core.timetables import next_occurrence, timetable_of, within

AHEAD: Final = timedelta(seconds=5)
"""How far past `now` a tick's occurrence may lie: the broker rounds, and clocks differ a little."""

NEAR: Final = timedelta(seconds=2)
"""How soon after a decision a tick off the grid is the broker's own catch-up for what was just decided."""


@dataclass(frozen=True, slots=True)
class DecisionRules:
    """Bounds of one decision. `max_age` is how late an occurrence may start when its schedule knows no grace."""

    pass_size: int = 100
    max_waiting: int = 1_000
    search_limit: int = 10_000
    max_age: timedelta = MAX_AGE


PLAIN: Final = DecisionRules()


@dataclass(frozen=True, slots=True)
class Tick:
    """A tick's occurrence, with the line, zone and revision that its message carries.

    `zone_differs`: by the time zone database here the broker would not have fired now, nor next when it says.
    """

    occurrence: datetime
    line: str
    timezone: str
    revision: int
    zone_differs: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """A schedule after a decision, and what to do about it.

    `missed` and `skipped` are stretches that get a record each, before the schedule is written. `started` are the
    occurrences that this decision opened. `more` asks for another decision after this one is written.
    """

    schedule: ScheduleRecord
    started: tuple[datetime, ...] = ()
    missed: tuple[Stretch, ...] = ()
    skipped: tuple[Stretch, ...] = ()
    coalesced: int = 0
    more: bool = False


@dataclass(frozen=True, slots=True)
class _Due:
    """A window of occurrences. `cut`: there are more of them before its end. `anchor`: the grid's, moved or not."""

    occurrences: Sequence[datetime]
    anchor: datetime
    end: datetime
    dropped: int = 0
    cut: bool = False


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Where each of the due occurrences went; `left` are not decided."""

    started: Sequence[datetime] = ()
    missed: Sequence[datetime] = ()
    skipped: tuple[Sequence[datetime], ...] = ()
    coalesced: int = 0
    left: Sequence[datetime] = ()


def decide(
    schedule: ScheduleRecord,
    now: datetime,
    *,
    runs: Mapping[str, RunRecord | None] | None = None,
    tick: Tick | None = None,
    rules: DecisionRules = PLAIN,
) -> Decision:
    """Everything due at `now`, in broker time, decided.

    `runs` holds what was found under the run ids of `schedule.live`, read from the leader: the record, or `None`
    where there is none. An id that isn't in it counts as a run that goes on.
    """
    known = runs or {}
    settled = settle_runs(schedule, known)
    timetable = timetable_of(settled)
    due = _due(settled, timetable, now, tick=tick, rules=rules)
    going = going_until(settled, known)
    found = _sort(settled, due, now, going=going, rules=rules) if due.occurrences else _Sorted()
    more = bool(found.left) or due.cut
    moved = _scheduled(_moved(settled, due, found), now, more=more)
    moved, closed = _close_skipping(moved, due, found)
    return Decision(
        moved,
        started=tuple(found.started),
        missed=_stretches(found.missed),
        skipped=closed,
        coalesced=found.coalesced + due.dropped,
        more=more,
    )


# ------------------------------------------------------------------------------------------------ what is due


def _due(
    schedule: ScheduleRecord, timetable: Timetable, now: datetime, *, tick: Tick | None, rules: DecisionRules
) -> _Due:
    limit = now if schedule.is_active else min(now, schedule.state_at)
    occurrence = _own_occurrence(schedule, tick, now)
    if occurrence is not None:
        limit = max(limit, occurrence)
    start, end = within(schedule, schedule.cursor, limit)
    if isinstance(timetable, IntervalTimetable):
        return _due_by_interval(schedule, timetable, (start, end), occurrence)
    chained = schedule.last_occurrence if start == schedule.cursor else None
    listed = timetable.between(chained or start, end, rules.search_limit + 1)
    cut = len(listed) > rules.search_limit
    found = list(listed[bisect_right(listed, start) : rules.search_limit])
    if occurrence is not None and start < occurrence <= end and not cut and occurrence not in found:
        found.insert(bisect_left(found, occurrence), occurrence)
    return _Due(found, schedule.anchor, end, cut=cut)


def _own_occurrence(schedule: ScheduleRecord, tick: Tick | None, now: datetime) -> datetime | None:
    """The tick's occurrence, when it is one of the schedule as it is now.

    A tick of another line, of a schedule edited since, only wakes the decider: what was due under the old line was
    decided with the edit.
    """
    if tick is None or not schedule.is_active or tick.occurrence > now + AHEAD:
        return None
    timing = (schedule.line, schedule.timezone)
    return tick.occurrence if (tick.line, tick.timezone) == timing else None


def _due_by_interval(
    schedule: ScheduleRecord,
    timetable: IntervalTimetable,
    window: tuple[datetime, datetime],
    occurrence: datetime | None,
) -> _Due:
    start, end = window
    if occurrence is None or occurrence <= schedule.anchor or timetable.has(occurrence):
        return _spaced(schedule, _Due(timetable.between(start, end), schedule.anchor, end))
    moved = IntervalTimetable(timetable.step, occurrence)
    if not start < occurrence <= end:
        return _spaced(schedule, _Due(moved.between(start, end), occurrence, end))
    before = timetable.between(start, occurrence)
    after = Grid(Piece(occurrence, timetable.step, (end - occurrence) // timetable.step + 1))
    if before:
        return _Due(before[:-1] + after, occurrence, end)
    if schedule.last_occurrence is not None and occurrence - start < NEAR:
        return _Due(after[1:], occurrence, end, dropped=1)
    return _spaced(schedule, _Due(after, occurrence, end))


def _spaced(schedule: ScheduleRecord, due: _Due) -> _Due:
    """The same without a first one that is too near to the last one decided: only a grid that moved has such."""
    last, step = schedule.last_occurrence, schedule.interval
    if last is None or step is None or not due.occurrences or due.occurrences[0] - last >= step / 2:
        return due
    return replace(due, occurrences=due.occurrences[1:], dropped=1)


# ------------------------------------------------------------------------------------------------ what becomes of it


def _sort(
    schedule: ScheduleRecord, due: _Due, now: datetime, *, going: datetime | None, rules: DecisionRules
) -> _Sorted:
    grace = schedule.misfire_grace if schedule.misfire_grace is not None else rules.max_age
    occurrences = due.occurrences
    if schedule.overlap == "skip" and schedule.live:
        return _Sorted(skipped=(occurrences,))
    # Up to `behind` they fell due while a run was going; from there to `late` they are past their grace.
    behind = bisect_right(occurrences, going) if going is not None else 0
    late = max(bisect_left(occurrences, sooner(now, grace)), behind)
    overlapped, missed, in_time = occurrences[:behind], occurrences[behind:late], occurrences[late:]
    match schedule.overlap:
        case "skip":
            chosen, coalesced, left = _coalesce(schedule, in_time, len(in_time), cut=due.cut)
            return _Sorted(chosen[:1], missed, (overlapped, chosen[1:]), coalesced, left)
        case "allow":
            free = max(schedule.max_instances - len(schedule.live), 0)
            size = rules.pass_size if free > rules.pass_size else len(occurrences)
            chosen, coalesced, left = _coalesce(schedule, _joined(overlapped, in_time), size, cut=due.cut)
            too_many = chosen[free:]
            gap = bisect_left(too_many, missed[0]) if missed else 0
            return _Sorted(chosen[:free], missed, (too_many[:gap], too_many[gap:]), coalesced, left)
        case "queue":
            room = max(rules.max_waiting - len(schedule.open), 0)
            size = rules.pass_size if room > len(overlapped) + rules.pass_size else len(in_time)
            chosen, coalesced, left = _coalesce(schedule, in_time, size, cut=due.cut)
            waiting = _joined(overlapped, chosen)
            return _Sorted(waiting[:room], missed, (), coalesced + len(waiting[room:]), left)
        case _:
            assert_never(schedule.overlap)


def _coalesce(
    schedule: ScheduleRecord, occurrences: Sequence[datetime], size: int, *, cut: bool
) -> tuple[Sequence[datetime], int, Sequence[datetime]]:
    """Which of several become runs, how many are dropped, and which are left for the next pass."""
    match schedule.coalesce:
        case "latest":
            chosen = occurrences[:0] if cut else occurrences[-1:]
            return chosen, len(occurrences) - len(chosen), occurrences[:0]
        case "earliest":
            return occurrences[:1], len(occurrences[1:]), occurrences[:0]
        case "all":
            return occurrences[:size], 0, occurrences[size:]
        case _:
            assert_never(schedule.coalesce)


def _joined(first: Any, second: Any) -> Sequence[datetime]:
    return first + second  # two grids or two lists: slices of the same window


# ------------------------------------------------------------------------------------------------ the record after it


def _moved(schedule: ScheduleRecord, due: _Due, found: _Sorted) -> ScheduleRecord:
    """The record with cursor, grid, open runs and counters moved."""
    if not due.occurrences and not due.dropped:
        return schedule if due.anchor == schedule.anchor else replace(schedule, anchor=due.anchor)
    decided = due.occurrences[: len(due.occurrences) - len(found.left)]
    last = decided[-1] if decided else schedule.last_occurrence
    short = bool(found.left) or due.cut
    counters = schedule.counters
    return replace(
        schedule,
        anchor=due.anchor,
        cursor=decided[-1] if short and decided else max(schedule.cursor, due.end),
        last_occurrence=last,
        open=(*schedule.open, *found.started),
        last_run_at=found.started[-1] if found.started else schedule.last_run_at,
        counters=replace(
            counters,
            runs=counters.runs + len(found.started),
            missed=counters.missed + len(found.missed),
            coalesced=counters.coalesced + found.coalesced + due.dropped,
            overlap_skips=counters.overlap_skips + sum(map(len, found.skipped)),
        ),
    )


def _close_skipping(schedule: ScheduleRecord, due: _Due, found: _Sorted) -> tuple[ScheduleRecord, tuple[Stretch, ...]]:
    """The record with the stretch of skipped occurrences that still grows, and those that have ended.

    One long run skips one occurrence a second, each decided by its own tick: they become one record, when it is over.
    """
    parts = [stretch for part in found.skipped for stretch in _stretches(part)]
    growing = schedule.skipping
    if growing is not None:
        if parts and parts[0].first == due.occurrences[0]:
            parts[0] = growing.joined(parts[0])
        else:
            parts.insert(0, growing)
    if not parts:
        return schedule, ()
    at_the_end = not due.occurrences or parts[-1].last == due.occurrences[-1]
    still = parts.pop() if schedule.is_active and schedule.live and at_the_end else None
    return (schedule if still == growing else replace(schedule, skipping=still)), tuple(parts)


def _stretches(occurrences: Sequence[datetime]) -> tuple[Stretch, ...]:
    return (Stretch(occurrences[0], occurrences[-1], len(occurrences)),) if occurrences else ()


def _scheduled(schedule: ScheduleRecord, now: datetime, *, more: bool) -> ScheduleRecord:
    """The record with its next occurrence; COMPLETED when it has none."""
    upcoming = next_occurrence(schedule, timetable_of(schedule)) if schedule.is_active else None
    if schedule.is_active and upcoming is None and not more:
        return replace(schedule, state=ScheduleState.COMPLETED, state_at=now, next_run_at=None)
    return schedule if upcoming == schedule.next_run_at else replace(schedule, next_run_at=upcoming)
