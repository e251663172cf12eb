from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import structlog

from jetjobs._core import codec, wire
from jetjobs._core.bodies import Body
from jetjobs._core.models import Progress, RunRecord, RunStatus
from jetjobs.context import MAX_CHECKPOINT, Journal
from jetjobs.errors import JobsNotHosted, PayloadError, PayloadTooLargeError
from jetjobs.outcomes import JobInterrupted, Skip
from tests.support.handler_contexts import NOON, RECORD, make


def test_a_context_tells_the_run() -> None:
    ctx = make()
    assert (ctx.run_id, ctx.module, ctx.job) == ("r1", "billing", "send")
    assert (ctx.attempt, ctx.max_attempts) == (2, 5)
    assert (ctx.payload, ctx.state) == ({"id": 7}, "state")
    assert ctx.trigger is RECORD.trigger
    assert repr(ctx) == "<JobContext billing.send/r1 attempt 2>"


def test_a_new_journal_has_nothing_to_say() -> None:
    journal = Journal()
    make(journal)
    assert (journal.logs, journal.progress, journal.checkpoint) == ([], None, None)
    assert not journal.changed
    assert journal.cancel_reason is None


def test_a_handler_sees_why_it_must_stop() -> None:
    journal = Journal()
    ctx = make(journal)
    assert not ctx.cancelled
    assert ctx.cancel_reason is None
    ctx.raise_if_cancelled()
    journal.cancel_reason = "timeout"
    assert ctx.cancelled
    assert ctx.cancel_reason == "timeout"
    with pytest.raises(JobInterrupted) as caught:
        ctx.raise_if_cancelled()
    assert caught.value.reason == "timeout"


def test_skip_ends_the_run() -> None:
    with pytest.raises(Skip) as caught:
        make().skip("weekend")
    assert caught.value.reason == "weekend"


def test_the_last_progress_counts() -> None:
    journal = Journal()
    ctx = make(journal)
    ctx.progress(1, 10)
    ctx.progress(2.5, 10, "a" * 5000)
    assert journal.changed
    assert journal.progress is not None
    assert (journal.progress.done, journal.progress.total) == (2.5, 10)
    assert len(journal.progress.message or "") == 2048
    ctx.progress(3)
    assert journal.progress == Progress(3)


@pytest.mark.parametrize(
    "said, kept",
    [
        ((Decimal("1.5"), Decimal(3)), Progress(1.5, 3.0)),
        ((True,), Progress(1.0)),
        ((1, 10**30), Progress(1, 1e30)),
        ((1, float("inf")), Progress(1)),
        ((float("nan"), 5), None),
        ((10**400,), None),
    ],
)
def test_progress_is_kept_as_a_record_can_hold_it(said: tuple[Any, ...], kept: Progress | None) -> None:
    journal = Journal()
    make(journal).progress(*said)
    assert journal.progress == kept
    wire.pack_record(RunRecord("r", "m", "j", RunStatus.RUNNING, progress=journal.progress))


@pytest.mark.parametrize("said", ["half", object(), None])
def test_progress_takes_numbers(said: Any) -> None:
    with pytest.raises(TypeError):
        make().progress(said)


def test_a_checkpoint_is_encoded_at_the_call() -> None:
    journal = Journal()
    value: dict[str, Any] = {"done": [1, 2], "at": NOON}
    make(journal).checkpoint(value)
    value["done"] = "changed later"
    assert journal.changed
    assert journal.checkpoint is not None
    assert journal.checkpoint.value == {"done": [1, 2], "at": NOON}


def test_a_checkpoint_that_cannot_be_kept_is_refused_and_the_old_one_stays() -> None:
    journal = Journal()
    ctx = make(journal)
    ctx.checkpoint(1)
    with pytest.raises(PayloadError, match=r'checkpoint\["x"\]\[0\]'):
        ctx.checkpoint({"x": [object()]})
    with pytest.raises(PayloadTooLargeError, match=f"a checkpoint of 65541 bytes is over {MAX_CHECKPOINT}"):
        ctx.checkpoint("x" * MAX_CHECKPOINT)
    assert journal.checkpoint == Body(codec.encode(1))


def test_the_attempt_before_left_a_checkpoint() -> None:
    record = RunRecord(
        run_id="r1", module="m", job="j", status=RunStatus.RUNNING, checkpoint_body=Body(codec.encode({"day": 3}))
    )
    assert make(record=record).last_checkpoint == {"day": 3}
    assert make().last_checkpoint is None


class Family:
    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any, dict[str, Any]]] = []

    async def trigger_child(self, job: Any, payload: Any = None, **options: Any) -> Any:
        self.seen.append((job, payload, options))
        return "child"

    def trigger_child_blocking(self, job: Any, payload: Any = None, **options: Any) -> Any:
        self.seen.append((job, payload, options))
        return "blocking child"


async def test_children_are_triggered_by_the_host() -> None:
    family = Family()
    ctx = make(children=family)
    assert await ctx.trigger_child("billing.send", 1, key="k") == "child"
    assert ctx.trigger_child_blocking("billing.send", 2, delay="5m") == "blocking child"
    assert family.seen == [
        ("billing.send", 1, {"key": "k", "delay": None, "at": None}),
        ("billing.send", 2, {"key": None, "delay": "5m", "at": None}),
    ]


async def test_children_without_a_host_are_refused() -> None:
    with pytest.raises(JobsNotHosted, match=r"trigger_child is not available here: run r1 of billing\.send"):
        await make().trigger_child("billing.send")
    with pytest.raises(JobsNotHosted, match="not available here"):
        make().trigger_child_blocking("billing.send")


def test_a_context_binds_no_logger_until_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise AssertionError("bound too early")

    monkeypatch.setattr(structlog, "get_logger", refuse)
    ctx = make()
    ctx.progress(1)
    assert ctx.run_id == "r1"
