"""What each rule of a decision comes to, by example; `test_occurrences_all` says that they always add up."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jetjobs._core.cron import cron_line
from jetjobs._core.models import RunError, RunStatus
from jetjobs._core.occurrences import DecisionRules, decide
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState, Stretch
from jetjobs._core.settled_runs import run_ended, run_started
from tests.unit.schedules_made import NOON, at, counts, cron, ended, every, run, runs, stretch, tick


class TestOnTime:
    def test_a_tick_starts_its_occurrence(self):
        schedule = every()
        decision = decide(schedule, at(10.2), tick=tick(schedule, at(10)))
        assert decision.started == (at(10),)
        assert decision.schedule.open == (at(10),)
        assert decision.schedule.last_run_at == at(10)
        assert decision.schedule.next_run_at == at(20)
        assert counts(decision) == (1, 0, 0, 0)

    @pytest.mark.parametrize("schedule", [every(), cron()])
    def test_the_brokers_clock_may_be_a_moment_ahead(self, schedule: ScheduleRecord):
        decision = decide(schedule, at(9.8), tick=tick(schedule, at(10)))
        assert decision.started == (at(10),)
        assert decide(decision.schedule, at(10.5)).schedule == decision.schedule

    def test_a_tick_of_far_ahead_decides_nothing(self):
        schedule = every()
        assert decide(schedule, at(5), tick=tick(schedule, at(1_000_000))).schedule == schedule

    def test_its_duplicate_and_a_late_one_change_nothing(self):
        schedule = every()
        first = decide(schedule, at(10), tick=tick(schedule, at(10)))
        assert decide(first.schedule, at(12), tick=tick(schedule, at(10))).schedule == first.schedule
        assert decide(first.schedule, at(12), tick=tick(schedule, at(-20))).schedule == first.schedule

    def test_nothing_due_is_nothing_to_write(self):
        schedule = every()
        assert decide(schedule, at(9)).schedule is schedule

    def test_the_brokers_word_counts_where_the_search_differs(self):
        schedule = cron()
        decision = decide(schedule, at(20), tick=tick(schedule, at(14)), rules=DecisionRules())
        assert counts(decision) == (1, 0, 2, 0)
        assert decide(schedule, at(14), tick=tick(schedule, at(14))).started == (at(14),)


class TestCoalesce:
    @pytest.mark.parametrize(
        "coalesce, started, dropped",
        [("latest", (40,), 3), ("earliest", (10,), 3), ("all", (10, 20, 30, 40), 0)],
    )
    def test_after_an_outage(self, coalesce: str, started: tuple[int, ...], dropped: int):
        for schedule in (every(coalesce=coalesce, overlap="queue"), cron(coalesce=coalesce, overlap="queue")):
            decision = decide(schedule, at(49))
            assert decision.started == tuple(map(at, started))
            assert counts(decision) == (len(started), 0, dropped, 0)
            assert decision.coalesced == dropped
            assert decision.schedule.cursor == at(49)

    def test_all_goes_on_in_passes(self):
        schedule = every(coalesce="all", overlap="allow", max_instances=1_000)
        rules = DecisionRules(pass_size=2)
        first = decide(schedule, at(50), rules=rules)
        assert (first.started, first.more) == ((at(10), at(20)), True)
        second = decide(first.schedule, at(50), rules=rules)
        assert (second.started, second.more) == ((at(30), at(40)), True)
        third = decide(second.schedule, at(50), rules=rules)
        assert (third.started, third.more) == ((at(50),), False)
        assert third.schedule.cursor == at(50)

    def test_no_pass_is_cut_for_what_can_not_start_anyway(self):
        rules = DecisionRules(pass_size=2)
        decision = decide(every(coalesce="all", overlap="allow", max_instances=2), at(50), rules=rules)
        assert (len(decision.started), decision.more) == (2, False)
        assert counts(decision) == (2, 0, 0, 3)
        assert decision.skipped == ()
        assert decision.schedule.skipping == stretch(30, 50, 3)


class TestGrace:
    def test_what_is_later_than_its_grace_is_one_stretch(self):
        decision = decide(every(misfire_grace=timedelta(seconds=15)), at(60))
        assert decision.missed == (stretch(10, 40, 4),)
        assert decision.started == (at(60),)
        assert counts(decision) == (1, 4, 1, 0)

    def test_exactly_its_grace_is_in_time(self):
        decision = decide(every(misfire_grace=timedelta(seconds=10)), at(20))
        assert counts(decision) == (1, 0, 1, 0)

    def test_without_grace_anything_within_the_streams_age_may_start(self):
        schedule = every("1h", misfire_grace=None)
        decision = decide(schedule, NOON + timedelta(days=40))
        assert counts(decision) == (1, 10 * 24 - 1, 30 * 24, 0)

    def test_three_days_at_one_per_second_take_milliseconds(self):
        schedule = every("1s")
        began = time.process_time()
        decision = decide(schedule, NOON + timedelta(days=3))
        assert time.process_time() - began < 0.05
        assert counts(decision) == (1, 3 * 86_400 - 3_601, 3_600, 0)
        assert len(decision.missed) == 1

    def test_cron_is_bounded_by_passes_that_add_up(self):
        schedule = cron("* * * * * *", misfire_grace=timedelta(seconds=30))
        rules = DecisionRules(search_limit=100)
        started: list[datetime] = []
        missed = passes = 0
        while True:
            decision = decide(schedule, at(450), rules=rules)
            schedule, passes = decision.schedule, passes + 1
            started += decision.started
            missed += sum(part.count for part in decision.missed)
            if not decision.more:
                break
        assert (passes, started, missed) == (5, [at(450)], 419)
        assert schedule.counters.decided == 450

    def test_the_latest_of_a_window_cut_short_is_still_to_come(self):
        first = decide(cron("* * * * * *"), at(15), rules=DecisionRules(search_limit=10))
        assert (counts(first), first.more, first.schedule.cursor) == ((0, 0, 10, 0), True, at(10))
        second = decide(first.schedule, at(15), rules=DecisionRules(search_limit=10))
        assert second.started == (at(15),)


class TestPhase:
    """The grid follows the broker's, which begins anew where it lost it."""

    def test_the_catch_up_tick_stands_for_the_last_instant_missed(self):
        schedule = every("60s", cursor=NOON, last_occurrence=NOON)
        decision = decide(schedule, at(250), tick=tick(schedule, at(250)))
        assert decision.started == (at(250),)
        assert counts(decision) == (1, 0, 3, 0)
        assert decision.schedule.anchor == at(250)
        assert decision.schedule.next_run_at == at(310)

    def test_not_again_for_what_a_reconciler_caught_up(self):
        schedule = every("60s", last_occurrence=NOON)
        caught = decide(schedule, at(95.9))
        assert caught.started == (at(60),)
        again = decide(caught.schedule, at(96.2), tick=tick(schedule, at(96)))
        assert (again.started, again.coalesced) == ((), 1)
        assert again.schedule.next_run_at == at(156)
        assert decide(again.schedule, at(96.2), tick=tick(schedule, at(96))).schedule == again.schedule

    def test_a_tick_decided_already_still_moves_the_grid(self):
        caught = decide(every("60s"), at(97)).schedule
        moved = decide(caught, at(97), tick=tick(caught, at(96))).schedule
        assert moved == replace(caught, anchor=at(96), next_run_at=at(156))

    def test_on_a_grid_moved_so_the_next_one_is_not_too_near(self):
        caught = replace(decide(every("60s"), at(65)).schedule, open=())
        moved = decide(caught, at(66), tick=tick(caught, at(20))).schedule
        assert (moved.anchor, moved.next_run_at) == (at(20), at(80))
        near = decide(moved, at(80.1), tick=tick(moved, at(80)))
        assert (near.started, near.coalesced, near.schedule.next_run_at) == ((), 1, at(140))

    @pytest.mark.parametrize("second, starts", [(89, 0), (90, 1), (110, 1)])
    def test_the_shifted_tick_is_the_nearest_occurrence(self, second: int, starts: int):
        schedule = replace(decide(every("60s"), at(62)).schedule, open=())
        decision = decide(schedule, at(second), tick=tick(schedule, at(second)))
        assert len(decision.started) == starts
        assert decision.coalesced == 1 - starts
        assert decision.schedule.anchor == at(second)

    def test_the_first_tick_of_all_may_be_off_the_grid(self):
        schedule = every("60s")
        assert decide(schedule, at(61), tick=tick(schedule, at(61))).started == (at(61),)
        assert decide(schedule, at(20), tick=tick(schedule, at(20))).started == (at(20),)

    def test_a_tick_of_an_older_grid_moves_nothing_back(self):
        schedule = every("60s", anchor=at(30), cursor=at(30))
        assert decide(schedule, at(40), tick=tick(schedule, NOON)).schedule == schedule

    def test_ticks_that_wait_behind_a_shifted_one_are_on_its_grid(self):
        schedule = every("60s")
        decision = decide(schedule, at(200), tick=tick(schedule, at(70)))
        assert counts(decision) == (1, 0, 2, 0)
        assert decision.started == (at(190),)


class TestStates:
    def test_a_paused_schedule_decides_what_fell_due_before(self):
        schedule = every(state=ScheduleState.PAUSED, state_at=at(25))
        decision = decide(schedule, at(100), tick=tick(schedule, at(100)))
        assert decision.started == (at(20),)
        assert decision.schedule.cursor == at(25)
        assert decision.schedule.next_run_at is None
        assert decide(decision.schedule, at(200)).schedule == decision.schedule

    def test_neither_before_its_start_nor_at_its_end(self):
        schedule = every(start_at=at(20), end_at=at(40), coalesce="all", overlap="queue")
        assert schedule.next_run_at == at(20)
        assert decide(schedule, at(19)).schedule == schedule
        assert decide(schedule, at(10), tick=tick(schedule, at(10))).schedule == schedule
        decision = decide(schedule, at(60))
        assert decision.started == (at(20), at(30))
        assert decision.schedule.state is ScheduleState.COMPLETED
        assert (decision.schedule.state_at, decision.schedule.next_run_at) == (at(60), None)
        assert decide(decision.schedule, at(70)).schedule == decision.schedule

    def test_it_is_completed_with_its_last_occurrence(self):
        schedule = every(end_at=at(39))
        assert decide(schedule, at(30)).schedule.state is ScheduleState.COMPLETED
        assert decide(schedule, at(29)).schedule.state is ScheduleState.ACTIVE

    def test_a_tick_of_another_line_only_wakes(self):
        schedule = every("10s")
        edited = tick(schedule, at(13), line="13s")
        assert decide(schedule, at(13), tick=edited).started == (at(10),)
        assert decide(schedule, at(9), tick=edited).schedule == schedule


class TestRuns:
    def test_what_was_seen_is_active_and_what_ended_is_nothing(self):
        schedule = every("1h", open=(at(-2), at(-1), at(0)), active=(at(-3),))
        found = runs(run(schedule, at(-1)), ended(schedule, at(-2), at(1)), ended(schedule, at(-3), at(2)))
        after = decide(schedule, at(5), runs=found).schedule
        assert (after.open, after.active) == ((at(0),), (at(-1),))
        assert after.last_ended_at == at(2)

    def test_a_record_removed_while_active_holds_nothing_up(self):
        schedule = every("1h", open=(at(-1),), active=(at(-3),))
        nothing: dict[str, None] = {schedule.run_id(at(-3)): None, schedule.run_id(at(-1)): None}
        after = decide(schedule, at(5), runs=nothing).schedule
        assert (after.open, after.active) == ((at(-1),), ())

    def test_an_end_counts_once(self):
        schedule = every(active=(at(0),))
        failed = ended(schedule, at(0), at(7), RunStatus.FAILED)
        once = run_ended(schedule, failed)
        assert (once.counters.failures, once.last_error, once.last_ended_at) == (1, "Boom: x", at(7))
        assert run_ended(once, failed) is once

    def test_a_start_counts_once(self):
        schedule = every(open=(at(0), at(5)), active=(at(10),))
        begun = run_started(schedule, run(schedule, at(0)))
        assert (begun.open, begun.active) == ((at(5),), (at(0), at(10)))
        assert run_started(begun, run(schedule, at(0))) is begun
        assert run_started(begun, replace(run(schedule, at(0)), run_id="by-hand")) is begun

    def test_a_run_that_never_started_was_never_going(self):
        schedule = every(open=(at(0),))
        cancelled = run(schedule, at(0), RunStatus.CANCELLED, started_at=None, finished_at=at(50))
        assert run_ended(schedule, cancelled).last_ended_at is None
        lost = run(schedule, at(0), RunStatus.FAILED, error=RunError("Lost"), finished_at=at(50))
        assert run_ended(schedule, lost).last_ended_at == at(0)
        silent = run(schedule, at(0), RunStatus.TIMED_OUT, finished_at=at(50))
        assert run_ended(schedule, silent).last_error is None


def test_stretches_join():
    assert stretch(0, 10, 2).joined(stretch(20, 40, 3)) == Stretch(NOON, at(40), 5)


def test_the_chain_goes_on_from_the_last_tick_not_from_the_cursor():
    # Lord Howe's clocks go forward by half an hour on 6 October 2030 at 02:00, and this line fires twice that day.
    start = datetime(2030, 10, 3, tzinfo=UTC)
    schedule = cron("0 45 1 * * *", "Australia/Lord_Howe", cursor=start)
    started: list[datetime] = []
    for tenth in range(6 * 24 * 6):
        decision = decide(schedule, start + tenth * timedelta(minutes=10))
        schedule, started = replace(decision.schedule, open=()), [*started, *decision.started]
    assert started == cron_line("0 45 1 * * *", "Australia/Lord_Howe").upcoming(start, len(started))
    assert len(started) == 7
