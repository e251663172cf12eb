from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.cancelling import (
    Answer,
    CancelOutcome,
    CancelResult,
    Create,
    NoSuchRun,
    Save,
    decide_cancel,
)
from jetjobs._core.models import RunRecord, RunStatus

NOW = datetime(2030, 5, 6, 7, 8, 9, tzinfo=UTC)
WAITING = RunRecord("r1", "billing", "send", RunStatus.QUEUED, payload_digest="d", created_at=NOW)
RECORDED = sorted(set(RunStatus) - {RunStatus.QUEUED, RunStatus.SCHEDULED})


def test_nothing_is_written_for_an_unknown_run():
    assert decide_cancel(None, waiting=None, now=NOW, claim="c") == NoSuchRun()


@given(status=st.sampled_from([RunStatus.QUEUED, RunStatus.SCHEDULED]))
def test_a_waiting_run_gets_a_cancelled_record_that_keeps_what_is_known(status: RunStatus):
    action = decide_cancel(None, waiting=replace(WAITING, status=status), now=NOW, claim="c")
    assert isinstance(action, Create)
    assert action.record == replace(WAITING, status=RunStatus.CANCELLED, claim="c", cancel_asked=True, finished_at=NOW)
    assert action.record.starts == 0


def test_a_running_run_is_only_marked_and_stays_its_hosts():
    record = replace(WAITING, status=RunStatus.RUNNING, starts=1, claim="host's")
    assert decide_cancel(record, waiting=None, now=NOW, claim="c") == Save(
        replace(record, cancel_asked=True), frees=False
    )


def test_a_marked_run_is_asked_again_without_a_write():
    record = replace(WAITING, status=RunStatus.RUNNING, starts=1, cancel_asked=True)
    assert decide_cancel(record, waiting=None, now=NOW, claim="c") == Answer(
        CancelResult(CancelOutcome.ASKED, RunStatus.RUNNING), ring=True
    )


def test_a_retrying_run_ends_at_once():
    record = replace(WAITING, status=RunStatus.RETRYING, starts=1, retry_at=NOW + timedelta(hours=1))
    action = decide_cancel(record, waiting=None, now=NOW, claim="c")
    assert isinstance(action, Save)
    assert action.frees
    assert action.record.status is RunStatus.CANCELLED
    assert (action.record.finished_at, action.record.retry_at) == (NOW, None)


@given(status=st.sampled_from([status for status in RunStatus if status.is_terminal]))
def test_an_ended_run_stays_what_it_is(status: RunStatus):
    action = decide_cancel(replace(WAITING, status=status), waiting=WAITING, now=NOW, claim="c")
    assert action == Answer(CancelResult(CancelOutcome.ALREADY_FINISHED, status))


@given(status=st.sampled_from(RECORDED), asked=st.booleans(), starts=st.integers(0, 5))
def test_asking_twice_changes_nothing_more(status: RunStatus, asked: bool, starts: int):  # noqa: FBT001
    record = replace(WAITING, status=status, cancel_asked=asked, starts=starts)
    first = decide_cancel(record, waiting=None, now=NOW, claim="c")
    if isinstance(first, Save):
        assert first.record.starts == starts
        second = decide_cancel(first.record, waiting=None, now=NOW + timedelta(seconds=1), claim="c")
        assert isinstance(second, Answer)
        # The caller recognises the cancel it made itself after a lost answer.
        wanted = CancelOutcome.CANCELLED if first.frees else CancelOutcome.ASKED
        assert second.result.outcome is wanted
    else:
        assert isinstance(first, Answer)


@given(waiting=st.booleans(), asked=st.booleans())
def test_never_cancels_what_runs(waiting: bool, asked: bool):  # noqa: FBT001
    record = replace(WAITING, status=RunStatus.RUNNING, cancel_asked=asked)
    action = decide_cancel(record, waiting=WAITING if waiting else None, now=NOW, claim="c")
    match action:
        case Save(saved, frees):
            assert saved.status is RunStatus.RUNNING
            assert not frees
        case Answer(result):
            assert result.status is RunStatus.RUNNING
        case _:
            raise AssertionError(action)
