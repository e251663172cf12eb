"""No way through crashes, lost and repeated ticks, races and edits breaks a schedule; and the search can tell."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from jetjobs._core import occurrences, schedules, starting
from jetjobs._core.occurrences import Decision, Tick
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.starting import Start
from tests.model.search import Found, search
from tests.model.tick_values import Setup
from tests.model.tick_world import TickWorld

ALL = {"coalesce": "all"}
QUEUE = {"overlap": "queue", **ALL}
ALLOW = {"overlap": "allow", "max_instances": 9, **ALL}
JITTER = {"jitter": timedelta(seconds=8)}

# Fewer states than this, and the world has lost some of its moves: a search through nothing finds nothing.
SOUND = {
    "a crash, a tick lost or repeated": (Setup(slots=1), 7_000),
    "a queue on two hosts": (Setup(policy=QUEUE, faults=0), 12_000),
    "as many as fall due": (Setup(policy=ALLOW, slots=1), 15_000),
    "jitter": (Setup(policy=JITTER, slots=1), 10_000),
    "paused while a tick is under way": (Setup(op="pause", op_at=1, slots=1), 8_000),
    "paused and resumed": (Setup(op="resume", op_at=1, slots=1, faults=0), 5_000),
    "edited while a tick is under way": (Setup(op="edit", op_at=1, slots=1, faults=0, last=3), 15_000),
}
LARGE = {
    "two hosts at once": Setup(),
    "three occurrences": Setup(slots=1, last=3),
    "two reconcilers": Setup(slots=1, reconcilers=2),
    "two faults": Setup(slots=1, faults=2),
    "a queue": Setup(policy=QUEUE),
    "all of an outage": Setup(policy=ALL, slots=1, last=3),
    "paused": Setup(op="pause"),
    "deleted": Setup(op="delete"),
    "resumed": Setup(op="resume", slots=1),
    "edited": Setup(op="edit", slots=1, last=3),
}


def explore(setup: Setup, limit: int, *, first: bool = False) -> Found:
    return search(cast("Any", TickWorld(setup)), limit=limit, first=first)


@pytest.mark.parametrize("name", SOUND)
def test_a_schedule_holds_whatever_happens(name: str):
    setup, least = SOUND[name]
    found = explore(setup, 100_000)
    assert found.wrong == {}
    assert found.states > least


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("name", LARGE)
def test_a_schedule_holds_in_a_larger_world(name: str):
    assert explore(LARGE[name], 3_000_000).wrong == {}


def blind_to_ends(schedule: ScheduleRecord, now: datetime, **known: Any) -> Decision:
    """A decision that doesn't know when the last run ended."""
    decision = occurrences.decide(replace(schedule, last_ended_at=None), now, **known)
    if decision.schedule.last_ended_at is not None:
        return blind_to_ends(replace(schedule, open=(), active=()), now, tick=known.get("tick"))
    return replace(decision, schedule=replace(decision.schedule, last_ended_at=schedule.last_ended_at))


def forgets_runs(schedule: ScheduleRecord, now: datetime, **known: Any) -> Decision:
    """A decision that takes every earlier run for ended."""
    decision = occurrences.decide(replace(schedule, open=(), active=()), now, **known)
    live = (*schedule.live, *decision.schedule.open)
    return replace(decision, schedule=replace(decision.schedule, open=live))


def counts_ticks(schedule: ScheduleRecord, now: datetime, *, runs: Any, tick: Tick | None = None) -> Decision:
    """A decision about the tick's own occurrence only."""
    if tick is None or tick.occurrence <= schedule.cursor:
        return Decision(schedule)
    return occurrences.decide(replace(schedule, cursor=tick.occurrence - timedelta(seconds=1)), now, runs=runs)


def goes_on(schedule: ScheduleRecord, now: datetime, **known: Any) -> Decision:
    """A decision that doesn't look since when a schedule is stopped."""
    return occurrences.decide(replace(schedule, state_at=now), now, **known)


def jumps(schedule: ScheduleRecord, now: datetime, **_: Any) -> Decision:
    """A resume that decides nothing of the time before."""
    return schedules.resume(replace(schedule, cursor=now), now)


def edits_only(schedule: ScheduleRecord, changes: Any, now: datetime, **_: Any) -> Decision:
    """An edit that decides nothing of the time before."""
    return schedules.update(replace(schedule, cursor=now), changes, now)


def takes_any_line(schedule: ScheduleRecord, now: datetime, *, runs: Any, tick: Tick | None = None) -> Decision:
    """A decision that takes a tick of another line for one of its own."""
    own = replace(tick, line=schedule.line) if tick is not None else None
    return occurrences.decide(schedule, now, runs=runs, tick=own)


def always_runs(*_: Any) -> starting.TickVerdict:
    return "run"


def nothing_of_others(_: ScheduleRecord) -> tuple[Start, ...]:
    return ()


def all_at_once(schedule: ScheduleRecord) -> tuple[Start, ...]:
    return starting.starts_of(replace(schedule, overlap="allow"))


VANISHED = "an occurrence vanished, or was counted twice"
TWICE = "an occurrence starts twice"
LIVE = "two runs of the schedule at once"
UNCOUNTED = "a run that isn't counted, or counted and not run"
TURNED_BACK = {
    "the tick runs, whatever the record says": (Setup(verdict=always_runs), {LIVE, UNCOUNTED}),
    "runs that go on are forgotten": (Setup(decide=forgets_runs), {LIVE}),
    "the end of the last run is forgotten": (
        Setup(decide=blind_to_ends, slots=1),
        {"an occurrence starts that fell due beside an earlier run"},
    ),
    "ticks are counted, not occurrences": (Setup(decide=counts_ticks, slots=1), {VANISHED}),
    "a write doesn't compare": (Setup(compares=False), {VANISHED, TWICE, UNCOUNTED, LIVE}),
    "triggers of the other decided ones aren't stored": (
        Setup(starts=nothing_of_others, slots=1),
        {"a run that never ends for its schedule", UNCOUNTED, "no way to an end"},
    ),
    "a queue lets all go at once": (Setup(starts=all_at_once, policy=QUEUE), {LIVE}),
    "a stopped schedule decides on": (
        Setup(decide=goes_on, op="pause", slots=1),
        {"an occurrence of a stopped schedule starts"},
    ),
    "resume jumps": (Setup(resume=jumps, op="resume", slots=1, faults=0), {VANISHED}),
    "an edit jumps": (
        Setup(update=edits_only, op="edit", op_at=1, slots=1, last=3, faults=0),
        {"an occurrence vanished"},
    ),
    "a tick of the old line counts": (
        Setup(decide=takes_any_line, op="edit", op_at=1, slots=1, last=3),
        {"an occurrence of the old line starts after the edit"},
    ),
    "nobody repairs the stream": (
        Setup(op="pause", op_at=1, slots=1, mends=False),
        {"the stream doesn't fire what the record says", "no way to an end"},
    ),
}


@pytest.mark.parametrize("name", TURNED_BACK)
def test_the_search_finds_what_each_rule_of_ticks_prevents(name: str):
    setup, wrong = TURNED_BACK[name]
    assert wrong & set(explore(setup, 300_000, first=True).wrong)
