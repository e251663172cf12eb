"""Children of runs on a real server, from coroutines and from threads."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from jetjobs import Backoff, JobContext, Module, RunStatus
from tests.support.field import field_of

pytestmark = pytest.mark.integration


def family() -> tuple[Module, list[int]]:
    module = Module("family")
    seen: list[int] = []

    @module.job(timeout="20s", max_attempts=2, backoff=Backoff("100ms", jitter=0))
    def split(ctx: JobContext[Any], numbers: list[int]) -> list[str]:
        """A plain function: it runs in a thread."""
        assert threading.current_thread() is not threading.main_thread()
        runs = [ctx.trigger_child_blocking(part, number) for number in numbers]
        if ctx.attempt == 1:
            raise ValueError("after the children")
        assert all(run.duplicate and not run.payload_differs for run in runs)
        return [run.run_id for run in runs]

    @module.job(timeout="20s", max_concurrency=4)
    async def part(ctx: JobContext[Any], number: int) -> int:
        seen.append(number)
        return number * number

    @module.job(timeout="20s")
    async def total(ctx: JobContext[Any], numbers: list[int]) -> int:
        """Waits for its children, which have slots of their own."""
        runs = [await ctx.trigger_child(part, number) for number in numbers]
        return sum([await run.result(timeout=45) for run in runs])

    @module.job(timeout="20s")
    def add_up(ctx: JobContext[Any], numbers: list[int]) -> int:
        """The run that a thread gets has calls that block."""
        runs = [ctx.trigger_child_blocking("family.part", number, key=f"n-{number}") for number in numbers]
        assert [run.wait(timeout=45).status for run in runs] == [RunStatus.SUCCEEDED] * len(runs)
        return sum(run.result(timeout=45) for run in runs)

    @module.job(timeout="1s")
    def refused(ctx: JobContext[Any]) -> None:
        ctx.trigger_child_blocking(part, "no number")

    return module, seen


async def test_a_repeated_attempt_of_a_plain_function_makes_the_same_children(nats_url: str, project: str):
    module, seen = family()
    async with field_of(nats_url, project) as field:
        await field.host(module)
        run = await field.client.get_job("family.split").trigger([1, 2, 3])
        record = await run.wait(timeout=45)
        assert (record.status, record.attempt) == (RunStatus.SUCCEEDED, 2)
        children = [await field.ended("family.part", run_id) for run_id in record.result]
        assert [(child.result, child.parent_run_id) for child in children] == [(n * n, run.run_id) for n in (1, 2, 3)]
        await field.retired("family.part")
        assert sorted(seen) == [1, 2, 3]
        listed = await field.client.runs.list(job="part")
        assert {child.run_id for child in listed} == set(record.result)


@pytest.mark.parametrize("job", ["total", "add_up"])
async def test_a_parent_may_wait_for_its_children_s_results(nats_url: str, project: str, job: str):
    module, _ = family()
    async with field_of(nats_url, project) as field:
        await field.host(module)
        run = await field.client.get_job("family", job).trigger([1, 2, 3])
        assert await run.result(timeout=45) == 14


async def test_a_payload_that_doesn_t_fit_is_refused_in_the_thread(nats_url: str, project: str):
    module, seen = family()
    async with field_of(nats_url, project) as field:
        await field.host(module)
        record = await (await field.client.get_job("family.refused").trigger()).wait(timeout=45)
        assert record.error is not None
        assert record.error.type == "PayloadInvalidError"
        assert seen == []


async def test_children_of_another_project_s_job_are_unknown(nats_url: str, project: str):
    module = Module("lonely")

    @module.job(timeout="10s")
    async def ask(ctx: JobContext[Any]) -> None:
        await ctx.trigger_child("family.part", 1)

    async with field_of(nats_url, project) as field:
        await field.host(module)
        record = await (await field.client.get_job("lonely.ask").trigger()).wait(timeout=45)
        assert record.error is not None
        assert record.error.type == "UnknownJobError"
