"""A tick while earlier runs of its schedule are active: skipped, beside them, or queued."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from jetjobs._core.models import RunError, RunStatus
from jetjobs._core.occurrences import DecisionRules, decide
from jetjobs._core.schedule_record import ScheduleState
from jetjobs._core.settled_runs import run_ended
from tests.unit.schedules_made import NOON, at, counts, ended, every, run, runs, stretch, tick

HOUR = timedelta(hours=1)


class TestOverlapSkip:
    def test_everything_due_beside_a_run_is_skipped_as_one_stretch(self):
        schedule = decide(every("1s"), at(1), tick=tick(every("1s"), at(1))).schedule
        for second in range(2, 40):
            decision = decide(schedule, at(second), tick=tick(schedule, at(second)))
            assert (decision.started, decision.skipped) == ((), ())
            schedule = decision.schedule
        assert schedule.counters.overlap_skips == 38
        over = run_ended(schedule, ended(schedule, at(1), at(40.5)))
        decision = decide(over, at(41), tick=tick(over, at(41)))
        assert decision.skipped == (stretch(2, 40, 39),)
        assert decision.started == (at(41),)
        assert decision.schedule.skipping is None

    def test_what_fell_due_while_it_ran_is_skipped_afterwards_too(self):
        schedule = replace(every(), last_ended_at=at(35), open=())
        decision = decide(schedule, at(40), tick=tick(schedule, at(10)))
        assert decision.started == (at(40),)
        assert decision.skipped == (stretch(10, 30, 3),)

    def test_earliest_means_the_earliest_that_may_start(self):
        decision = decide(every(coalesce="earliest", last_ended_at=at(15)), at(40))
        assert (decision.started, counts(decision)) == ((at(20),), (1, 0, 2, 1))

    def test_of_all_one_starts_and_the_rest_overlap_it(self):
        decision = decide(every(coalesce="all"), at(40))
        assert (decision.started, counts(decision)) == ((at(10),), (1, 0, 0, 3))
        assert decision.schedule.skipping == stretch(20, 40, 3)

    def test_a_stretch_that_something_interrupts_is_two(self):
        growing = every(skipping=stretch(-20, -10, 2), cursor=NOON)
        decision = decide(growing, at(20))
        assert decision.skipped == (stretch(-20, -10, 2),)
        beside = replace(growing, coalesce="all")
        assert decide(beside, at(20)).skipped == (stretch(-20, -10, 2),)
        assert decide(beside, at(20)).schedule.skipping == stretch(20, 20, 1)

    def test_a_growing_stretch_ends_with_its_run_or_its_schedule(self):
        growing = every(open=(at(-20),), skipping=stretch(-10, 0, 2))
        assert decide(growing, at(5)).schedule.skipping == stretch(-10, 0, 2)
        assert decide(replace(growing, state=ScheduleState.PAUSED), at(5)).skipped == (stretch(-10, 0, 2),)
        over = decide(replace(growing, open=()), at(5))
        assert (over.skipped, over.schedule.skipping) == ((stretch(-10, 0, 2),), None)

    def test_a_run_behind_long_waits_is_skipped_not_missed(self):
        schedule = every(misfire_grace=timedelta(seconds=5), last_ended_at=at(100))
        assert counts(decide(schedule, at(105))) == (0, 0, 0, 10)

    def test_a_lost_run_was_going_until_its_last_heartbeat(self):
        schedule = every("1h", open=(NOON,))
        lost = run(schedule, NOON, RunStatus.FAILED, finished_at=at(90_000), heartbeat_at=at(60))
        found = runs(replace(lost, error=RunError("Lost", "lost")))
        decision = decide(schedule, at(90_000), runs=found)
        assert decision.started == (NOON + 25 * HOUR,)
        assert counts(decision) == (1, 23, 1, 0)
        assert decision.schedule.counters.failures == 1


class TestOverlapAllow:
    def test_up_to_max_instances(self):
        schedule = every(overlap="allow", max_instances=2, coalesce="all", active=(at(-10),))
        decision = decide(schedule, at(30))
        assert (decision.started, counts(decision)) == ((at(10),), (1, 0, 0, 2))

    def test_none_when_all_are_taken(self):
        schedule = every(overlap="allow", active=(at(-10),))
        assert counts(decide(schedule, at(30))) == (0, 0, 2, 1)

    def test_what_waited_behind_a_run_is_not_late(self):
        schedule = every(overlap="allow", max_instances=9, coalesce="all", active=(at(-10),))
        schedule = replace(schedule, misfire_grace=timedelta(seconds=5))
        beating = runs(run(schedule, at(-10), heartbeat_at=at(25)))
        decision = decide(schedule, at(60), runs=beating)
        assert decision.started == (at(10), at(20), at(60))
        assert decision.missed == (stretch(30, 50, 3),)

    def test_a_stretch_has_no_hole(self):
        schedule = every(overlap="allow", coalesce="all", active=(at(-10),), misfire_grace=timedelta(seconds=5))
        beating = runs(run(schedule, at(-10), heartbeat_at=at(25)))
        decision = decide(schedule, at(60), runs=beating)
        assert decision.skipped == (stretch(10, 20, 2),)
        assert decision.missed == (stretch(30, 50, 3),)
        assert decision.schedule.skipping == stretch(60, 60, 1)


class TestOverlapQueue:
    def test_each_that_fell_due_beside_a_run_waits(self):
        schedule = every(overlap="queue", last_ended_at=at(35))
        decision = decide(schedule, at(60))
        assert decision.started == (at(10), at(20), at(30), at(60))
        assert counts(decision) == (4, 0, 2, 0)

    def test_the_queue_is_bounded(self):
        schedule = every("1s", overlap="queue", last_ended_at=at(5_000))
        decision = decide(schedule, at(5_000))
        assert len(decision.schedule.open) == 1_000
        assert counts(decision) == (1_000, 0, 4_000, 0)
        after = decide(decision.schedule, at(5_001))
        assert len(after.schedule.open) == 1_000
        assert counts(after) == (1_000, 0, 4_001, 0)

    def test_all_of_an_outage_in_passes_while_there_is_room(self):
        schedule = every("1s", overlap="queue", coalesce="all")
        first = decide(schedule, at(500))
        assert (len(first.started), first.more) == (100, True)
        full = decide(schedule, at(500), rules=DecisionRules(max_waiting=50))
        assert (counts(full), full.more) == ((50, 0, 450, 0), False)
