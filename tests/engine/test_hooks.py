"""Hooks that hang: an order to stop reaches them wherever the handler runs, on a real server."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from jetjobs import Backoff, JobContext, Module
from jetjobs._core.models import RunStatus
from tests.support.process_bench import hosted

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("hook", ["before", "after"])
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_hook_that_hangs_is_cancelled_and_the_run_goes_on(
    nats_url: str, project: str, kind: str, hook: Literal["before", "after"]
) -> None:
    module = Module("hooked")
    stopped: list[str] = []

    async def hang(ctx: JobContext[Any]) -> None:
        if ctx.attempt == 1:
            try:
                await asyncio.Event().wait()
            finally:
                stopped.append(str(ctx.cancel_reason))

    async def hang_after(ctx: JobContext[Any], error: BaseException | None) -> None:
        await hang(ctx)

    def plain(ctx: JobContext[Any]) -> int:
        return ctx.attempt

    async def awaited(ctx: JobContext[Any]) -> int:
        return ctx.attempt

    if hook == "before":
        module.before_attempt(hang)
    else:
        module.after_attempt(hang_after)
    handler = plain if kind == "def" else awaited
    module.expose_job("job", handler, timeout=0.3, max_attempts=2, backoff=Backoff("50ms", factor=1, jitter=0))
    async with hosted(nats_url, project, module) as bench:
        record = await bench.run("hooked.job")
        assert (record.status, record.result) == (RunStatus.SUCCEEDED, 2)
    assert [each.outcome for each in record.attempts] == ["TIMED_OUT", "SUCCEEDED"]
    assert stopped == ["timeout"]
