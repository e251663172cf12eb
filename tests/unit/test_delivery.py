"""What a host does with a delivery, rule by rule; each test is named after what the rule prevents."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.delivery import (
    Ack,
    Action,
    Ask,
    DeliveryRules,
    Drop,
    Help,
    ReadAgain,
    Situation,
    Write,
    decide,
    expiry_of,
    lost,
    lost_attempt,
)
from jetjobs._core.messages import Trigger
from jetjobs._core.models import KEPT_ATTEMPTS, Attempt, Owner, Progress, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.retry import END_OF_TIME
from tests.support.decided import written
from tests.unit import strategies as some

S = RunStatus


NOW = some.NOW


TICK = timedelta(microseconds=1)


NO = some.knows(holds=False)


def decided(
    record: RunRecord | None,
    trigger: Trigger,
    situation: Situation = NO,
    *,
    now: datetime = NOW,
    rules: DeliveryRules | None = None,
) -> Action:
    return decide(record, trigger, situation, rules=rules or some.rules(max_attempts=3), now=now)


class TestFirstStart:
    def test_the_record_tells_who_runs_what_and_since_when(self):
        info = TriggerInfo("child", schedule_id="s", parent_run_id="p", retry_of="o")
        trigger = some.trigger(n=2, turn=3, info=info, idempotency_key="k", scheduled_for=NOW - TICK)
        started = NOW + timedelta(seconds=1)
        record = written(decided(None, trigger, now=started), "start")
        assert record.status is S.RUNNING
        assert (record.starts, record.attempt, record.turn, record.max_attempts) == (1, 1, 3, 3)
        assert record.claim == "mine"
        assert record.owner == Owner(7, NOW, 2, "me")
        assert (record.host_id, record.version, record.payload_digest) == ("me", "2.0", "digest")
        assert (record.started_at, record.heartbeat_at) == (started, started)
        assert (record.created_at, record.fired_at) == (NOW, NOW)
        assert record.run_key == some.KEY
        assert (record.schedule_id, record.parent_run_id, record.retry_of) == ("s", "p", "o")
        assert (record.key, record.scheduled_for, record.trigger) == ("k", NOW - TICK, info)
        assert record.payload_body == trigger.body
        assert record.expires_at == NOW + timedelta(days=7)

    def test_a_host_without_a_release_names_none(self):
        rules = replace(some.rules(), version=None)
        assert written(decided(None, some.trigger(), rules=rules), "start").version is None

    def test_one_that_is_late_is_missed_and_never_started(self):
        trigger = some.trigger(start_deadline=NOW)
        assert written(decided(None, trigger, now=NOW), "start").start_deadline == NOW
        record = written(decided(None, trigger, now=NOW + TICK), "ack")
        assert (record.status, record.starts, record.finished_at) == (S.MISSED, 0, NOW + TICK)
        assert (record.claim, record.owner, record.host_id) == (None, None, None)
        assert (record.started_at, record.heartbeat_at) == (None, None)
        assert record.skip_reason == "not started by its start deadline, 2030-05-01T12:00:00.000+00:00"
        assert record.expires_at == NOW + timedelta(days=7)

    def test_one_that_expired_in_the_queue_is_missed(self):
        trigger = some.trigger(expires_in=timedelta(hours=1))
        at = NOW + timedelta(hours=1)
        assert written(decided(None, trigger, now=at), "start").expires_at == at
        record = written(decided(None, trigger, now=at + TICK), "ack")
        assert record.status is S.MISSED
        assert record.skip_reason == "not started before it expired, 2030-05-01T13:00:00.000+00:00"

    def test_the_timeout_moves_no_expiry(self):
        trigger = some.trigger(expires_in=timedelta(seconds=5))
        record = written(decided(None, trigger, rules=some.rules(timeout="1h")), "start")
        assert record.expires_at == NOW + timedelta(seconds=5)


class TestExpiry:
    def test_the_message_says_it(self):
        at = NOW + timedelta(hours=3)
        assert expiry_of(some.trigger(expires_at=at, expires_in=timedelta(1)), some.rules()) == at
        assert expiry_of(some.trigger(expires_in=timedelta(0)), some.rules()) == NOW

    def test_or_the_policy_by_the_kind_of_trigger(self):
        assert expiry_of(some.trigger(), some.rules()) == NOW + timedelta(days=7)
        event = some.trigger(info=TriggerInfo("event"))
        assert expiry_of(event, some.rules()) == NOW + timedelta(hours=24)
        assert expiry_of(event, some.rules(expires_in={"event": "2h"})) == NOW + timedelta(hours=2)

    def test_an_absurd_span_is_no_error(self):
        assert expiry_of(some.trigger(expires_in=timedelta.max), some.rules()) == END_OF_TIME


class TestEnded:
    @pytest.mark.parametrize("status", some.TERMINAL)
    def test_a_late_copy_is_retired(self, status: RunStatus):
        assert isinstance(decided(some.record(status), some.trigger(8)), Ack)
        assert isinstance(decided(some.record(status, owner=None), some.trigger()), Ack)

    def test_a_recreated_streams_message_of_the_same_number_is_another(self):
        trigger = some.trigger(stored_at=NOW + TICK)
        assert isinstance(decided(some.record(S.FAILED), trigger, some.knows()), Ack)

    def test_an_older_delivery_does_not_free_the_owners_slot(self):
        ended = some.record(S.TIMED_OUT, owner=some.owner(n=2))
        assert isinstance(decided(ended, some.trigger(n=1)), Drop)
        assert isinstance(decided(ended, some.trigger(n=2)), Ack)

    def test_a_thread_that_goes_on_keeps_its_slot(self):
        ended = some.record(S.TIMED_OUT)
        assert decided(ended, some.trigger(n=2), some.knows()) == Ask("other", "theirs")
        assert isinstance(decided(ended, some.trigger(n=2), some.knows(holds=True)), Drop)
        assert isinstance(decided(ended, some.trigger(n=2), some.knows(holds=False)), Ack)

    def test_a_host_knows_its_own_answer(self):
        ended = some.record(S.FAILED, owner=some.owner(host="me"))
        assert isinstance(decided(ended, some.trigger(n=2), some.knows()), Ack)


class TestRunning:
    def test_a_copy_is_retired_at_once(self):
        assert isinstance(decided(some.record(), some.trigger(8), some.knows()), Ack)
        assert isinstance(decided(some.record(owner=None), some.trigger(), some.knows()), Ack)

    def test_an_old_delivery_takes_nothing_from_its_owner(self):
        running = some.record(owner=some.owner(n=2))
        for n in (1, 2):
            assert isinstance(decided(running, some.trigger(n=n)), Drop)

    def test_an_owner_that_answers_keeps_its_run(self):
        assert decided(some.record(), some.trigger(n=2), some.knows()) == Ask("other", "theirs")
        assert isinstance(decided(some.record(), some.trigger(n=2), some.knows(holds=True)), Drop)

    def test_a_claim_of_my_own_that_i_lost_track_of_needs_no_ask(self):
        mine = some.record(owner=some.owner(host="me"), host_id="me")
        assert written(decided(mine, some.trigger(n=2), some.knows()), "start").starts == 2

    def test_a_dead_owners_run_is_taken_over_as_the_next_attempt(self):
        running = some.record(progress=Progress(1), retry_at=NOW, turn=2)
        at = NOW + timedelta(minutes=1)
        record = written(decided(running, some.trigger(n=4, turn=2), now=at), "start")
        assert (record.status, record.starts, record.attempt, record.turn) == (S.RUNNING, 2, 2, 2)
        assert (record.claim, record.owner, record.host_id) == ("mine", Owner(7, NOW, 4, "me"), "me")
        assert (record.started_at, record.heartbeat_at, record.version) == (at, at, "2.0")
        assert (record.retry_at, record.progress) == (None, None)
        assert record.attempts == (Attempt(1, "other", NOW, None, "LOST"),)
        assert record.expires_at == running.expires_at

    def test_a_cancelled_run_gets_no_further_attempt(self):
        asked = some.record(cancel_asked=True)
        record = written(decided(asked, some.trigger(n=2)), "ack")
        assert (record.status, record.finished_at, record.attempts) == (S.CANCELLED, NOW, lost_attempt(asked))

    def test_an_expired_run_is_not_started_again(self):
        at = NOW + timedelta(hours=1)
        running = some.record(expires_at=at)
        assert written(decided(running, some.trigger(n=2), now=at), "start")
        record = written(decided(running, some.trigger(n=2), now=at + TICK), "ack")
        assert (record.status, record.finished_at) == (S.FAILED, at + TICK)
        assert record.error is not None
        assert record.error.type == "Expired"
        assert record.error.message == "trigger expired before it could be retried; its host was lost"
        assert [each.outcome for each in record.attempts] == ["LOST"]

    def test_one_that_was_put_off_says_so(self):
        at = NOW + timedelta(hours=1)
        waiting = some.record(status=S.RETRYING, turn=2, snoozes=1, retry_at=NOW, expires_at=at)
        record = written(decided(waiting, some.trigger(turn=2), now=at + TICK), "ack")
        assert record.error is not None
        assert record.error.message == "trigger expired before it could be retried; it had been put off"

    def test_an_attempt_that_began_in_time_has_its_whole_timeout(self):
        rules = some.rules(timeout="1h")
        running = some.record(expires_at=NOW + timedelta(minutes=1))
        at = NOW + timedelta(hours=1)
        assert written(decided(running, some.trigger(n=2), now=at, rules=rules), "start").status is S.RUNNING
        assert written(decided(running, some.trigger(n=2), now=at + TICK, rules=rules), "ack").status is S.FAILED
        unknown = some.record(expires_at=NOW - TICK, started_at=None)
        assert written(decided(unknown, some.trigger(n=2), rules=rules), "ack").status is S.FAILED

    def test_after_an_outage_every_owner_gets_one_ack_wait_to_come_back(self):
        short = some.knows(holds=False, connected=some.ACK_WAIT - TICK)
        for record in (some.record(), some.record(starts=3, heartbeat_at=NOW - timedelta(days=1))):
            assert isinstance(decided(record, some.trigger(n=2), short), Drop)
        enough = some.knows(holds=False, connected=some.ACK_WAIT)
        assert isinstance(decided(some.record(), some.trigger(n=2), enough), Write)

    def test_a_last_attempt_is_lost_only_after_twice_the_ack_wait(self):
        last = some.record(starts=3, started_at=NOW - timedelta(days=1))
        at = NOW + 2 * some.ACK_WAIT
        assert isinstance(decided(last, some.trigger(n=2), now=at), Drop)
        record = written(decided(last, some.trigger(n=2), now=at + TICK), "ack")
        assert (record.status, record.attempt, record.finished_at) == (S.FAILED, 3, at + TICK)
        assert record.error is not None
        assert record.error.message == "lost: no heartbeat since 2030-05-01T12:00:00+00:00"

    def test_without_a_heartbeat_its_start_counts(self):
        last = some.record(starts=3, heartbeat_at=None)
        assert isinstance(decided(last, some.trigger(n=2), now=NOW + timedelta(seconds=60)), Drop)
        assert isinstance(decided(last, some.trigger(n=2), now=NOW + timedelta(seconds=61)), Write)

    def test_one_that_says_nothing_about_its_age_is_lost(self):
        last = some.record(starts=3, heartbeat_at=None, started_at=None)
        record = written(decided(last, some.trigger(n=2)), "ack")
        assert record.error is not None
        assert record.error.message == "lost: no heartbeat since its start"


class TestWaiting:
    def test_its_own_turn_starts_it(self):
        waiting = some.record(S.RETRYING, turn=2, attempts=(Attempt(1, "other", NOW, NOW, "FAILED"),))
        record = written(decided(waiting, some.trigger(9, turn=2), some.knows()), "start")
        assert (record.status, record.starts, record.turn, record.retry_at) == (S.RUNNING, 2, 2, None)
        assert (record.claim, record.owner) == ("mine", Owner(9, NOW, 1, "me"))
        assert record.attempts == waiting.attempts

    def test_a_start_right_after_a_reconnect_is_no_take_over(self):
        waiting = some.record(S.RETRYING, turn=2)
        assert isinstance(decided(waiting, some.trigger(9, turn=2), some.knows(connected=timedelta(0))), Write)

    def test_the_owners_message_repairs_a_retry_that_was_never_published(self):
        waiting = some.record(S.RETRYING, turn=2)
        assert decided(waiting, some.trigger(n=2, turn=1), some.knows()) == Help(waiting)

    def test_an_old_copy_cannot_cut_a_delay_short(self):
        assert isinstance(decided(some.record(S.RETRYING, turn=2), some.trigger(8, turn=1)), Ack)
        assert isinstance(decided(some.record(S.RETRYING, turn=2, owner=None), some.trigger(turn=1)), Ack)

    def test_a_message_from_the_future_means_an_old_read(self):
        assert decided(some.record(S.RETRYING, turn=2), some.trigger(turn=3)) == ReadAgain()

    def test_it_is_not_started_after_it_expired_whatever_its_timeout(self):
        waiting = some.record(S.RETRYING, turn=2, error=some.BOOM, expires_at=NOW)
        rules = some.rules(timeout="1h")
        assert written(decided(waiting, some.trigger(turn=2), now=NOW, rules=rules), "start")
        record = written(decided(waiting, some.trigger(turn=2), now=NOW + TICK, rules=rules), "ack")
        assert (record.status, record.retry_at, record.attempts) == (S.FAILED, None, ())
        assert record.error is not None
        assert record.error.message == "trigger expired before it could be retried; ValueError: boom"
        assert record.error.traceback == some.BOOM.traceback

    def test_it_is_not_started_once_a_cancel_was_asked(self):
        waiting = some.record(S.RETRYING, turn=2, cancel_asked=True)
        record = written(decided(waiting, some.trigger(turn=2)), "ack")
        assert (record.status, record.retry_at, record.finished_at) == (S.CANCELLED, None, NOW)


def test_twenty_attempts_are_kept_and_the_last_ones():
    attempts = tuple(Attempt(n, "h", None, None, "FAILED") for n in range(1, 21))
    kept = lost_attempt(some.record(starts=21, attempts=attempts))
    assert len(kept) == KEPT_ATTEMPTS == 20
    assert (kept[0].attempt, kept[-1]) == (2, Attempt(21, "other", NOW, None, "LOST"))
    assert lost_attempt(some.record(host_id=None))[0].host_id == ""


@some.brief
@given(some.records(), st.booleans())
def test_a_lost_run_ends_as_it_was_asked_to(record: RunRecord, asked: bool):  # noqa: FBT001
    if record.status is S.RUNNING:
        record = some.replace(record, cancel_asked=asked)
        assert lost(record, NOW).status is (S.CANCELLED if asked else S.FAILED)
