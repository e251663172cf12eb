"""What operators purge and delete under a serving host: its schedules come back, and no instant runs twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from jetjobs import Cron, Every, JobContext, Module
from jetjobs._core import names
from jetjobs._core.models import JobAddress
from jetjobs._core.triggers import schedule_id
from tests.support.field import Field
from tests.support.links import until

pytestmark = pytest.mark.integration

ADDRESS = JobAddress("m", "look")


async def purge_records(field: Field) -> None:
    await field.nats.jetstream().purge_stream(names.bucket_stream(names.schedules_bucket(field.project)))


async def delete_one_record(field: Field) -> None:
    """As `nats kv del` does: a marker stays."""
    kv = await field.nats.jetstream().key_value(names.schedules_bucket(field.project))
    await kv.delete(f"id.{schedule_id(ADDRESS, 'every')}")


async def purge_jobs(field: Field) -> None:
    await field.nats.jetstream().purge_stream(names.stream(field.project))


async def purge_message(field: Field) -> None:
    subject = names.schedule_subject(field.project, ADDRESS, schedule_id(ADDRESS, "every"))
    await field.nats.jetstream().purge_stream(names.stream(field.project), subject=subject)


async def delete_bucket(field: Field) -> None:
    await field.nats.jetstream().delete_stream(names.bucket_stream(names.schedules_bucket(field.project)))


async def publish_over_it(field: Field) -> None:
    """An ordinary message on a schedule's subject ends the schedule for the broker."""
    subject = names.schedule_subject(field.project, ADDRESS, schedule_id(ADDRESS, "every"))
    await field.nats.jetstream().publish(subject, b"oops")


@pytest.mark.parametrize(
    "harm",
    [purge_records, delete_one_record, purge_jobs, purge_message, delete_bucket, publish_over_it],
    ids=lambda harm: harm.__name__,
)
async def test_b03_what_somebody_removes_is_written_again(field: Field, harm: Callable[[Field], Awaitable[None]]):
    due: dict[str, list[float]] = {"every": [], "cron": []}
    module = Module("m")

    @module.job(timeout="5s", triggers=[Every("1s"), Cron("* * * * * *")], max_concurrency=2)
    async def look(ctx: JobContext[Any]) -> None:
        assert ctx.trigger.scheduled_for is not None
        due[ctx.trigger.kind].append(ctx.trigger.scheduled_for.timestamp())

    await field.host(module)
    await until(lambda: min(map(len, due.values())) >= 2)
    await harm(field)
    before = {name: len(each) for name, each in due.items()}
    await until(lambda: all(len(due[name]) >= before[name] + 3 for name in due))
    for each in due.values():
        assert len(set(each)) == len(each)
        assert [later - sooner for sooner, later in pairwise(each[-2:])] == [1]
    client = field.client
    assert {run.trigger.schedule_id for run in await client.runs.list(module="m", limit=10)} == {
        schedule_id(ADDRESS, name) for name in due
    }
