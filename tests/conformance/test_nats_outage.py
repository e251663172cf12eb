"""The stores on NATS while their server goes away and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import nats
import pytest
from nats.aio.client import Client
from nats.errors import NoRespondersError

from jetjobs._core import names
from jetjobs._core.bodies import ClaimCheck
from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._nats import open_backend
from jetjobs._ports import Backend
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, PayloadInvalidError
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


@pytest.fixture
async def backend(own_server: RealServer, project: str) -> AsyncIterator[Backend]:
    made = await open_backend(own_server.url, project, name="outage")
    await made.broker.ensure_project()
    yield made
    await made.close()


def record(run_id: str) -> RunRecord:
    return RunRecord(run_id, "m", "j", RunStatus.RUNNING)


@pytest.mark.faults
async def test_every_call_ends_and_nothing_is_lost(backend: Backend, own_server: RealServer):
    revision = await backend.runs.create(record("kept"))
    claim = await backend.payloads.put("kept", "in", "x", b"p" * 600_000)
    await asyncio.to_thread(own_server.kill9)
    began = time.monotonic()
    results = await asyncio.gather(
        backend.runs.create(record("never")),
        backend.runs.update(record("kept"), revision),
        backend.runs.get(RunKey("m", "j", "kept")),
        backend.runs.find("kept"),
        backend.runs.delete(RunKey("m", "j", "kept"), revision),
        backend.payloads.put("kept", "out", "y", b"q" * 600_000),
        backend.payloads.get(claim),
        backend.catalog.jobs(),
        backend.catalog.hosts(),
        return_exceptions=True,
    )
    assert time.monotonic() - began < 15
    assert {type(result) for result in results} <= {BrokerUnavailable, AnswerUnknown}

    await asyncio.to_thread(own_server.start)
    stored = await backend.runs.get(RunKey("m", "j", "kept"))
    assert stored is not None
    assert stored.revision == revision
    assert await backend.payloads.get(claim) == b"p" * 600_000


@pytest.mark.faults
async def test_a_scan_goes_on_after_a_restart(backend: Backend, own_server: RealServer):
    wanted = {f"r{n}" for n in range(2500)}
    await asyncio.gather(*(backend.runs.create(record(run_id)) for run_id in wanted))
    seen: list[str] = []
    async for stored in backend.runs.scan():
        seen.append(stored.record.run_id)
        if len(seen) == 10:
            await asyncio.to_thread(own_server.restart)
    assert sorted(seen) == sorted(wanted)


@pytest.mark.parametrize("silence", [0.5, 4.0])
async def test_a_scan_waits_for_a_stream_that_answers_no_more_for_a_moment(
    backend: Backend, own_server: RealServer, project: str, silence: float
):
    """As a server does that restarts: it takes connections before its streams answer."""
    wanted = {f"r{n}" for n in range(2500)}
    await asyncio.gather(*(backend.runs.create(record(run_id)) for run_id in wanted))
    client = await nats.connect(own_server.url)
    streams = client.jetstream()
    config = (await streams.stream_info(stream := names.bucket_stream(names.runs_bucket(project)))).config
    seen: list[str] = []
    back: list[asyncio.Task[None]] = []

    async def answer_again() -> None:
        await asyncio.sleep(silence)
        await streams.update_stream(config)

    async for stored in backend.runs.scan():
        seen.append(stored.record.run_id)
        if len(seen) == 10:
            await streams.update_stream(replace(config, allow_direct=False))
            assert await nobody_answers(client, f"$JS.API.DIRECT.GET.{stream}")
            back.append(asyncio.create_task(answer_again()))
    await asyncio.gather(*back)
    assert sorted(seen) == sorted(wanted)
    await client.close()


async def nobody_answers(client: Client, subject: str) -> bool:
    try:
        await client.request(subject, b"{}")
    except NoRespondersError:
        return True
    return False


async def test_a_project_nobody_prepared_is_told_apart_from_one_without_runs(own_server: RealServer, project: str):
    backend = await open_backend(own_server.url, project, name="outage")
    key = RunKey("m", "j", "r")

    async def scan() -> None:
        async for _ in backend.runs.scan():
            pass

    calls = [
        lambda: backend.runs.create(record("r")),
        lambda: backend.runs.get(key),
        lambda: backend.runs.find("r"),
        lambda: backend.runs.delete(key, 1),
        lambda: backend.catalog.job(key.address),
        lambda: backend.payloads.put("r", "in", "x", b"1"),
        lambda: backend.payloads.newest("r"),
        lambda: backend.payloads.purge("r"),
        lambda: backend.broker.last(names.trigger_subject(project, key)),
        lambda: backend.broker.message(1),
        lambda: backend.broker.purge(names.trigger_subject(project, key), up_to=1),
        lambda: backend.broker.in_stream([key]),
        backend.broker.measure_clock,
        backend.runs.holding,
        backend.payloads.holding,
        backend.catalog.jobs,
        backend.catalog.hosts,
        scan,
    ]
    try:
        for call in calls:
            with pytest.raises(BrokerUnavailable, match="No host has prepared this project"):
                await call()
        with pytest.raises(PayloadInvalidError, match="gone"):
            await backend.payloads.get(ClaimCheck(f"jetjobs.{project}.payload.r.in.x", 1, 1, "0" * 64))
    finally:
        await backend.close()
