from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import (
    Backoff,
    ConfigError,
    Discard,
    JobContext,
    Module,
    PayloadError,
    PayloadInvalidError,
    RetryAfter,
    Skip,
    Snooze,
    TriggerInfo,
)
from jetjobs.errors import BlockingCallError
from jetjobs.testing import run_job, run_job_blocking
from tests.engine.isolated_jobs import isolated, stuck, where

pytestmark = pytest.mark.timeout(60)


class Invoice(BaseModel):
    id: int


opened: list[str] = []


async def lifespan() -> AsyncIterator[str]:
    opened.append("open")
    yield "from the lifespan"
    opened.append("closed")


billing = Module("billing", lifespan=lifespan)


@billing.before_attempt
def before(ctx: JobContext[Any]) -> None:
    opened.append("hook")


@billing.job(timeout="10s")
async def send(ctx: JobContext[Any], invoice: Invoice) -> Invoice:
    ctx.log("sending", invoice=invoice.id)
    ctx.progress(1, 2)
    ctx.checkpoint("there")
    await ctx.trigger_child(state, key="k")
    return Invoice(id=invoice.id + 1)


@billing.job(timeout="10s")
def state(ctx: JobContext[Any]) -> str:
    return f"{ctx.state} {ctx.trigger.kind}"


_RAISED: dict[str, BaseException] = {
    "discard": Discard("never again"),
    "discard_on": KeyError("x"),
    "snooze": Snooze("2h"),
    "later": RetryAfter("3h", "busy"),
    "skip": Skip("nothing to do"),
}


@billing.job(timeout="10s", max_attempts=3, backoff=Backoff("4m", factor=1, jitter=0), discard_on=(KeyError,))
async def how(ctx: JobContext[Any], act: str) -> Any:
    if act == "object":
        return object()
    if (act == "heal" and ctx.attempt == 3) or (act == "snooze" and ctx.last_checkpoint):
        return ctx.attempt
    ctx.checkpoint(True)
    raise _RAISED.get(act) or ValueError(f"attempt {ctx.attempt}")


@billing.job(timeout="100ms")
async def slow(ctx: JobContext[Any]) -> None:
    await asyncio.Event().wait()


@billing.job(timeout="10m")
async def endless(ctx: JobContext[Any]) -> None:
    await asyncio.Event().wait()


async def test_a_success_with_all_it_said():
    outcome = await run_job(send, Invoice(id=7))
    assert (outcome.status, outcome.ok, outcome.value, outcome.error) == ("SUCCEEDED", True, Invoice(id=8), None)
    assert [line.message for line in outcome.logs] == ["sending"]
    assert outcome.progress is not None
    assert (outcome.progress.done, outcome.checkpoint, outcome.retry_in) == (1, "there", None)
    assert [(child.job, child.named) for child in outcome.children] == [("billing.state", "k")]
    assert (outcome.record.starts, outcome.record.payload) == (1, {"id": 7})


def test_blocking_with_a_state_and_a_trigger():
    outcome = run_job_blocking(state, state="mine", trigger=TriggerInfo("cron"))
    assert outcome.value == "mine cron"


@pytest.mark.parametrize(
    "act, status, error, retry_in",
    [
        ("fail", "RETRYING", "ValueError: attempt 1", timedelta(minutes=4)),
        ("later", "RETRYING", "RetryAfter: busy", timedelta(hours=3)),
        ("discard", "FAILED", "Discard: never again", None),
        ("discard_on", "FAILED", "KeyError: 'x'", None),
        ("skip", "SKIPPED", "None", None),
    ],
)
async def test_what_the_engine_decides(act: str, status: str, error: str, retry_in: timedelta | None):
    outcome = await run_job(how, act)
    assert (outcome.status, str(outcome.error), outcome.value) == (status, error, None)
    if retry_in is None:
        assert outcome.retry_in is None
    else:
        assert outcome.retry_in is not None
        assert abs(outcome.retry_in - retry_in) < timedelta(seconds=5)
    assert outcome.skip_reason == ("nothing to do" if act == "skip" else None)
    assert not outcome.snoozed


async def test_a_snooze_costs_no_attempt():
    outcome = await run_job(how, "snooze")
    assert (outcome.status, outcome.snoozed) == ("RETRYING", True)
    assert outcome.retry_in is not None
    assert abs(outcome.retry_in - timedelta(hours=2)) < timedelta(seconds=5)
    healed = await run_job(how, "snooze", until_end=True)
    assert (healed.status, healed.value, healed.record.starts, healed.snoozed) == ("SUCCEEDED", 1, 2, False)


async def test_retries_are_not_waited_for():
    healed = await run_job(how, "heal", until_end=True, within="20s")
    assert (healed.value, healed.record.attempt) == (3, 3)
    failed = await run_job(how, "fail", until_end=True, within="20s")
    assert (failed.status, failed.record.attempt, str(failed.error)) == ("FAILED", 3, "ValueError: attempt 3")
    assert failed.record.finished_at is not None
    assert failed.record.created_at is not None
    assert failed.record.finished_at - failed.record.created_at > timedelta(minutes=7)


async def test_a_timeout_is_real():
    outcome = await run_job(slow)
    assert (outcome.status, outcome.error and outcome.error.type) == ("TIMED_OUT", "TimedOut")


async def test_a_result_that_cannot_be_stored():
    outcome = await run_job(how, "object")
    assert outcome.status == "FAILED"
    assert "result" in str(outcome.error)


async def test_payloads_are_checked_and_stored():
    with pytest.raises(PayloadInvalidError, match=r"billing\.send"):
        await run_job(send, {"id": "x"})  # pyright: ignore[reportArgumentType]
    with pytest.raises(PayloadError):
        await run_job(how, object())  # pyright: ignore[reportArgumentType]


async def test_with_its_module():
    opened.clear()
    outcome = await run_job(state, module=billing)
    assert outcome.value == "from the lifespan manual"
    assert opened == ["open", "hook", "closed"]
    opened.clear()
    await run_job(state)
    assert opened == []
    with pytest.raises(ConfigError, match="no job of"):
        await run_job(state, module=isolated)
    with pytest.raises(ConfigError, match="exclude each other"):
        await run_job(state, module=billing, state=1)


async def test_one_that_does_not_end():
    with pytest.raises(TimeoutError, match=r"billing.endless has not ended within 0.2 s"):
        await run_job(endless, within="200ms")


async def test_blocking_is_refused_on_a_loop():
    with pytest.raises(BlockingCallError, match="await run_job"):
        run_job_blocking(state)


async def test_in_a_child_process():
    outcome = await run_job(where, 7)
    assert outcome.value is not None
    pid, number = outcome.value
    assert (number, [line.message for line in outcome.logs]) == (7, ["in a child"])
    assert pid != os.getpid()
    killed = await run_job(stuck)
    assert killed.status == "TIMED_OUT"


async def test_a_child_process_needs_a_module_it_can_find():
    local = Module("local")
    found = local.expose_job("where", where.handler, isolation="process", timeout="5s")
    with pytest.raises(ConfigError, match=r"local.where runs in a process of its own"):
        await run_job(found, 1)
    assert sys.modules[where.handler.__module__] is not None
