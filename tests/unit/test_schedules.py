"""Edits of schedules, what may start when, and who may change what code declares."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.bodies import Body
from jetjobs._core.declared import (
    Keep,
    Publish,
    Purge,
    mend,
)
from jetjobs._core.messages import Message
from jetjobs._core.models import RunStatus
from jetjobs._core.occurrences import DecisionRules, decide
from jetjobs._core.schedule_messages import schedule_message
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._core.schedules import anchored, delete, disable, pause, resume, update
from jetjobs._core.starting import jittered, run_key, starts_of, stretch_record, tick_verdict
from jetjobs._core.timetables import timetable_of
from jetjobs._core.versions import not_older, version_key
from tests.unit.schedules_made import MINUTE, NOON, at, counts, cron, declared, ended, every, runs, stretch, tick


class TestEdits:
    def test_a_pause_says_since_when(self):
        paused = pause(every(), at(15))
        assert (paused.state, paused.state_at, paused.next_run_at) == (ScheduleState.PAUSED, at(15), None)
        assert pause(paused, at(20)) is paused
        assert disable(paused, at(20)) is paused

    def test_a_disabled_one_that_is_paused_fires_nothing_of_the_time_between(self):
        paused = pause(disable(every(), at(15)), at(100))
        assert (paused.state, paused.state_at) == (ScheduleState.PAUSED, at(15))

    def test_a_tombstone_stays_one(self):
        gone = delete(every(), at(15))
        assert gone.state is ScheduleState.DELETED
        assert delete(gone, at(20)) is gone
        assert pause(gone, at(20)) is gone

    def test_resume_decides_the_time_before_the_pause_and_drops_the_pause(self):
        decision = resume(pause(every(), at(25)), at(95.6))
        assert (decision.started, counts(decision)) == ((at(20),), (1, 0, 1, 0))
        resumed = decision.schedule
        assert (resumed.state, resumed.cursor, resumed.anchor) == (ScheduleState.ACTIVE, at(96), at(96))
        assert resumed.next_run_at == at(106)

    def test_resume_of_an_active_one_only_decides(self):
        assert resume(every(), at(15)) == decide(every(), at(15))

    def test_resume_closes_the_stretch_and_looks_at_runs(self):
        before = pause(every(open=(at(-10),), skipping=stretch(-5, 0, 2)), at(5))
        decision = resume(before, at(50), runs=runs(ended(before, at(-10), at(7))))
        assert decision.skipped == (stretch(-5, 0, 2),)
        assert decision.schedule.last_ended_at == at(7)

    def test_what_needs_several_passes_is_resumed_after_them(self):
        before = pause(every(coalesce="all", overlap="queue"), at(45))
        rules = DecisionRules(pass_size=3)
        first = resume(before, at(99), rules=rules)
        assert (first.more, first.schedule.state) == (True, ScheduleState.PAUSED)
        second = resume(first.schedule, at(99), rules=rules)
        assert (second.more, second.schedule.state) == (False, ScheduleState.ACTIVE)
        assert second.schedule.counters.runs == 4
        assert update(before, {"jitter": MINUTE}, at(99), rules=rules).schedule.jitter is None

    def test_an_update_touches_the_future_only(self):
        changes = {"line": "7s", "interval": timedelta(seconds=7)}
        decision = update(every(), changes, at(25))
        after = decision.schedule
        assert (decision.started, counts(decision)) == ((at(20),), (1, 0, 1, 0))
        assert (after.revision, after.anchor, after.next_run_at, after.updated_at) == (2, at(25), at(32), at(25))

    def test_a_new_policy_leaves_the_rhythm(self):
        after = update(every(), {"overlap": "queue", "misfire_grace": None}, at(25)).schedule
        assert (after.revision, after.anchor, after.next_run_at) == (1, NOON, at(30))

    def test_the_same_again_is_no_update(self):
        assert update(every(), {"overlap": "skip"}, at(5)).schedule == every()

    def test_an_update_of_a_paused_one_leaves_it_paused(self):
        after = update(pause(every(), at(5)), {"timezone": "Asia/Kathmandu"}, at(25)).schedule
        assert (after.state, after.state_at, after.next_run_at, after.revision) == (
            ScheduleState.PAUSED,
            at(5),
            None,
            2,
        )

    def test_a_completed_one_goes_on_with_a_later_end(self):
        done = decide(every(end_at=at(25)), at(30)).schedule
        assert done.state is ScheduleState.COMPLETED
        after = update(done, {"end_at": at(500)}, at(100)).schedule
        assert (after.state, after.next_run_at, after.cursor) == (ScheduleState.ACTIVE, at(110), at(100))
        assert update(done, {"end_at": at(50)}, at(100)).schedule.state is ScheduleState.COMPLETED

    def test_an_update_at_its_end_still_counts(self):
        # The decision before it completes the schedule, though the update gives it more time.
        after = update(every(end_at=at(25)), {"end_at": at(500)}, at(30)).schedule
        assert (after.state, after.next_run_at) == (ScheduleState.ACTIVE, at(40))
        ended_now = update(every(), {"end_at": at(25)}, at(22)).schedule
        assert ended_now.state is ScheduleState.COMPLETED

    def test_the_rhythm_is_that_of_the_stored_message(self):
        schedule = every()
        moved = anchored(schedule, at(3.4))
        assert (moved.anchor, moved.next_run_at) == (at(3), at(13))
        assert decide(moved, at(3.4)).schedule == moved
        assert anchored(moved, at(3.2)) is moved
        assert anchored(schedule, at(12)) is schedule
        assert anchored(cron(), at(3)) == cron()


class TestStarts:
    def test_all_open_ones_start(self):
        schedule = every(open=(at(10), at(20)), overlap="allow")
        assert [start.run_id for start in starts_of(schedule)] == [schedule.run_id(at(10)), schedule.run_id(at(20))]
        assert starts_of(schedule)[0].start_at == at(10)

    def test_a_queue_lets_one_go_at_a_time(self):
        schedule = every(open=(at(10), at(20)), overlap="queue")
        assert [start.occurrence for start in starts_of(schedule)] == [at(10)]
        assert starts_of(replace(schedule, active=(at(0),))) == ()

    @given(st.integers(1, 500), st.integers(0, 100_000), st.integers(1, 120))
    def test_jitter_is_bounded_and_the_same_for_all(self, step: int, place: int, jitter: int):
        schedule = every(f"{step}s", jitter=timedelta(seconds=jitter))
        occurrence = at(step * place)
        start = jittered(schedule, timetable_of(schedule), occurrence)
        assert occurrence <= start < occurrence + timedelta(seconds=min(jitter, step))
        assert jittered(schedule, timetable_of(schedule), occurrence) == start

    def test_jitter_spreads(self):
        schedule = every("1h", jitter=timedelta(minutes=10), overlap="allow")
        schedule = replace(schedule, open=tuple(at(3600 * n) for n in range(200)))
        spread = [(start.start_at - start.occurrence) / MINUTE for start in starts_of(schedule)]
        assert min(spread) < 1
        assert max(spread) > 9
        assert 4 < sum(spread) / 200 < 6

    def test_the_last_occurrence_has_its_whole_jitter(self):
        schedule = cron("0 0 29 2 *", cursor=NOON, jitter=MINUTE)
        last = datetime(9_988, 2, 29, tzinfo=UTC)
        assert last <= jittered(schedule, timetable_of(schedule), last) < last + MINUTE

    def test_a_tick_runs_what_was_decided_to_run(self):
        schedule = every(open=(at(10),), cursor=at(10))
        assert tick_verdict(schedule, tick(schedule, at(10)), at(10)) == "run"
        assert tick_verdict(schedule, tick(schedule, at(20)), at(20)) == "retire"
        paused = pause(schedule, at(15))
        assert tick_verdict(paused, tick(schedule, at(10)), at(16)) == "run"
        assert tick_verdict(paused, tick(schedule, at(15)), at(16)) == "retire"
        assert tick_verdict(paused, tick(schedule, at(20)), at(20)) == "purge"

    def test_a_tick_whose_run_starts_later_holds_no_slot(self):
        schedule = every("1h", open=(at(0),), jitter=timedelta(minutes=30))
        (start,) = starts_of(schedule)
        assert start.start_at > at(0)
        assert tick_verdict(schedule, tick(schedule, at(0)), at(0)) == "retire"
        assert tick_verdict(schedule, tick(schedule, at(0)), start.start_at) == "run"

    def test_a_stretch_has_one_record(self):
        schedule = every()
        missed = stretch_record(schedule, RunStatus.MISSED, stretch(10, 30, 3), at(50))
        assert missed.run_id == "s-1903867210000-missed"
        assert missed.extra == {"occurrences": 3, "last_occurrence": at(30)}
        assert missed.skip_reason == (
            "3 occurrences, 2030-05-01T12:00:10+00:00 to 2030-05-01T12:00:30+00:00, were past the misfire grace when a "
            "host could decide"
        )
        assert missed.trigger.schedule_id == missed.schedule_id == "s"
        skipped = stretch_record(schedule, RunStatus.SKIPPED, stretch(10, 10, 1), at(50))
        assert (
            skipped.skip_reason == "the occurrence of 2030-05-01T12:00:10+00:00 was due while an earlier run was going"
        )
        assert skipped.run_id != run_key(schedule, at(10)).run_id


class TestMend:
    def stored(self, schedule: ScheduleRecord, **headers: str) -> Message:
        made = schedule_message("shop", schedule)
        return Message(made.subject, {**made.headers, **headers}, made.data, 19, NOON)

    def test_what_is_missing_is_published(self):
        schedule = declared()
        assert mend("shop", schedule, None) == Publish(schedule_message("shop", schedule), 0)

    def test_what_does_the_same_is_kept(self):
        schedule = declared()
        extra = self.stored(schedule, **{"Nats-Rollup": "sub", "Jetjobs-Newer": "x"})
        assert mend("shop", schedule, extra) == Keep()
        policy = replace(schedule, overlap="queue", version="9", counters=replace(schedule.counters, runs=5))
        assert mend("shop", policy, extra) == Keep()

    @pytest.mark.parametrize(
        "changes",
        [{"line": "90s", "interval": timedelta(seconds=90)}, {"payload_body": Body(b"\x01")}, {"revision": 2}],
    )
    def test_what_differs_is_published_over_it(self, changes: dict[str, Any]):
        schedule = declared()
        changed = replace(schedule, **changes)
        wanted = Publish(schedule_message("shop", changed), 19)
        assert mend("shop", changed, self.stored(schedule)) == wanted
        assert mend("shop", schedule, self.stored(schedule), expires_in=MINUTE) != Keep()

    def test_what_does_not_fire_has_no_message(self):
        paused = pause(declared(), at(5))
        assert mend("shop", paused, self.stored(paused)) == Purge(19)
        assert mend("shop", paused, None) == Keep()


class TestVersions:
    ORDERED = (
        "0.9",
        "1.0.dev1",
        "1.0a1.dev2",
        "1.0a1",
        "1.0-alpha.2",
        "1.0b1",
        "1.0c1",
        "1.0rc2",
        "1.0",
        "1.0+abc",
        "1.0+5",
        "1.0.post1.dev1",
        "1.0-1",
        "1.0.post2",
        "1.0.1",
        "1.1",
        "1.10",
        "2024.1",
        "1!0.1",
    )

    def test_releases_sort_as_pep_440_does(self):
        for place, earlier in enumerate(self.ORDERED):
            for later in self.ORDERED[place + 1 :]:
                assert not_older(later, earlier), (later, earlier)
                assert not not_older(earlier, later), (later, earlier)

    @pytest.mark.parametrize("one, other", [("1.0", "v1"), ("1.0.0", "1"), ("1.0ALPHA1", "1.0a1"), ("1.0rc", "1.0c0")])
    def test_spellings_of_one_release(self, one: str, other: str):
        assert version_key(one) == version_key(other)

    @pytest.mark.parametrize("text", ["", "main", "1.0-", "1..0", "1.0+", "9" * 300])
    def test_what_is_no_release_is_older_than_any(self, text: str):
        assert version_key(text) is None
        assert not_older("0.0.1", text)
        assert not not_older(text, "0.0.1")
