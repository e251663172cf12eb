from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.models import RunKey, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import Fate
from jetjobs._core.run_changes import (
    ChangeOutcome,
    Ended,
    RetryStep,
    RunChange,
    change,
    fate_when_deleted,
    first_of_row,
    judge_retry,
    nth_retry,
    stub_ttl,
)
from jetjobs._core.run_ids import run_id_for_retry

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RUN = RunKey("billing", "send", "r1")
FAILED = RunRecord("r1", "billing", "send", RunStatus.FAILED, finished_at=NOW)
RULES = JobRetention(min_age="10m", keys="7d")
OLD = timedelta(hours=1)

anything = st.builds(
    Ended,
    st.builds(
        replace,
        st.just(FAILED),
        status=st.sampled_from(RunStatus),
        key=st.none() | st.just("k"),
        trigger=st.builds(TriggerInfo, st.sampled_from(["manual", "child", "retry", "cron"])),
    ),
    st.timedeltas(timedelta(), timedelta(days=30)),
    st.booleans(),
    st.booleans(),
)


def ended(record: RunRecord = FAILED, age: timedelta = OLD, *, in_stream: bool = False, named: bool = False) -> Ended:
    return Ended(record, age, in_stream, named)


def fate(asked: Ended, *, forget_keys: bool = False) -> Fate:
    return fate_when_deleted(asked, RULES, forget_keys=forget_keys)


@given(asked=anything, forget_keys=st.booleans())
def test_what_has_not_ended_or_has_a_message_stays(asked: Ended, *, forget_keys: bool):
    if not asked.record.status.is_terminal or asked.in_stream:
        assert fate(asked, forget_keys=forget_keys) is Fate.KEEP
    else:
        assert fate(asked, forget_keys=forget_keys) is not Fate.KEEP


@given(anything)
def test_nothing_young_or_waited_for_goes_even_if_its_key_is_forgotten(asked: Ended):
    if fate(asked, forget_keys=True) is Fate.DELETE:
        assert asked.age >= RULES.min_age
        assert not asked.named
    if fate(asked) is Fate.DELETE:
        assert asked.record.key is None or asked.age > RULES.keys


def test_an_old_run_goes():
    assert fate(ended()) is Fate.DELETE
    assert fate(ended(age=timedelta(minutes=9))) is Fate.SHRINK
    assert fate(ended(named=True)) is Fate.SHRINK


@pytest.mark.parametrize(
    "promised", [{"key": "k"}, {"trigger": TriggerInfo("child")}, {"trigger": TriggerInfo("retry")}]
)
def test_a_promise_is_kept_until_it_has_passed_or_is_dropped(promised: dict[str, object]):
    record = FAILED.but(**promised)
    assert fate(ended(record)) is Fate.SHRINK
    assert fate(ended(record, timedelta(days=8))) is Fate.DELETE
    assert fate(ended(record), forget_keys=True) is Fate.DELETE


def test_a_stub_is_kept_as_long_as_it_keeps_something():
    keyed = ended(FAILED.but(key="k"))
    assert stub_ttl(keyed, RULES, forget_keys=False) == timedelta(days=7) + timedelta(minutes=10) - OLD
    assert stub_ttl(keyed, RULES, forget_keys=True) == timedelta(minutes=10)
    assert stub_ttl(ended(age=timedelta()), JobRetention(min_age="1h"), forget_keys=False) == timedelta(hours=1)


def test_retries_form_a_row_named_after_its_first():
    first = first_of_row(FAILED)
    second = nth_retry(first, 1)
    assert first == RUN
    assert second == RunKey("billing", "send", run_id_for_retry(RUN, 1))
    assert first_of_row(FAILED.but(run_id=second.run_id, retry_of="r1")) == first
    assert nth_retry(first, 2) != second


@pytest.mark.parametrize(
    "status, step",
    [
        (None, RetryStep.STORE),
        (RunStatus.QUEUED, RetryStep.STAY),
        (RunStatus.RUNNING, RetryStep.STAY),
        (RunStatus.SUCCEEDED, RetryStep.STAY),
        (RunStatus.SKIPPED, RetryStep.STAY),
        (RunStatus.FAILED, RetryStep.GO_ON),
        (RunStatus.TIMED_OUT, RetryStep.GO_ON),
        (RunStatus.CANCELLED, RetryStep.GO_ON),
        (RunStatus.MISSED, RetryStep.GO_ON),
    ],
)
def test_a_row_goes_on_after_its_last_failure_only(status: RunStatus | None, step: RetryStep):
    assert judge_retry(None if status is None else FAILED.but(status=status)) is step


def test_a_change_tells_which_run_and_whether_it_is_as_asked():
    done = change(RUN, ChangeOutcome.DELETED, RunStatus.FAILED)
    assert (done.ok, done.run_key, done.status) == (True, RUN, RunStatus.FAILED)
    assert RunChange("r1", ChangeOutcome.NOT_FOUND).run_key is None
    assert {outcome for outcome in ChangeOutcome if not RunChange("r", outcome).ok} == {
        ChangeOutcome.ALREADY_FINISHED,
        ChangeOutcome.STILL_ACTIVE,
        ChangeOutcome.NOT_FOUND,
        ChangeOutcome.FAILED,
    }
