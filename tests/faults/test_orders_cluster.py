"""Orders on a real cluster of three, whose leaders die."""

from __future__ import annotations

import asyncio
import json
import time

import nats
from nats.errors import Error

from jetjobs import JobClient, JobContext, JobHost, JobRun, Module
from jetjobs.config import HostSettings
from jetjobs.errors import BrokerError
from tests.faults.rig import eventually
from tests.support.cluster import RealCluster
from tests.support.field import QUICK


async def test_a_pause_outlives_the_leader_and_a_resume_is_prompt(cluster: RealCluster, project: str) -> None:
    async with asyncio.timeout(45):
        await cluster.ready()
    started: list[int] = []
    shop = Module("shop")

    @shop.job(timeout="20s", max_concurrency=2)
    async def pay(ctx: JobContext, number: int) -> None:
        started.append(number)

    settings = HostSettings(**QUICK, replicas=3)
    options = {"servers": cluster.urls, "reconnect_time_wait": 0.1}
    async with (
        JobHost([shop], project=project, nats=options, settings=settings),
        JobClient(options, project=project, timeout=20) as client,
    ):
        handle = client.get_job("shop", "pay")
        assert (await (await handle.trigger(1)).wait(timeout=45)).ok
        await client.jobs.pause("shop", "pay", actor="ops")
        await eventually(lambda: is_paused(cluster, project), what="the pause")
        runs = [await handle.trigger(2), await handle.trigger(3)]
        leader = await cluster.leader_of(f"JETJOBS_{project}")
        assert leader is not None
        leader.kill9()
        await eventually(lambda: is_paused(cluster, project), what="the pause, at another leader")
        leader.start()

        async def stored() -> JobRun[None] | None:
            try:
                return await handle.trigger(4, idempotency_key="four")
            except BrokerError:
                return None  # the stream has no leader yet

        runs.append(await eventually(stored, what="a leader of the stream"))
        assert started == [1]
        resumed = time.monotonic()
        await client.jobs.resume("shop", "pay", actor="ops")
        for run in runs:
            assert (await run.wait(timeout=45)).ok
        assert time.monotonic() - resumed < 4
    assert sorted(started) == [1, 2, 3, 4]


async def is_paused(cluster: RealCluster, project: str) -> bool:
    client = await nats.connect(cluster.urls)
    try:
        answer = await client.request(f"$JS.API.CONSUMER.INFO.JETJOBS_{project}.shop=_pay", timeout=2)
    except Error:
        return False
    finally:
        await client.close()
    return bool(json.loads(answer.data).get("paused"))
