"""The blocking client orders what the async one does, and says the same of it."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs import JobContext, JobHost, Module
from jetjobs.errors import HostNotFound, UnknownJobError
from jetjobs.sync import JobClient

pytestmark = pytest.mark.integration


async def test_orders_and_drains(nats_url: str, project: str):
    shop = Module("shop")

    @shop.job(timeout="20s", max_concurrency=3)
    async def add(ctx: JobContext, number: int) -> int:
        return number + 1

    client = JobClient(nats_url, project=project)

    def operate() -> None:
        paused = client.jobs.pause("shop", "add", actor="ops")
        assert paused.control is not None
        assert (paused.paused, paused.control.switched_by) == (True, "ops")
        run = client.get_job("shop", "add").trigger(1)
        assert run.paused
        assert client.jobs.override("shop.add", max_concurrency=1).limit == 1
        assert [job.limit for job in client.jobs.list()] == [1]
        assert client.jobs.override("shop.add", max_concurrency=None, timeout=5).limit == 3
        assert not client.jobs.resume("shop.add").paused
        assert run.result(timeout=45) == 2
        with pytest.raises(UnknownJobError):
            client.jobs.pause("shop.ad")
        with pytest.raises(HostNotFound):
            client.hosts.drain("nobody")
        (host,) = client.hosts.list()
        assert not client.hosts.drain(host.host_id, actor="ops").closes

    async with JobHost([shop], project=project, nats=nats_url):
        await asyncio.to_thread(operate)
    await asyncio.to_thread(client.close)
