"""A module whose hooks run around every attempt."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from notes import note, noted

from jetjobs import JobContext, Module

module = Module("hooked")


@module.before_attempt
async def before(ctx: JobContext[Any]) -> None:
    note("before", run=ctx.run_id, attempt=ctx.attempt)


@module.after_attempt
async def after(ctx: JobContext[Any], error: BaseException | None) -> None:
    note("after", run=ctx.run_id, attempt=ctx.attempt, error=type(error).__name__)


@module.job
async def plain(ctx: JobContext) -> None:
    with noted(ctx):
        pass


@module.job
def in_thread(ctx: JobContext) -> None:
    with noted(ctx):
        raise ValueError("fails")


@module.job
async def forks(ctx: JobContext) -> str:
    with noted(ctx):
        pid = os.fork()
        if pid:
            await asyncio.to_thread(os.waitpid, pid, 0)
    return "parent"


@module.job
def forks_in_thread(ctx: JobContext) -> str:
    with noted(ctx):
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
    return "parent"
