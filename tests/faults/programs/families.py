"""A parent that triggers children and then takes its time."""

from __future__ import annotations

import asyncio
from typing import Any

from notes import note, noted
from shared import QUICK, module

from jetjobs import JobContext


@module.job(max_concurrency=4, max_attempts=3, backoff=QUICK)
async def child(ctx: JobContext[Any], number: int) -> int:
    with noted(ctx, parent=ctx.trigger.parent_run_id):
        return number


@module.job(max_attempts=3, backoff=QUICK)
async def parent(ctx: JobContext[Any], children: int) -> list[str]:
    with noted(ctx):
        runs = [await ctx.trigger_child("basic.child", number) for number in range(children)]
        note("children", run=ctx.run_id, attempt=ctx.attempt, ids=[run.run_id for run in runs])
        if ctx.attempt == 1:
            await asyncio.sleep(60)
        return [run.run_id for run in runs]
