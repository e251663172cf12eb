"""What a run costs the broker, counted in calls and messages: the stand-in for speed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import nats
import pytest
from nats.aio.msg import Msg

from jetjobs import JobClient, JobContext, JobHost, Module
from jetjobs._nats import open_backend
from jetjobs.testing import FailingBackend
from tests.faults.field import monitor, show
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.integration

RUNS = 20
PORT_CALLS = {"broker.store": 1, "runs.create": 1, "runs.update": 1, "delivery.ack": 1, "broker.announce_end": 1}
MESSAGES_A_RUN = 6  # trigger, create, update, ack, end announced; a pull request for the next


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncIterator[tuple[str, int]]:
    """A server of the test's own, and its monitoring port."""
    port = free_port()
    with RealServer(tmp_path / "nats", extra_args=("-m", str(port))) as server:
        yield server.url, port


async def test_round_trips_of_a_run(counted: tuple[str, int], project: str) -> None:
    """The stand-in for speed: one run is one trigger stored, one create, one update, one ack, one core message."""
    url, port = counted
    ended: asyncio.Queue[str] = asyncio.Queue()
    module = Module("shop")

    @module.job(timeout="30s", max_concurrency=1)
    async def noop(ctx: JobContext) -> None:
        return

    mine, hosts = [FailingBackend(await open_backend(url, project, name=who)) for who in ("client", "host")]
    watcher = await nats.connect(url)

    async def put(message: Msg) -> None:
        ended.put_nowait(message.subject)

    await watcher.subscribe(f"jetjobs.{project}.events.>", cb=put)
    await watcher.flush()
    async with JobHost([module], backend=hosts), JobClient(backend=mine) as client:
        job = client.get_job("shop", "noop")

        async def run(times: int) -> None:
            for _ in range(times):
                await job.trigger()
                async with asyncio.timeout(45):
                    await ended.get()

        await run(3)
        mine.calls.clear()
        hosts.calls.clear()
        before = (await monitor(port, "varz"))["in_msgs"]
        await run(RUNS)
        messages = (await monitor(port, "varz"))["in_msgs"] - before
        calls = {**mine.calls, **hosts.calls}
    periodic = {"catalog.say", "catalog.hosts", "broker.measure_clock", "runs.scan"}
    counts = {name: count / RUNS for name, count in calls.items() if name not in periodic}
    show(f"calls a run {counts}, messages to the server a run {messages / RUNS}")
    assert counts == PORT_CALLS
    assert messages <= MESSAGES_A_RUN * RUNS + 10  # heartbeat and presence may fall into it
    await watcher.close()
    for backend in (mine, hosts):
        await backend.close()
