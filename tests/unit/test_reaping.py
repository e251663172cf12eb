"""Which runs the reaper ends, and which it must leave alone."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.lifecycle import IllegalTransition
from jetjobs._core.models import RunStatus
from jetjobs._core.reaping import ReapingRules, doubt, reap_running, reap_waiting
from tests.unit import strategies as some

RULES = ReapingRules(lost_after=timedelta(minutes=5), retry_slack=timedelta(minutes=2))
TICK = timedelta(microseconds=1)


def test_a_beating_heart_is_fine():
    beats = some.record(started_at=some.NOW - timedelta(days=2), heartbeat_at=some.NOW - timedelta(minutes=5))
    assert doubt(beats, RULES, some.NOW) == "fine"
    assert doubt(beats, RULES, some.NOW + TICK) == "owner"


def test_without_a_heartbeat_the_start_counts():
    started = some.record(started_at=some.NOW, heartbeat_at=None)
    assert doubt(started, RULES, some.NOW + timedelta(minutes=5)) == "fine"
    assert doubt(started, RULES, some.NOW + timedelta(minutes=5) + TICK) == "owner"


def test_a_running_run_of_unknown_age_is_looked_into():
    assert doubt(some.record(started_at=None, heartbeat_at=None), RULES, some.NOW) == "owner"


def test_a_retry_gets_its_slack_before_anybody_looks():
    waits = some.record(RunStatus.RETRYING, retry_at=some.NOW)
    assert doubt(waits, RULES, some.NOW + timedelta(minutes=2)) == "fine"
    assert doubt(waits, RULES, some.NOW + timedelta(minutes=2) + TICK) == "retry"
    assert doubt(some.record(RunStatus.RETRYING, retry_at=None), RULES, some.NOW) == "retry"


@some.brief
@given(some.records(some.TERMINAL), some.instants)
def test_an_ended_run_is_always_fine(record: some.RunRecord, now: datetime):
    assert doubt(record, RULES, now) == "fine"


def test_the_defaults_are_five_minutes():
    assert ReapingRules() == ReapingRules(lost_after=timedelta(minutes=5), retry_slack=timedelta(minutes=5))


@pytest.mark.parametrize("there", [True, False])
def test_a_run_whose_host_answers_is_left_alone(there: bool):  # noqa: FBT001
    last = some.record(starts=3)
    assert reap_running(last, some.NOW, owner_message_there=there, owner_holds=True) is None


def test_a_run_that_will_be_redelivered_is_left_to_its_next_attempt():
    assert reap_running(some.record(starts=2), some.NOW, owner_message_there=True, owner_holds=False) is None


@pytest.mark.parametrize("starts,there", [(1, False), (3, False), (3, True)])
def test_a_run_that_nothing_will_end_is_failed_as_lost(starts: int, there: bool):  # noqa: FBT001
    later = some.NOW + timedelta(hours=1)
    ended = reap_running(some.record(starts=starts), later, owner_message_there=there, owner_holds=False)
    assert ended is not None
    assert (ended.status, ended.finished_at) == (RunStatus.FAILED, later)
    assert ended.error is not None
    assert ended.error.message == "lost: no heartbeat since 2030-05-01T12:00:00+00:00"
    assert [(each.attempt, each.outcome, each.host_id) for each in ended.attempts] == [(starts, "LOST", "other")]


def test_a_lost_run_that_was_to_be_cancelled_is_cancelled():
    asked = some.record(starts=3, cancel_asked=True)
    ended = reap_running(asked, some.NOW, owner_message_there=False, owner_holds=False)
    assert ended is not None
    assert ended.status is RunStatus.CANCELLED


def test_a_retry_that_is_there_is_waited_for():
    assert reap_waiting(some.record(RunStatus.RETRYING), some.NOW, anything_there=True) is None


@pytest.mark.parametrize("error,text", [(None, "is gone"), (some.BOOM, "is gone; ValueError: boom")])
def test_a_retry_whose_message_is_gone_fails_with_its_last_error(error: some.RunError | None, text: str):
    ended = reap_waiting(some.record(RunStatus.RETRYING, error=error), some.NOW, anything_there=False)
    assert ended is not None
    assert (ended.status, ended.finished_at, ended.retry_at) == (RunStatus.FAILED, some.NOW, None)
    assert ended.error is not None
    assert ended.error.type == "Lost"
    assert ended.error.message.endswith(text)


def test_a_retry_whose_message_is_gone_is_cancelled_when_that_was_asked():
    asked = some.record(RunStatus.RETRYING, cancel_asked=True)
    ended = reap_waiting(asked, some.NOW, anything_there=False)
    assert ended is not None
    assert (ended.status, ended.finished_at, ended.retry_at) == (RunStatus.CANCELLED, some.NOW, None)


@some.brief
@given(some.records(some.TERMINAL), st.booleans())
def test_no_reaper_can_touch_an_ended_run(record: some.RunRecord, there: bool):  # noqa: FBT001
    with pytest.raises(IllegalTransition):
        reap_waiting(record, some.NOW, anything_there=False)
    if not there or record.attempt >= record.max_attempts:
        with pytest.raises(IllegalTransition):
            reap_running(record, some.NOW, owner_message_there=there, owner_holds=False)
