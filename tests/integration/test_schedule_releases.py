"""A schedule's payload changes together with its job's model, while hosts of both releases live."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import Every, JobContext, Module, RunStatus
from tests.support.field import field_of
from tests.support.links import until_it

pytestmark = pytest.mark.integration


class One(BaseModel):
    email: str


class Two(BaseModel):
    address: str


def shop(model: type[BaseModel], payload: dict[str, Any], seen: list[tuple[str, str]]) -> Module:
    module = Module("shop")

    async def count(ctx: JobContext[Any], payload: Any) -> None:
        seen.append((type(payload).__name__, ctx.run_id))

    count.__annotations__["payload"] = model
    module.expose_job("count", count, triggers=[Every("1s", payload=payload)], timeout="20s", max_concurrency=2)
    return module


async def test_ticks_of_the_new_release_fail_on_no_old_host(nats_url: str, project: str):
    seen: list[tuple[str, str]] = []
    async with field_of(nats_url, project) as field:
        for _ in range(3):
            await field.host(shop(One, {"email": "a@b.c"}, seen), version="1")
        await field.host(shop(Two, {"address": "here"}, seen), version="2")

        async def some_of_the_new() -> bool:
            return len([kind for kind, _ in seen if kind == "Two"]) >= 4

        await until_it(some_of_the_new, 30)
        records = await field.client.runs.list(module="shop", job="count", include_skipped=True)
        assert {record.status for record in records} <= {
            RunStatus.SUCCEEDED,
            RunStatus.SKIPPED,
            RunStatus.RUNNING,
            RunStatus.SCHEDULED,
            RunStatus.QUEUED,
        }
        assert len({run for _, run in seen}) == len(seen)
