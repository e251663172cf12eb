"""Whatever a delivery meets: no ended run is written, no running one retired, no limit passed."""

from __future__ import annotations

from datetime import datetime

from hypothesis import given

from jetjobs._core.delivery import (
    Ack,
    Ask,
    DeliveryRules,
    Drop,
    Situation,
    Write,
    decide,
    expiry_of,
)
from jetjobs._core.messages import Trigger
from jetjobs._core.models import Owner, RunRecord, RunStatus
from jetjobs._core.policy import JobPolicy
from tests.support.decided import written
from tests.unit import strategies as some

S = RunStatus


@some.brief
@given(some.records(some.TERMINAL), some.triggers, some.situations, some.policies(), some.instants)
def test_a_terminal_record_is_never_written_again(
    record: RunRecord, trigger: Trigger, situation: Situation, policy: JobPolicy, now: datetime
):
    action = decide(record, trigger, situation, rules=DeliveryRules("me", policy), now=now)
    assert isinstance(action, (Ack, Drop, Ask))


@some.brief
@given(some.records((S.RUNNING,)), some.triggers, some.situations, some.policies(), some.instants)
def test_a_running_run_is_never_acked_by_its_own_message(
    record: RunRecord, trigger: Trigger, situation: Situation, policy: JobPolicy, now: datetime
):
    action = decide(record, trigger, situation, rules=DeliveryRules("me", policy), now=now)
    its_own = record.owner is not None and record.owner.is_message(trigger.sequence, trigger.stored_at)
    if its_own:
        assert isinstance(action, (Drop, Ask, Write))
        if isinstance(action, Write) and action.then == "ack":
            assert action.record.status.is_terminal
    else:
        assert isinstance(action, Ack)


@some.brief
@given(some.records((S.RUNNING, S.RETRYING)), some.triggers, some.situations, some.policies(), some.instants)
def test_a_start_is_one_more_with_a_new_claim_and_never_over_the_limit(
    record: RunRecord, trigger: Trigger, situation: Situation, policy: JobPolicy, now: datetime
):
    action = decide(record, trigger, situation, rules=DeliveryRules("me", policy), now=now)
    if isinstance(action, Write) and action.then == "start":
        after = action.record
        assert not record.cancel_asked
        assert (after.status, after.claim, after.host_id) == (S.RUNNING, situation.claim, "me")
        assert after.starts == record.starts + 1
        assert after.attempt <= max(after.max_attempts, record.attempt + (record.status is S.RETRYING))
        assert (after.max_attempts, after.expires_at) == (record.max_attempts, record.expires_at)
        assert after.owner == Owner(trigger.sequence, trigger.stored_at, trigger.num_delivered, "me")


@some.brief
@given(some.records(), some.triggers, some.situations, some.policies(), some.instants)
def test_the_start_deadline_is_not_judged_once_a_record_exists(
    record: RunRecord, trigger: Trigger, situation: Situation, policy: JobPolicy, now: datetime
):
    rules = DeliveryRules("me", policy)
    without = some.replace(trigger, start_deadline=None, expires_at=None, expires_in=None)
    assert decide(record, trigger, situation, rules=rules, now=now) == decide(
        record, without, situation, rules=rules, now=now
    )


@some.brief
@given(some.triggers, some.situations, some.policies(), some.instants)
def test_a_run_without_a_record_starts_or_is_missed(
    trigger: Trigger, situation: Situation, policy: JobPolicy, now: datetime
):
    rules = DeliveryRules("me", policy)
    action = decide(None, trigger, situation, rules=rules, now=now)
    deadlines = [at for at in (trigger.start_deadline, expiry_of(trigger, rules)) if at is not None]
    late = any(now > at for at in deadlines)
    record = written(action, "ack" if late else "start")
    assert (record.status, record.attempt) == ((S.MISSED, 0) if late else (S.RUNNING, 1))
