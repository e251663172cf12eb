"""A cluster that is without a leader for a while: calls wait for the next one, and say so when none comes."""

from __future__ import annotations

import asyncio
import time

import pytest

from jetjobs import JobClient, JobContext, JobHost, Module
from jetjobs.config import HostSettings
from jetjobs.errors import BrokerUnavailable, ProjectNotPrepared, TriggerUnconfirmed
from tests.support.cluster import RealCluster
from tests.support.field import QUICK

pytestmark = pytest.mark.faults


async def test_calls_outlast_a_stream_without_a_leader(cluster: RealCluster, project: str) -> None:
    """Two of three nodes die; the third has nobody to choose a leader with until one is back."""
    async with asyncio.timeout(45):
        await cluster.ready()
    shop = Module("shop")

    @shop.job(timeout="20s", max_concurrency=4)
    async def pay(ctx: JobContext, number: int) -> int:
        return number

    options = {"servers": cluster.urls, "reconnect_time_wait": 0.1}
    async with (
        JobHost([shop], project=project, nats=options, settings=HostSettings(**QUICK, replicas=3)),
        JobClient(options, project=project, timeout=60) as known,
        JobClient(options, project=project, timeout=60) as fresh,
    ):
        assert await (await known.get_job(pay).trigger(0)).result(timeout=45) == 0
        lost = [node for node in cluster.nodes.values() if node is not cluster.nodes["n1"]]
        for node in lost:
            node.kill9()
        began = time.monotonic()
        with pytest.raises((BrokerUnavailable, TriggerUnconfirmed)) as short:
            await known.get_job(pay).trigger(9, timeout=3)
        assert not isinstance(short.value, ProjectNotPrepared)
        assert time.monotonic() - began > 2.8, "given up before its time"
        calls = [
            asyncio.create_task(known.get_job(pay).trigger(1)),
            asyncio.create_task(known.get_job(pay).trigger(2, idempotency_key="two")),
            asyncio.create_task(fresh.get_job(pay).trigger(3)),
        ]
        done, _ = await asyncio.wait(calls, timeout=4)
        assert not done, [task.exception() for task in done]
        await asyncio.to_thread(lost[0].start)
        for number, call in enumerate(calls, start=1):
            assert await (await call).result(timeout=45) == number
