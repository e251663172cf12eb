"""What becomes of a run when its handler ended, and that its counters add up over a whole life."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.bodies import Body
from jetjobs._core.completion import (
    Cancelled,
    CompletionRules,
    Ending,
    Raised,
    Returned,
    ShutDown,
    Skipped,
    Snoozed,
    TimedOut,
    settle,
)
from jetjobs._core.delivery import DeliveryRules, Write, decide
from jetjobs._core.lifecycle import IllegalTransition
from jetjobs._core.models import Attempt, RunError, RunRecord, RunStatus
from jetjobs._core.policy import JobPolicy
from jetjobs._core.retry import MAX_INTERRUPTIONS
from tests.unit import strategies as some

S = RunStatus
NOW = some.NOW
END = NOW + timedelta(seconds=9)
BOOM = some.BOOM
VALUE = Body(b"\x2a")
RULES = some.completion(max_attempts=3)


def settled(ending: Ending, rules: CompletionRules = RULES, **changes: Any) -> RunRecord:
    return some.sound(settle(some.record(**changes), ending, rules, END))


def last(record: RunRecord) -> Attempt:
    return record.attempts[-1]


class TestDone:
    def test_a_value_is_kept_and_an_earlier_error_is_gone(self):
        record = settled(Returned(VALUE), error=BOOM, starts=2)
        assert (record.status, record.result_body, record.error) == (S.SUCCEEDED, VALUE, None)
        assert (record.finished_at, record.heartbeat_at) == (END, END)
        assert last(record) == Attempt(2, "me", NOW, END, "SUCCEEDED", None)

    def test_success_counts_whatever_was_asked(self):
        assert settled(Returned(VALUE), cancel_asked=True).status is S.SUCCEEDED

    def test_a_skip_is_no_error(self):
        record = settled(Skipped("nothing due"), error=BOOM)
        assert (record.status, record.skip_reason, record.error) == (S.SKIPPED, "nothing due", None)
        assert (last(record).outcome, record.finished_at) == ("SKIPPED", END)

    def test_a_return_after_the_timeout_is_timed_out_and_keeps_its_value(self):
        record = settled(Returned(VALUE, late=True), starts=3)
        assert (record.status, record.result_body) == (S.TIMED_OUT, VALUE)
        assert record.error is not None
        assert record.error.type == "TimedOut"

    def test_a_late_return_is_retried_like_any_timeout(self):
        record = settled(Returned(VALUE, late=True))
        assert (record.status, record.result_body, last(record).outcome) == (S.RETRYING, None, "TIMED_OUT")


class TestCancelled:
    @pytest.mark.parametrize(
        "ending,error",
        [
            (Raised(BOOM), BOOM),
            (TimedOut(BOOM), BOOM),
            (ShutDown(BOOM), BOOM),
            (Snoozed(timedelta(1)), None),
            (Cancelled(), None),
            (Returned(VALUE, late=True), None),
        ],
    )
    def test_no_further_attempt_once_a_cancel_was_asked(self, ending: Ending, error: RunError | None):
        record = settled(ending, cancel_asked=True, error=RunError("Earlier"))
        assert (record.status, record.error, record.finished_at) == (S.CANCELLED, error, END)
        assert last(record).outcome == "CANCELLED"

    def test_a_handler_stopped_by_a_cancel_is_cancelled_even_before_its_host_read_the_mark(self):
        assert settled(Cancelled()).status is S.CANCELLED


class TestFailed:
    def test_a_failure_with_attempts_left_waits_for_its_backoff(self):
        record = settled(Raised(BOOM), starts=2, turn=4)
        assert (record.status, record.turn, record.error) == (S.RETRYING, 5, BOOM)
        assert record.retry_at == END + timedelta(seconds=2)
        assert (record.finished_at, record.heartbeat_at) == (None, END)
        assert (record.starts, record.attempt, record.claim, record.owner) == (2, 2, "theirs", some.owner())
        assert last(record) == Attempt(2, "me", NOW, END, "FAILED", RunError("ValueError", "boom"))

    def test_the_dice_reach_the_backoff(self):
        assert settled(Raised(BOOM), some.completion(0.0)).retry_at == END + timedelta(seconds=0.9)

    def test_the_handlers_own_delay_wins_even_when_it_is_none(self):
        assert settled(Raised(BOOM, after=timedelta(minutes=3))).retry_at == END + timedelta(minutes=3)
        assert settled(Raised(BOOM, after=timedelta(0))).retry_at == END

    def test_the_last_attempt_decides(self):
        record = settled(Raised(BOOM), starts=3)
        assert (record.status, record.error, record.finished_at) == (S.FAILED, BOOM, END)
        assert settled(TimedOut(BOOM), starts=3).status is S.TIMED_OUT
        assert settled(TimedOut(BOOM), starts=2).status is S.RETRYING

    def test_snoozes_and_interruptions_cost_no_attempt(self):
        assert settled(Raised(BOOM), starts=6, snoozes=2, interruptions=2).status is S.RETRYING
        assert settled(Raised(BOOM), starts=6, snoozes=2, interruptions=1).status is S.FAILED

    def test_what_is_not_worth_a_retry_gets_none(self):
        assert settled(Raised(BOOM, again=False)).status is S.FAILED

    def test_a_retry_that_would_come_too_late_is_told_so(self):
        at = END + timedelta(seconds=1)
        assert settled(Raised(BOOM), expires_at=at + timedelta(microseconds=1)).status is S.RETRYING
        record = settled(Raised(BOOM), expires_at=at)
        assert (record.status, record.finished_at, record.retry_at) == (S.FAILED, END, None)
        assert record.error == RunError(
            "Expired", "trigger expired before it could be retried; ValueError: boom", BOOM.traceback
        )
        assert last(record).outcome == "FAILED"
        assert settled(TimedOut(BOOM), expires_at=at).status is S.FAILED

    def test_an_absurd_delay_is_too_late_and_no_crash(self):
        assert settled(Raised(BOOM, after=timedelta.max)).status is S.FAILED
        assert settled(Snoozed(timedelta.max)).status is S.FAILED


class TestSnoozed:
    def test_it_waits_and_costs_nothing(self):
        record = settled(Snoozed(timedelta(hours=1)), starts=3, error=BOOM, turn=2)
        assert (record.status, record.retry_at, record.turn) == (S.RETRYING, END + timedelta(hours=1), 3)
        assert (record.snoozes, record.attempt, record.error) == (1, 2, BOOM)
        assert last(record) == Attempt(3, "me", NOW, END, "SNOOZED", None)

    @pytest.mark.parametrize(
        "error,message",
        [
            (None, "trigger expired before it could be retried"),
            (BOOM, "trigger expired before it could be retried; ValueError: boom"),
        ],
    )
    def test_it_does_not_outlive_its_run(self, error: RunError | None, message: str):
        record = settled(Snoozed(timedelta(days=8)), error=error)
        assert (record.status, record.snoozes) == (S.FAILED, 0)
        assert record.error is not None
        assert record.error.message == message

    def test_snoozing_for_less_than_the_timeout_ends_with_the_run(self):
        policy = JobPolicy(timeout="1h", expires_in="10m")
        now, record = NOW, some.record(S.RETRYING, expires_at=NOW + timedelta(minutes=10), max_attempts=1, starts=0)
        for _ in range(11):
            action = decide(
                record, some.trigger(turn=record.turn), some.knows(), rules=DeliveryRules("me", policy), now=now
            )
            assert isinstance(action, Write)
            record = settle(action.record, Snoozed(timedelta(minutes=1)), CompletionRules("me", policy), now)
            if record.status.is_terminal:
                break
            now += timedelta(minutes=1)
        assert record.status is S.FAILED
        assert now < NOW + timedelta(minutes=10)


class TestShutDown:
    def test_an_interrupted_run_goes_back_at_once_and_costs_nothing(self):
        record = settled(ShutDown(BOOM), starts=3)
        assert (record.status, record.retry_at, record.interruptions, record.attempt) == (S.RETRYING, END, 1, 2)
        assert (record.error, last(record).outcome) == (BOOM, "INTERRUPTED")

    @pytest.mark.parametrize("left", [10, 1])
    def test_a_run_with_one_attempt_or_told_so_fails(self, left: int):
        once = settled(ShutDown(BOOM), max_attempts=1)
        assert (once.status, once.error, once.finished_at) == (S.FAILED, BOOM, END)
        told = settled(ShutDown(BOOM), some.completion(on_shutdown="fail"), max_attempts=left)
        assert (told.status, told.error) == (S.FAILED, BOOM)

    def test_the_eleventh_interruption_costs_an_attempt(self):
        ninth = settled(ShutDown(BOOM), starts=10, interruptions=9)
        assert (ninth.interruptions, ninth.attempt) == (MAX_INTERRUPTIONS, 0)
        tenth = settled(ShutDown(BOOM), starts=11, interruptions=10)
        assert (tenth.status, tenth.interruptions, tenth.attempt) == (S.RETRYING, 10, 1)
        assert last(tenth).outcome == "INTERRUPTED"
        final = settled(ShutDown(BOOM), starts=13, interruptions=10)
        assert (final.status, final.error) == (S.FAILED, BOOM)

    def test_an_expired_run_does_not_go_back(self):
        assert settled(ShutDown(BOOM), expires_at=END).status is S.FAILED


def test_the_traceback_is_kept_once():
    record = settled(Raised(BOOM))
    assert record.error is not None
    assert record.error.traceback
    assert last(record).error == RunError(BOOM.type, BOOM.message, "")


def test_the_last_twenty_attempts_are_kept():
    many = tuple(Attempt(n, "h", None, None, "FAILED") for n in range(1, 21))
    for ending in (Raised(BOOM), Returned()):
        kept = settled(ending, starts=2, attempts=many).attempts
        assert (len(kept), kept[0].attempt, kept[-1].attempt) == (20, 2, 2)


# ------------------------------------------------------------------ properties


@some.brief
@given(some.records(some.TERMINAL), some.endings, some.policies())
def test_an_ended_run_cannot_be_settled_again(record: RunRecord, ending: Ending, policy: JobPolicy):
    with pytest.raises(IllegalTransition):
        settle(record, ending, CompletionRules("me", policy), END)


@some.brief
@given(some.records((S.RUNNING,)), some.endings, some.policies(), some.rolls, some.instants)
def test_what_waits_has_an_attempt_left_and_time_for_it(
    record: RunRecord, ending: Ending, policy: JobPolicy, roll: float, now: datetime
):
    after = some.sound(settle(record, ending, CompletionRules("me", policy, roll), now))
    assert after.claim == record.claim
    assert after.owner == record.owner
    if after.status is S.RETRYING:
        assert not record.cancel_asked
        assert after.attempt < after.max_attempts
        assert after.retry_at is not None
        assert after.retry_at >= now
        assert after.expires_at is None or after.retry_at < after.expires_at
        assert after.turn == record.turn + 1
    else:
        assert after.status.is_terminal
        assert (after.finished_at, after.turn) == (now, record.turn)


@some.brief
@given(some.policies(), st.lists(st.none() | some.endings, max_size=40), st.integers(0, 3_600))
def test_the_counters_add_up_over_a_whole_life(policy: JobPolicy, life: list[Ending | None], pause: int):
    """`None` in a life is a host that dies: the next delivery takes the run over."""
    rules, done = DeliveryRules("me", policy), CompletionRules("me", policy)
    now, record = NOW, None
    starts = free = 0
    for n, ending in enumerate(life, 1):
        turn = record.turn if record is not None else 1
        now += timedelta(seconds=pause)
        action = decide(record, some.trigger(n=n, turn=turn), some.knows(holds=False), rules=rules, now=now)
        assert isinstance(action, Write)
        record = action.record
        starts += action.then == "start"
        if action.then == "start" and ending is not None:
            record = settle(record, ending, done, now)
            free += record.status is S.RETRYING and record.attempts[-1].outcome in {"SNOOZED", "INTERRUPTED"}
            if record.status is S.RETRYING and isinstance(ending, ShutDown) and policy.on_shutdown == "retry":
                free -= record.interruptions == MAX_INTERRUPTIONS and record.attempts[-1].attempt == record.attempt
        assert record.starts == starts
        assert record.attempt == record.starts - record.snoozes - record.interruptions == starts - free
        assert 0 <= record.attempt <= record.max_attempts == policy.max_attempts
        assert record.interruptions <= MAX_INTERRUPTIONS
        assert len(record.attempts) <= 20
        if record.status.is_terminal:
            break
        if record.status is S.RUNNING:
            now += timedelta(seconds=61)
        else:
            record = replace(record, owner=some.owner(n=n, host="me"))
