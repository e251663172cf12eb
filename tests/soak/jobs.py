"""The jobs of a soak: one of each kind a host has. Every start is a line in a file, so that none goes unseen."""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from typing import Any

from jetjobs import Backoff, Cron, Every, JobContext, JobPolicy, Module, OnEvent

STARTS = "SOAK_STARTS"  # the environment's name for that file
EVERY_SECONDS = {"tick": 1, "slow_tick": 5, "cron": 10}

soak = Module("soak", defaults=JobPolicy(max_concurrency=16, timeout="2m"))
LOSSLESS: dict[str, Any] = {"overlap": "queue", "coalesce": "all"}  # each occurrence is a run, however busy the machine


@cache
def _starts() -> int:
    return os.open(os.environ[STARTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(ctx: JobContext) -> None:
    """One write a start: lines of several processes don't mix."""
    os.write(_starts(), f"{ctx.job} {ctx.run_id} {ctx.attempt}\n".encode())


@soak.job
async def light(ctx: JobContext, number: int) -> int:
    """The commonest kind."""
    note(ctx)
    await asyncio.sleep(0.01)
    return number


@soak.job
async def chatty(ctx: JobContext, number: int) -> None:
    """Logs and progress, long enough for a heartbeat to carry them."""
    note(ctx)
    for step in range(12):
        ctx.log("step", number=number, step=step)
        ctx.progress(step, 12)
        await asyncio.sleep(1)


@soak.job
def threaded(ctx: JobContext, number: int) -> int:
    """A plain function."""
    note(ctx)
    time.sleep(0.02)
    return number


@soak.job(isolation="process", max_concurrency=2)
def isolated(ctx: JobContext, number: int) -> int:
    """A plain function in a process of its own."""
    note(ctx)
    return sum(range(number))


@soak.job(max_attempts=3, backoff=Backoff("1s", jitter=0))
async def retried(ctx: JobContext, failures: int) -> int:
    """Fails so often first; three times is for good."""
    note(ctx)
    if ctx.attempt <= failures:
        raise ConnectionError(f"attempt {ctx.attempt} of {failures}")
    return ctx.attempt


@soak.job
async def keyed(ctx: JobContext, number: int) -> int:
    """Asked for several times by one key."""
    note(ctx)
    return number


@soak.job
async def delayed(ctx: JobContext, number: int) -> int:
    """Asked for ahead of its time; some are cancelled before it comes."""
    note(ctx)
    return number


@soak.job
async def cancelled(ctx: JobContext) -> None:
    """Ends only by being cancelled, and sooner than it would time out."""
    note(ctx)
    await asyncio.sleep(100)


@soak.job
async def skipped(ctx: JobContext) -> None:
    """Finds nothing to do."""
    note(ctx)
    ctx.skip("nothing to do")


@soak.job(timeout="1s")
async def late(ctx: JobContext) -> None:
    """Takes longer than it may."""
    note(ctx)
    await asyncio.sleep(100)


@soak.job
async def large(ctx: JobContext, text: str) -> str:
    """Payload and result too large for the record."""
    note(ctx)
    return text.upper()


@soak.job
async def parent(ctx: JobContext, number: int) -> str:
    """Asks for a run itself."""
    note(ctx)
    return (await ctx.trigger_child(child, number)).run_id


@soak.job
async def child(ctx: JobContext, number: int) -> int:
    """Asked for by `parent`."""
    note(ctx)
    return number


@soak.job(triggers=[OnEvent("soak.orders", filter={"total": {"gte": 100}})])
async def on_event(ctx: JobContext, order: dict[str, int]) -> int:
    """Of events by core NATS, those that pass."""
    note(ctx)
    return order["total"]


@soak.job(triggers=[Every("1s", **LOSSLESS)])
async def tick(ctx: JobContext) -> None:
    """Each second."""
    note(ctx)


@soak.job(triggers=[Every("5s", **LOSSLESS)])
def slow_tick(ctx: JobContext) -> None:
    """Each five seconds, in a thread."""
    note(ctx)


@soak.job(triggers=[Cron("*/10 * * * * *", timezone="Europe/Paris", **LOSSLESS)])
async def cron(ctx: JobContext) -> None:
    """Each ten seconds by a cron line."""
    note(ctx)
