from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import (
    InvalidNameError,
    JobContext,
    JobInterrupted,
    Module,
    PayloadError,
    PayloadInvalidError,
    Skip,
    TriggerInfo,
)
from jetjobs._core.models import RunKey
from jetjobs._core.run_ids import run_id_for_child
from jetjobs.testing import HandlerContext, make_context

billing = Module("billing")


class Invoice(BaseModel):
    id: int


@billing.job(max_attempts=3)
async def send(ctx: JobContext[Any], invoice: Invoice) -> str:
    ctx.log("sending", invoice=invoice.id)
    ctx.progress(1, 2, "half")
    ctx.checkpoint({"at": 1})
    return f"{invoice.id} by {ctx.state}"


def stop(ctx: JobContext[Any]) -> None:
    assert isinstance(ctx, HandlerContext)
    ctx.cancel()


@billing.job
def count(ctx: JobContext[Any], days: Sequence[int]) -> int:
    done = ctx.last_checkpoint or 0
    for day in days:
        ctx.raise_if_cancelled()
        if day < 0:
            stop(ctx)
        ctx.checkpoint(done := done + 1)
    return done


async def test_what_a_handler_said_is_shown():
    ctx = make_context(state="smtp")
    assert await send(ctx, Invoice(id=7)) == "7 by smtp"
    (line,) = ctx.logs
    assert (line.level, line.message, line.fields) == ("info", "sending", {"invoice": 7})
    assert ctx.last_progress is not None
    assert (ctx.last_progress.done, ctx.last_progress.total, ctx.last_progress.message) == (1, 2, "half")
    assert ctx.saved_checkpoint == {"at": 1}


def test_one_that_said_nothing():
    ctx = make_context()
    assert (ctx.logs, ctx.last_progress, ctx.saved_checkpoint, ctx.children) == ([], None, None, [])
    assert (ctx.state, ctx.payload, ctx.run_id, ctx.attempt, ctx.max_attempts) == (None, None, "test-run", 1, 1)
    assert (ctx.trigger.kind, ctx.cancelled, ctx.last_checkpoint) == ("manual", False, None)


def test_it_is_as_it_was_asked_for():
    ctx = make_context(
        job=send, payload={"id": 7}, attempt=2, trigger=TriggerInfo("cron", schedule_id="s"), last_checkpoint=[1]
    )
    assert (ctx.module, ctx.job, ctx.payload) == ("billing", "send", Invoice(id=7))
    assert (ctx.attempt, ctx.max_attempts, ctx.trigger.schedule_id, ctx.last_checkpoint) == (2, 3, "s", [1])
    assert make_context(attempt=4, max_attempts=2).max_attempts == 4


def test_a_payload_that_does_not_fit_the_job_is_refused():
    with pytest.raises(PayloadInvalidError, match=r"billing\.send"):
        make_context({"id": "x"}, job=send)
    with pytest.raises(PayloadError, match="checkpoint"):
        make_context(last_checkpoint=object())


def test_a_cancel_is_found_by_the_handler():
    ctx = make_context(last_checkpoint=5)
    with pytest.raises(JobInterrupted):
        count(ctx, [1, -1, 1])
    assert (ctx.cancelled, ctx.cancel_reason, ctx.saved_checkpoint) == (True, "cancel", 7)
    late = make_context()
    late.cancel("timeout")
    with pytest.raises(JobInterrupted):
        late.raise_if_cancelled()


def test_an_outcome_is_an_exception_to_expect():
    with pytest.raises(Skip, match="nothing"):
        make_context().skip("nothing")


async def test_children_are_kept_and_checked():
    ctx = make_context()
    first = await ctx.trigger_child(send, Invoice(id=1))
    ctx.trigger_child_blocking(("reports", "daily"), [1], key="k", delay="5m")
    await ctx.trigger_child("reports.daily")
    assert [(child.job, child.payload, child.named, child.delay) for child in ctx.children] == [
        ("billing.send", Invoice(id=1), None, None),
        ("reports.daily", [1], "k", "5m"),
        ("reports.daily", None, None, None),
    ]
    assert first is ctx.children[0]
    assert first.run_id.startswith("c-")
    assert (first.duplicate, first.payload_differs) == (False, False)


async def test_children_have_the_ids_they_would_have_in_earnest():
    """Those with a key aren't counted."""
    ctx = make_context()
    for key in ("k", None, "k", None):
        await ctx.trigger_child("reports.daily", key=key)
    parent = RunKey(ctx.module, ctx.job, ctx.run_id)
    assert [child.run_id for child in ctx.children] == [
        run_id_for_child(parent, "reports", "daily", named) for named in ("k", 1, 2)
    ]


async def test_children_that_could_not_be_triggered_are_refused():
    ctx = make_context()
    with pytest.raises(PayloadInvalidError):
        await ctx.trigger_child(send, {"id": "x"})
    with pytest.raises(PayloadError):
        await ctx.trigger_child("a.b", object())
    with pytest.raises(ValueError, match="delay"):
        await ctx.trigger_child("a.b", delay=timedelta(1), at=1.0)
    with pytest.raises(InvalidNameError):
        await ctx.trigger_child(["a", "b"])  # as in earnest: a pair is a tuple
    assert ctx.children == []


async def test_the_same_child_is_kept_once():
    ctx = make_context()
    once = await ctx.trigger_child("a.b", 1, key="k")
    again = await ctx.trigger_child("a.b", 1, key="k")
    assert once.run_id == again.run_id
    assert len(ctx.children) == 1
