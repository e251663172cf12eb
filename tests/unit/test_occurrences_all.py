"""Whatever happens and whoever decides when: every occurrence comes to exactly one end, and the counters say so."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from jetjobs._core.intervals import anchor_of
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.occurrences import Decision, DecisionRules, Tick, decide
from jetjobs._core.schedule_record import ScheduleRecord, Stretch
from jetjobs._core.timetables import timetable_of
from tests.unit.schedules_made import NOON, cron, ended, every, run, tick

SECOND = timedelta(seconds=1)
RULES = DecisionRules(pass_size=4, max_waiting=6, search_limit=40)

ZONES = ("UTC", "Europe/Paris", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kathmandu")
LINES = (
    "* * * * * *",
    "*/20 * * * * *",
    "*/7 * * * *",
    "0 * * * *",
    "30 2 * * *",
    "0 0 * * *",
    "45 1 * * SUN",
    "0 0 1 * MON",
    "0 0 29 2 *",
)


def _local(year: int, month: int, day: int, zone: str) -> datetime:
    return datetime(year, month, day, tzinfo=ZoneInfo(zone)).astimezone(UTC)


# The day before each of the two changes of clocks, and a plain day.
STARTS = (
    NOON,
    _local(2030, 3, 30, "Europe/Paris"),
    _local(2030, 10, 26, "Europe/Paris"),
    _local(2030, 3, 9, "America/New_York"),
    _local(2030, 11, 2, "America/New_York"),
    _local(2018, 11, 3, "America/Sao_Paulo"),
    _local(2030, 4, 6, "Australia/Lord_Howe"),
    _local(2030, 10, 5, "Australia/Lord_Howe"),
)


@dataclass
class Ledger:
    """A schedule under way, and everything its decisions said."""

    schedule: ScheduleRecord
    began: datetime
    now: datetime
    started: list[datetime] = field(default_factory=list[datetime])
    missed: list[Stretch] = field(default_factory=list[Stretch])
    skipped: list[Stretch] = field(default_factory=list[Stretch])
    coalesced: int = 0
    records: dict[str, RunRecord | None] = field(default_factory=dict[str, RunRecord | None])

    def decide(self, given: Tick | None = None) -> Decision:
        decision = decide(self.schedule, self.now, runs=self.records, tick=given, rules=RULES)
        self.take(decision)
        return decision

    def take(self, decision: Decision) -> None:
        assert decision.schedule.cursor >= self.schedule.cursor
        assert len(decision.schedule.open) <= max(RULES.max_waiting, RULES.pass_size, self.schedule.max_instances)
        self.schedule = decision.schedule
        self.started += decision.started
        self.missed += decision.missed
        self.skipped += decision.skipped
        self.coalesced += decision.coalesced

    def finish(self) -> None:
        for _ in range(20_000):
            if not self.decide().more:
                break
        again = decide(self.schedule, self.now, runs=self.records, rules=RULES)
        assert again == Decision(self.schedule)

    def adds_up(self) -> None:
        found = self.schedule.counters
        growing = [self.schedule.skipping] if self.schedule.skipping else []
        assert found.runs == len(self.started) == len(set(self.started))
        assert found.missed == sum(part.count for part in self.missed)
        assert found.overlap_skips == sum(part.count for part in [*self.skipped, *growing])
        assert found.coalesced == self.coalesced


def step(ledger: Ledger, action: str, seconds: float, shift: int) -> None:
    """One thing that happens to a schedule."""
    before = ledger.schedule
    ledger.now += seconds * SECOND
    match action:
        case "reconcile":
            ledger.decide()
        case "tick":
            # The broker follows its chain from where it began; near a change of clocks that matters.
            chain = timetable_of(before).between(ledger.began, ledger.now + SECOND / 2, 100_000)
            if chain:
                given = tick(before, chain[-1] + shift * SECOND)
                more = ledger.decide(given).more
                again = decide(ledger.schedule, ledger.now, runs=ledger.records, tick=given, rules=RULES)
                assert more or again == Decision(ledger.schedule)
        case "race":
            # Both read the same; one writes first. The other's write conflicts: it reads and decides again.
            ahead = decide(before, ledger.now + SECOND, runs=ledger.records, rules=RULES)
            behind = decide(before, ledger.now, runs=ledger.records, rules=RULES)
            ledger.take(ahead if shift % 2 else behind)
            ledger.decide()
            ledger.now += SECOND
        case "start" if before.open:
            seen = run(before, before.open[0], heartbeat_at=ledger.now)
            ledger.records[seen.run_id] = seen
        case "end" if before.live:
            status = RunStatus.FAILED if shift % 2 else RunStatus.SUCCEEDED
            over = ended(before, min(before.live), ledger.now, status)
            ledger.records[over.run_id] = over
        case _:
            pass


actions = st.sampled_from(["reconcile", "tick", "tick", "tick", "race", "start", "end"])
gaps = st.sampled_from([0.0, 0.3, 1.0, 5.0, 20.0, 61.0, 600.0, 4_000.0, 90_000.0])
scripts = st.lists(st.tuples(actions, gaps), min_size=1, max_size=25)
policies = st.fixed_dictionaries(
    {
        "coalesce": st.sampled_from(["latest", "earliest", "all"]),
        "overlap": st.sampled_from(["skip", "queue", "allow"]),
        "max_instances": st.integers(1, 6),
        "misfire_grace": st.none() | st.sampled_from([0, 3, 60, 3_600, 86_400]).map(lambda n: n * SECOND),
    }
)
intervals = st.sampled_from(["1s", "2s", "7s", "60s", "1h", "1d"])


def occurrences_in(ranges: list[Stretch], everything: list[datetime]) -> list[datetime]:
    found: list[datetime] = []
    for part in ranges:
        inside = [at for at in everything if part.first <= at <= part.last]
        assert len(inside) == part.count
        assert (inside[0], inside[-1]) == (part.first, part.last)
        found += inside
    return found


def check_all(ledger: Ledger, everything: list[datetime]) -> None:
    ledger.adds_up()
    growing = [ledger.schedule.skipping] if ledger.schedule.skipping else []
    missed = occurrences_in(ledger.missed, everything)
    skipped = occurrences_in([*ledger.skipped, *growing], everything)
    ends = [*ledger.started, *missed, *skipped]
    assert len(ends) == len(set(ends))
    assert set(ends) <= set(everything)
    assert len(everything) - len(ends) == ledger.coalesced


def short(script: list[tuple[str, float]], most: float) -> list[tuple[str, float]]:
    return [(action, min(gap, most)) for action, gap in script]


@settings(max_examples=60)
@given(intervals, policies, scripts)
def test_every_occurrence_of_an_interval_comes_to_one_end(
    interval: str, policy: dict[str, Any], script: list[tuple[str, float]]
):
    schedule = every(interval, **policy)
    ledger = Ledger(schedule, NOON, NOON)
    for place, (action, gap) in enumerate(short(script, 200.0 if interval.endswith("s") else 90_000.0)):
        step(ledger, action, gap, place % 2 if action in {"race", "end"} else 0)
    ledger.finish()
    check_all(ledger, list(timetable_of(schedule).between(NOON, max(ledger.now, ledger.schedule.cursor), 0)))


@settings(max_examples=60)
@given(st.sampled_from(LINES), st.sampled_from(ZONES), st.sampled_from(STARTS), policies, scripts)
def test_every_occurrence_of_a_cron_line_comes_to_one_end(
    line: str, zone: str, start: datetime, policy: dict[str, Any], script: list[tuple[str, float]]
):
    schedule = cron(line, zone, cursor=start, anchor=start, state_at=start, **policy)
    ledger = Ledger(schedule, start, start)
    most = {"* * * * * *": 20.0, "*/20 * * * * *": 600.0}.get(line, 90_000.0)
    for place, (action, gap) in enumerate(short(script, most)):
        step(ledger, action, gap, place % 2 if action in {"race", "end"} else 0)
    ledger.finish()
    end = max(ledger.now, ledger.schedule.cursor)
    check_all(ledger, list(timetable_of(schedule).between(start, end, 1_000_000)))


@settings(max_examples=60)
@given(st.sampled_from(["7s", "60s", "1h"]), policies, scripts, st.lists(st.integers(0, 40), min_size=25, max_size=25))
def test_a_rhythm_that_moves_gains_and_loses_at_most_one_each_time(
    interval: str, policy: dict[str, Any], script: list[tuple[str, float]], shifts: list[int]
):
    schedule = every(interval, **policy)
    ledger = Ledger(schedule, NOON, NOON)
    moved = 0
    for shift, (action, gap) in zip(shifts, short(script, 4_000.0), strict=False):
        before = ledger.schedule.anchor
        step(ledger, action, gap, -(shift % 7) if action == "tick" and shift > 30 else shift * (action != "tick"))
        moved += ledger.schedule.anchor != before
    ledger.finish()
    ledger.adds_up()
    assert schedule.interval is not None
    wanted = (max(ledger.now, ledger.schedule.cursor) - NOON) / schedule.interval
    assert abs(ledger.schedule.counters.decided - wanted) <= moved + 1
    occurrences = sorted(ledger.started)
    if policy["coalesce"] != "all":
        gaps_seen = [later - earlier for earlier, later in pairwise(occurrences)]
        assert all(gap >= schedule.interval / 2 for gap in gaps_seen)


@given(st.sampled_from(["7s", "1h"]), st.floats(0, 1e6))
def test_what_begins_now_has_nothing_due_now(interval: str, seconds: float):
    now = NOON + seconds * SECOND
    anchor = anchor_of(now)
    schedule = replace(every(interval), anchor=anchor, cursor=max(now, anchor))
    assert not decide(schedule, now).started
