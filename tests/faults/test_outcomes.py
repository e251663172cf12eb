"""Every outcome and policy on one real host: in the record, and in what the handlers wrote."""

from __future__ import annotations

from itertools import pairwise

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig, eventually


async def test_returns_skips_and_what_the_record_tells(rig: Rig) -> None:
    await rig.host()
    echo, run_id = await rig.run("echo", {"a": [1, 2]})
    assert (echo.status, echo.result, echo.attempt) == (RunStatus.SUCCEEDED, {"a": [1, 2]}, 1)
    assert [line.how for line in rig.journal.ends(run_id)] == ["return"]
    ping, _ = await rig.run("ping")
    assert ping.result == "of the lifespan"
    skipped, run_id = await rig.run("skips")
    assert (skipped.status, skipped.skip_reason, skipped.error) == (RunStatus.SKIPPED, "nothing to do", None)
    assert len(rig.journal.starts(run_id)) == 1


async def test_retries_with_backoff_until_it_succeeds(rig: Rig) -> None:
    await rig.host()
    record, run_id = await rig.run("fails_until", 3)
    assert (record.status, record.result, record.attempt, record.starts) == (RunStatus.SUCCEEDED, "attempt 3", 3, 3)
    assert [attempt.outcome for attempt in record.attempts] == ["FAILED", "FAILED", "SUCCEEDED"]
    starts = rig.journal.starts(run_id)
    assert [line.attempt for line in starts] == [1, 2, 3]
    assert all(b.at - a.at >= 0.09 for a, b in pairwise(starts))
    record, run_id = await rig.run("fails_until", 4)
    assert (record.status, record.starts) == (RunStatus.FAILED, 3)
    assert record.error is not None
    assert (record.error.type, record.error.message) == ("ValueError", "attempt 3 fails")
    assert "fails_until" in record.error.traceback
    assert len(rig.journal.starts(run_id)) == 3


async def test_timeouts(rig: Rig) -> None:
    await rig.host()
    for job in ("times_out", "thread_times_out"):
        record, run_id = await rig.run(job)
        assert record.status is RunStatus.TIMED_OUT
        assert record.error is not None
        assert record.error.type == "TimedOut"
        (start,), (end,) = rig.journal.starts(run_id), rig.journal.ends(run_id)
        assert end.reason == "timeout"
        assert 0.4 < end.at - start.at < 20
    late, run_id = await rig.run("returns_late")
    assert (late.status, late.result) == (RunStatus.TIMED_OUT, "late but here")
    assert [line.how for line in rig.journal.ends(run_id)] == ["return"]
    again, run_id = await rig.run("times_out_once")
    assert (again.status, again.result) == (RunStatus.SUCCEEDED, "second")
    assert [attempt.outcome for attempt in again.attempts] == ["TIMED_OUT", "SUCCEEDED"]
    assert len(rig.journal.starts(run_id)) == 2


async def test_what_handlers_decide(rig: Rig) -> None:
    await rig.host()
    record, run_id = await rig.run("discards")
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert record.error is not None
    assert (record.error.type, record.error.message) == ("Discard", "never")
    record, run_id = await rig.run("retries_after")
    first, second = rig.journal.starts(run_id)
    assert second.at - first.at >= 0.95  # the broker's time is known to some milliseconds
    assert (record.status, record.attempt) == (RunStatus.SUCCEEDED, 2)
    record, run_id = await rig.run("snoozes", 3)
    assert (record.status, record.result, record.snoozes, record.attempt) == (RunStatus.SUCCEEDED, "attempt 1", 3, 1)
    assert [line.checkpoint for line in rig.journal.starts(run_id)] == [None, 1, 2, 3]


@pytest.mark.parametrize(
    "error,starts",
    [("OSError", 3), ("FileNotFoundError", 1), ("ValueError", 1)],
    ids=["retry_on", "discard_on", "other"],
)
async def test_which_errors_are_worth_another_attempt(rig: Rig, error: str, starts: int) -> None:
    await rig.host()
    record, run_id = await rig.run("chooses", error)
    assert (record.status, record.starts) == (RunStatus.FAILED, starts)
    assert len(rig.journal.starts(run_id)) == starts


async def test_what_a_handler_tells_is_in_the_record(rig: Rig) -> None:
    await rig.host()
    run_id = await rig.trigger("tells")
    await rig.journal.started(run_id)

    async def told() -> bool:
        record = await rig.record("tells", run_id)
        return record.status is RunStatus.RUNNING and record.progress is not None and len(record.logs) == 1

    await eventually(told, what="a heartbeat with log and progress")
    record = await rig.ended("tells", run_id)
    assert [(line.message, line.fields["attempt"]) for line in record.logs] == [("hello", 1), ("hello", 2)]
    assert record.progress is not None
    assert (record.progress.done, record.progress.total, record.progress.message) == (3, 4, "most of it")
    assert [line.checkpoint for line in rig.journal.starts(run_id)] == [None, {"page": 7}]


async def test_hooks_run_around_every_attempt(rig: Rig) -> None:
    await rig.host("hooked")
    for job, error in (("hooked.plain", "NoneType"), ("hooked.in_thread", "ValueError")):
        _, run_id = await rig.run(job)
        lines = [line.what for line in rig.journal.lines(run=run_id)]
        assert lines == ["before", "start", "end", "after"]
        assert rig.journal.lines("after", run_id)[0].error == error


async def test_expiry_and_start_deadline(rig: Rig) -> None:
    await rig.host()
    first = await rig.trigger("gate", 3)
    await rig.journal.started(first)
    late = await rig.trigger("gate", 0, start_within="500ms")
    expired = await rig.trigger("gate", 0, expires_in="500ms")
    patient = await rig.trigger("gate", 0, start_within="60s")
    for run_id in (late, expired):
        record = await rig.ended("gate", run_id)
        assert (record.status, record.starts) == (RunStatus.MISSED, 0)
        assert record.skip_reason
        assert not rig.journal.starts(run_id)
    assert (await rig.ended("gate", patient)).status is RunStatus.SUCCEEDED
    run_id = await rig.trigger("fails", expires_in="3s")
    record = await rig.ended("fails", run_id)
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.message.startswith("trigger expired before it could be retried; ValueError")
    assert 2 <= len(rig.journal.starts(run_id)) == record.starts <= 8
