"""Jobs of every policy and outcome."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

from notes import note, noted
from shared import QUICK, module

from jetjobs import Backoff, Discard, JobContext, RetryAfter, Snooze


@module.job(max_concurrency=8)
async def ping(ctx: JobContext) -> str:
    with noted(ctx):
        return ctx.state["token"]


# ---------------------------------------------------------------- lengths


@module.job(max_concurrency=8)
async def hold(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "held"


@module.job(max_concurrency=8, max_attempts=3, backoff=QUICK)
async def hold3(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return f"attempt {ctx.attempt}"


@module.job(max_concurrency=8, max_attempts=3, backoff=QUICK)
def spin3(ctx: JobContext, seconds: float) -> str:
    """A plain function that can be interrupted at once."""
    with noted(ctx):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
    return f"attempt {ctx.attempt}"


@module.job(max_concurrency=4)
async def four(ctx: JobContext, seconds: float) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


RETRIES = {"retry in a minute": "60s", "retry in six": "6s", "retry in two": "2s"}


@module.job(max_concurrency=1, max_attempts=3)
async def one_at_a_time(ctx: JobContext, how: str) -> str:
    with noted(ctx):
        if how in RETRIES:
            raise RetryAfter(RETRIES[how], "not yet")
        return how


@module.job(max_concurrency=1)
async def gate(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "passed"


@module.job(max_concurrency=2)
def block_thread(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        time.sleep(seconds)
    return "slept"


@module.job(max_concurrency=4, max_attempts=3, backoff=QUICK)
async def block_loop(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        time.sleep(seconds)  # noqa: ASYNC251 - what many do
    return "blocked"


# --------------------------------------------------------------- outcomes


@module.job
async def echo(ctx: JobContext, value: Any = None) -> Any:
    with noted(ctx):
        return value


@module.job(max_attempts=3, backoff=QUICK)
async def fails_until(ctx: JobContext, attempt: int) -> str:
    with noted(ctx, checkpoint=ctx.last_checkpoint):
        if ctx.attempt < attempt:
            raise ValueError(f"attempt {ctx.attempt} fails")
        return f"attempt {ctx.attempt}"


@module.job(timeout="500ms")
async def times_out(ctx: JobContext) -> None:
    with noted(ctx):
        await asyncio.sleep(30)


@module.job(timeout="500ms")
def thread_times_out(ctx: JobContext) -> None:
    with noted(ctx):
        while True:
            time.sleep(0.01)


@module.job(timeout="300ms")
def returns_late(ctx: JobContext) -> str:
    with noted(ctx):
        while not ctx.cancelled:
            time.sleep(0.01)
        return "late but here"


@module.job(timeout="300ms", max_attempts=2, backoff=QUICK)
async def times_out_once(ctx: JobContext) -> str:
    with noted(ctx):
        if ctx.attempt == 1:
            await asyncio.sleep(30)
        return "second"


@module.job
async def skips(ctx: JobContext) -> None:
    with noted(ctx):
        ctx.skip("nothing to do")


@module.job(max_attempts=3)
async def discards(ctx: JobContext) -> None:
    with noted(ctx):
        raise Discard("never")


@module.job(max_attempts=2)
async def retries_after(ctx: JobContext) -> str:
    with noted(ctx):
        if ctx.attempt == 1:
            raise RetryAfter("1s", "in a second")
        return "now"


@module.job
async def snoozes(ctx: JobContext, times: int) -> str:
    with noted(ctx, checkpoint=ctx.last_checkpoint):
        done = ctx.last_checkpoint or 0
        if done < times:
            ctx.checkpoint(done + 1)
            raise Snooze("200ms")
        return f"attempt {ctx.attempt}"


@module.job(max_attempts=3, backoff=QUICK, retry_on=(OSError,), discard_on=(FileNotFoundError,))
async def chooses(ctx: JobContext, error: str) -> None:
    with noted(ctx):
        raise {"OSError": OSError, "FileNotFoundError": FileNotFoundError, "ValueError": ValueError}[error](error)


@module.job(max_attempts=9, backoff=Backoff("400ms", factor=1, jitter=0))
async def fails(ctx: JobContext) -> None:
    with noted(ctx):
        raise ValueError(f"attempt {ctx.attempt} fails")


@module.job(max_attempts=2, backoff=QUICK)
async def tells(ctx: JobContext) -> None:
    with noted(ctx, checkpoint=ctx.last_checkpoint):
        ctx.log("hello", attempt=ctx.attempt)
        ctx.progress(3, 4, "most of it")
        ctx.checkpoint({"page": 7})
        if ctx.attempt == 1:
            await asyncio.sleep(2.5)  # longer than a heartbeat
            note("told", run=ctx.run_id)
            raise ValueError("again")


# ---------------------------------------------------------------- shutdown


@module.job(max_attempts=2, max_concurrency=4)
async def hold_twice(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return f"attempt {ctx.attempt}"


@module.job(max_attempts=3, on_shutdown="fail")
async def fails_at_shutdown(ctx: JobContext, seconds: float) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@module.job(drain="10s")
async def patient(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "done"


@module.job(max_concurrency=1)
async def slow_and_queued(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return str(os.getpid())


@module.job(max_concurrency=6, max_attempts=50, backoff=QUICK)
async def survives(ctx: JobContext, seconds: float) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)
