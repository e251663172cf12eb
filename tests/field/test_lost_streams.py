"""Storage that went while hosts were at work: streams and buckets removed by somebody are made again. Beside B93."""

from __future__ import annotations

import time

import pytest

from jetjobs import Every, JobContext, Module, RunStatus
from jetjobs._core import names
from jetjobs._core.bodies import INLINE_LIMIT
from jetjobs.errors import JetJobsError
from tests.support.field import Field
from tests.support.links import until_it

pytestmark = pytest.mark.faults


def streams(project: str) -> list[str]:
    buckets = ("runs", "jobs", "hosts", "schedules")
    return [names.stream(project), *(f"KV_jetjobs_{project}_{bucket}" for bucket in buckets)]


async def works(field: Field, job: str, size: int) -> bool:
    """Whether a run goes through, with payload and result of that size."""
    try:
        run = await field.client.get_job(job).trigger("x" * size, timeout=2)
        return await run.result(timeout=45) == size
    except (JetJobsError, TimeoutError):
        return False


async def test_b93_what_was_removed_under_a_host_is_made_again(field: Field) -> None:
    """What lay in it is lost; what comes is not, ticks included, and the run that was going on ends well."""
    shop, ticks = Module("shop"), list[float]()

    @shop.job(timeout="20s", max_concurrency=4)
    async def length(ctx: JobContext, text: str) -> int:
        return len(text)

    @shop.job(timeout="20s", triggers=[Every("1s")])
    async def tick(ctx: JobContext) -> None:
        ticks.append(time.monotonic())

    await field.host(shop)
    for stream in streams(field.project):
        assert await field.nats.jetstream().delete_stream(stream)
        deleted_at = time.monotonic()
        await until_it(lambda: works(field, "shop.length", 10))

        async def ticked(since: float = deleted_at) -> bool:
            return sum(at > since + 1.5 for at in ticks) >= 2

        await until_it(ticked)
        assert await field.nats.jetstream().stream_info(stream)


@pytest.mark.parametrize("which", ["JETJOBS_{}_payloads", "KV_jetjobs_{}_runs"])
async def test_b93_a_run_ends_well_although_its_bucket_goes(field: Field, which: str) -> None:
    """Without its record it can't be told from one that never started, so that it starts again."""
    shop, removed = Module("shop"), list[str]()

    @shop.job(timeout="20s", max_concurrency=4)
    async def large(ctx: JobContext, size: int) -> str:
        if not removed:
            removed.append(which.format(field.project))
            await field.nats.jetstream().delete_stream(removed[0])
        return "y" * size

    await field.host(shop)
    run = await field.client.get_job("shop.large").trigger(2 * INLINE_LIMIT)
    record = await run.wait(timeout=45)
    assert record.status is RunStatus.SUCCEEDED
    assert record.result == "y" * 2 * INLINE_LIMIT
    await field.retired("shop.large")
