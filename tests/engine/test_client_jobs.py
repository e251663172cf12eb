"""A client with the `Job` at hand: checked payloads, typed results, bound modules."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest
from pydantic import BaseModel

from jetjobs._core.models import (
    RunStatus,
)
from jetjobs.client import JobClient, TriggerError, TriggerRequest
from jetjobs.context import JobContext
from jetjobs.errors import (
    AmbiguousHostError,
    JobsNotHosted,
    PayloadInvalidError,
)
from jetjobs.module import Module
from jetjobs.testing import memory_backend
from tests.support.client_world import World, packed


class Colour(Enum):
    RED = "red"


class Invoice(BaseModel):
    id: int


@dataclass
class Receipt:
    number: int
    colour: Colour


def shop() -> Module:
    module = Module("billing")

    @module.job
    async def send(_ctx: JobContext, invoice: Invoice) -> Receipt:
        return Receipt(invoice.id, Colour.RED)

    @module.job
    def plain(_ctx: JobContext) -> dict[str, int]:
        return {}

    return module


class TestJobsAtHand:
    async def test_the_payload_is_checked_in_the_caller(self, world: World):
        job = world.client.get_job(shop().jobs["send"])
        with pytest.raises(PayloadInvalidError, match="id"):
            await job.trigger({"id": "seven"})
        results = await world.client.trigger_many([TriggerRequest(shop().jobs["send"], {"id": "x"})])
        assert isinstance(results[0], TriggerError)
        assert world.subjects() == []
        run = await job.trigger(Invoice(id=7))
        trigger = await world.trigger_of(run.key)
        assert trigger.body is not None
        assert trigger.body.value == {"id": 7}
        assert trigger.payload_schema == shop().jobs["send"].payload_schema_digest

    async def test_the_result_is_what_the_handler_returned(self, world: World):
        run = await world.client.get_job(shop().jobs["send"]).trigger(Invoice(id=7))
        await world.finish(run.key, result_body=packed(Receipt(7, Colour.RED)))
        assert await run.result() == Receipt(7, Colour.RED)
        assert await world.client.run(*run.key).result() == {"number": 7, "colour": "red"}

    async def test_a_result_that_does_not_fit_says_so(self, world: World):
        run = await world.client.get_job(shop().jobs["send"]).trigger(Invoice(id=7))
        await world.finish(run.key, result_body=packed({"other": 1}))
        with pytest.raises(PayloadInvalidError, match=r"billing\.send"):
            await run.result()

    async def test_modules_are_bound_while_the_client_is_open(self, world: World):
        module = shop()
        send = module.jobs["send"]
        with pytest.raises(JobsNotHosted):
            await send.trigger(Invoice(id=7))
        async with JobClient(backend=memory_backend(world.cluster), modules=[module]) as client:
            run = await send.trigger({"id": 7}, idempotency_key="k", timeout=1)
            assert (await send.trigger({"id": 7}, idempotency_key="k")).duplicate
            assert await client.run("billing", "send", run.run_id).status() is RunStatus.QUEUED
            other = JobClient(backend=memory_backend(world.cluster, "other"), modules=[module])
            async with other:
                with pytest.raises(AmbiguousHostError):
                    await send.trigger({"id": 8})
        with pytest.raises(JobsNotHosted):
            await send.trigger(Invoice(id=7))
