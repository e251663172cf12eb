"""What a host does about the schedules that code declares, beside those that are stored."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from jetjobs._core.declared import (
    DEFINED,
    Declarer,
    ensure,
    may_remove,
)
from jetjobs._core.occurrences import DecisionRules
from jetjobs._core.schedule_record import ScheduleState
from jetjobs._core.schedules import delete, disable, pause
from jetjobs._core.triggers import Cron, Every, schedule_id
from tests.unit.schedules_made import JOB, MINUTE, NOON, at, declared, every, host


class TestDeclared:
    def test_a_new_schedule_is_made(self):
        trigger = Cron(
            "0 2 * * *",
            timezone="Europe/Paris",
            payload={"n": 1},
            jitter="5m",
            coalesce="all",
            end_at=NOON + 9 * MINUTE,
        )
        assert declared(trigger).state is ScheduleState.COMPLETED
        trigger = Cron("0 2 * * *", timezone="Europe/Paris", payload={"n": 1}, jitter="5m", overlap="queue")
        made = declared(trigger, host("h1", "1.0"))
        assert made.schedule_id == schedule_id(JOB, "cron")
        assert (made.name, made.kind, made.line, made.interval) == (
            "billing.invoices.send/cron",
            "cron",
            "0 2 * * *",
            None,
        )
        assert (made.version, made.declared_by, made.created_at, made.cursor) == ("1.0", "h1", NOON, NOON)
        assert made.payload_body is not None
        assert made.payload_body.value == {"n": 1}
        assert made.next_run_at == datetime(2030, 5, 2, 2, tzinfo=ZoneInfo("Europe/Paris"))
        decision = ensure(made, None, NOON, declarer_lives=False).decision
        assert decision is not None
        assert decision.schedule is made

    def test_the_same_declaration_writes_nothing(self):
        found = declared(who=host("h1", "1.0"))
        for version in ("1.0", "0.9", None):
            again = declared(who=host("h2", version), now=at(500))
            for lives in (True, False):
                assert ensure(again, found, at(500), declarer_lives=lives) == ensure(
                    again, found, at(600), declarer_lives=lives
                )
                assert ensure(again, found, at(500), declarer_lives=lives).decision is None

    def test_a_newer_release_signs_what_it_leaves_as_it_is(self):
        found = declared(who=host("h1", "1.9"))
        ensured = ensure(declared(who=host("h2", "1.10")), found, at(5), declarer_lives=True)
        assert ensured.decision is not None
        assert ensured.decision.schedule == replace(found, version="1.10", declared_by="h2")

    @pytest.mark.parametrize(
        "mine, theirs, lives, allowed",
        [
            ("1.1", "1.0", True, True),
            ("1.0", "1.0", True, True),
            ("1.0", "1.1", False, False),
            (None, "1.0", False, False),
            ("1.0", None, True, True),
            (None, None, True, False),
            (None, None, False, True),
        ],
    )
    def test_who_may_change(self, mine: str | None, theirs: str | None, lives: bool, allowed: bool):  # noqa: FBT001
        found = replace(declared(who=host("h1", theirs)), counters=replace(every().counters, missed=7))
        wanted = declared(Every("90s"), host("h2", mine), at(5))
        ensured = ensure(wanted, found, at(30), declarer_lives=lives)
        assert may_remove(found, host("h2", mine), declarer_lives=lives, job_lives=True) is allowed
        if not allowed:
            assert ensured.decision is None
            assert ensured.warning is not None
            assert "differs in interval, line" in ensured.warning
            return
        assert ensured.warning is None
        assert ensured.decision is not None
        changed = ensured.decision.schedule
        assert (changed.interval, changed.revision, changed.counters.missed) == (timedelta(seconds=90), 2, 7)
        assert (changed.version, changed.declared_by) == (mine, "h2")
        assert (changed.created_at, changed.schedule_id) == (NOON, found.schedule_id)

    def test_a_host_may_change_what_it_declared_itself(self):
        assert ensure(declared(Every("90s")), declared(), at(5), declarer_lives=True).decision is not None

    def test_a_pause_outlives_every_declaration(self):
        paused = pause(declared(), at(5))
        changed = ensure(declared(Every("90s"), host("h2", "2")), paused, at(9), declarer_lives=True).decision
        assert changed is not None
        assert (changed.schedule.state, changed.schedule.line) == (ScheduleState.PAUSED, "1m30s")
        assert ensure(declared(), paused, at(9), declarer_lives=True).decision is None

    def test_a_disabled_one_wakes_with_its_job(self):
        asleep = disable(declared(), at(70))
        for trigger, line in ((Every("60s"), "1m"), (Every("90s"), "1m30s")):
            woken = ensure(declared(trigger), asleep, at(500), declarer_lives=True).decision
            assert woken is not None
            assert (woken.schedule.state, woken.schedule.cursor) == (ScheduleState.ACTIVE, at(500))
            assert (woken.started, woken.schedule.line) == ((at(60),), line)

    def test_what_wakes_in_passes_is_changed_after_them(self):
        found = replace(declared(Every("1s", coalesce="all", overlap="queue")), misfire_grace=None)
        rules = DecisionRules(pass_size=10)
        first = ensure(
            declared(Every("90s")), disable(found, at(25)), at(99), declarer_lives=True, rules=rules
        ).decision
        assert first is not None
        assert (first.more, first.schedule.state, first.schedule.line) == (True, ScheduleState.DISABLED, "1s")

    def test_a_tombstone_stands_against_older_releases(self):
        gone = delete(replace(declared(who=host("h1", "2.0"))), at(5))
        refused = ensure(declared(who=host("h2", "1.0")), gone, at(9), declarer_lives=False)
        assert refused.decision is None
        assert refused.warning is not None
        assert "was removed: as declared by release 2.0" in refused.warning
        again = ensure(declared(who=host("h2", "2.1")), gone, at(9), declarer_lives=False).decision
        assert again is not None
        assert (again.schedule.state, again.schedule.version) == (ScheduleState.ACTIVE, "2.1")

    def test_only_ones_own_jobs_lose_schedules(self):
        found = declared(who=host("h1", "1.0"))
        newer = host("h2", "1.0")
        assert may_remove(found, newer, declarer_lives=True, job_lives=True)
        other_job = Declarer("h2", "1.1", frozenset(), frozenset({JOB.module}))
        assert may_remove(found, other_job, declarer_lives=True, job_lives=False)
        assert not may_remove(found, other_job, declarer_lives=True, job_lives=True)
        stranger = Declarer("h2", "1.1", frozenset(), frozenset({"other"}))
        assert not may_remove(found, stranger, declarer_lives=False, job_lives=False)
        assert not may_remove(replace(found, origin="api"), newer, declarer_lives=False, job_lives=False)
        assert not may_remove(delete(found, at(5)), newer, declarer_lives=False, job_lives=False)

    def test_every_defined_field_is_one(self):
        assert all(hasattr(declared(), name) for name in DEFINED)
