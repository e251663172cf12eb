"""One service in two releases, whose parents trigger a job that was renamed between them; child processes import it."""

from __future__ import annotations

from jetjobs import Backoff, Job, JobContext, JobPolicy, Module

PATIENT = JobPolicy(timeout="20s", max_attempts=3, backoff=Backoff("800ms", factor=1, jitter=0))

release_1 = Module("shop", defaults=PATIENT)
release_2 = Module("shop", defaults=PATIENT)


@release_1.job
async def send(ctx: JobContext) -> None: ...


@release_2.job(aliases=("send",))
async def mail(ctx: JobContext) -> None: ...


async def _parent(ctx: JobContext, child: Job[None, None]) -> None:
    await ctx.trigger_child(child)
    raise ValueError("once more")


def _apart(ctx: JobContext, child: Job[None, None]) -> None:
    ctx.trigger_child_blocking(child)
    raise ValueError("once more")


@release_1.job(name="parent")
async def parent_1(ctx: JobContext) -> None:
    await _parent(ctx, send)


@release_2.job(name="parent")
async def parent_2(ctx: JobContext) -> None:
    await _parent(ctx, mail)


@release_1.job(name="apart", isolation="process")
def apart_1(ctx: JobContext) -> None:
    _apart(ctx, send)


@release_2.job(name="apart", isolation="process")
def apart_2(ctx: JobContext) -> None:
    _apart(ctx, mail)
