"""The client against a real nats-server; hosts are played by hand through the ports."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta

import nats
import pytest

from jetjobs._core import codec, names
from jetjobs._core.bodies import Body
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus
from jetjobs._nats import open_backend
from jetjobs._ports import Backend
from jetjobs.client import CancelOutcome, JobClient, JobRun, TriggerError, TriggerRequest
from jetjobs.errors import (
    BrokerError,
    BrokerUnavailable,
    ClientError,
    PayloadTooLargeError,
    RunFailed,
    RunNotFound,
)
from tests.support.client_world import claimed, present
from tests.support.links import until
from tests.support.servers import RealServer, free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

SEND = JobAddress("billing.eu", "send")


async def prepared(url: str, project: str) -> Backend:
    """What a host leaves behind that started once and lives."""
    backend = await open_backend(url, project, name="host by hand")
    await backend.broker.ensure_project()
    await backend.catalog.describe(JobDescriptor(*SEND, digest="d"))
    await backend.catalog.say(present(SEND, datetime.now(UTC)), timedelta(minutes=10))
    return backend


async def start(host: Backend, run: RunKey) -> RunRecord:
    record = claimed(run, datetime.now(UTC))
    await host.runs.create(record)
    return record


async def finish(host: Backend, run: RunKey, event: Event = Event.SUCCEED, result: object = None) -> RunRecord:
    record = await start(host, run)
    stored = await host.runs.get(run)
    assert stored is not None
    ended = advance(record, event, finished_at=datetime.now(UTC), result_body=Body(codec.encode(result)))
    await host.runs.update(ended, stored.revision)
    host.broker.announce_end(ended)
    return ended


@pytest.fixture
async def host(nats_url: str, project: str) -> AsyncIterator[Backend]:
    backend = await prepared(nats_url, project)
    yield backend
    await backend.close()


@pytest.fixture
async def client(host: Backend, nats_url: str, project: str) -> AsyncIterator[JobClient]:
    async with JobClient(nats_url, project=project, timeout=5) as opened:
        yield opened


async def messages(url: str, project: str) -> dict[str, int]:
    connection = await nats.connect(url)
    info = await connection.jetstream().stream_info(names.stream(project), subjects_filter=">")
    await connection.close()
    return info.state.subjects or {}


async def test_a_run_from_trigger_to_result(client: JobClient, host: Backend):
    run = await client.get_job(*SEND).trigger({"id": 7}, idempotency_key="inv-7")
    assert await run.status() is RunStatus.QUEUED
    waiting = asyncio.create_task(run.result(timeout=45))
    await finish(host, run.key, result={"ok": datetime(2030, 1, 1, tzinfo=UTC)})
    assert await waiting == {"ok": datetime(2030, 1, 1, tzinfo=UTC)}
    assert (await client.runs.get(run.run_id)).status is RunStatus.SUCCEEDED
    again = await client.get_job(*SEND).trigger({"id": 8}, idempotency_key="inv-7")
    assert (again.run_id, again.duplicate) == (run.run_id, True)


async def test_one_key_from_many_connections_is_one_run(client: JobClient, host: Backend, nats_url: str, project: str):
    clients = [JobClient(nats_url, project=project) for _ in range(8)]
    for each in clients:
        await each.connect()
    try:
        jobs = [each.get_job(*SEND) for each in clients for _ in range(5)]
        runs = await asyncio.gather(*(job.trigger({"n": 1}, idempotency_key="k") for job in jobs))
    finally:
        for each in clients:
            await each.close()
    assert len({run.run_id for run in runs}) == 1
    assert [run.duplicate for run in runs].count(False) == 1
    assert not any(run.payload_differs for run in runs)
    assert await messages(nats_url, project) == {names.trigger_subject(project, runs[0].key): 1}
    assert (await client.get_job(*SEND).trigger({"n": 2}, idempotency_key="k")).payload_differs


async def test_a_delayed_run_fires_and_can_be_moved(client: JobClient, host: Backend, nats_url: str, project: str):
    run = await client.get_job(*SEND).trigger("x" * 20_000, delay="1h")
    assert await run.status() is RunStatus.SCHEDULED
    await run.reschedule(datetime.now(UTC) + timedelta(hours=2))
    record = await client.runs.get(run.run_id)
    assert record.scheduled_for is not None
    assert record.scheduled_for > datetime.now(UTC) + timedelta(minutes=90)
    await run.reschedule(datetime.now(UTC))

    async def fired() -> bool:  # the broker tells nobody that
        return await run.status() is not RunStatus.SCHEDULED

    await eventually(fired, what="the schedule's time")
    assert await run.status() is RunStatus.QUEUED
    with pytest.raises(ClientError, match="QUEUED"):
        await run.reschedule(datetime.now(UTC) + timedelta(hours=2))
    assert await messages(nats_url, project) == {names.trigger_subject(project, run.key): 1}


@pytest.mark.parametrize("delay", [None, "1h"])
async def test_a_waiting_run_is_cancelled_and_leaves_nothing(
    client: JobClient, host: Backend, nats_url: str, project: str, delay: str | None
):
    run = await client.get_job(*SEND).trigger({"id": 7}, delay=delay)
    assert (await run.cancel()).outcome is CancelOutcome.CANCELLED
    assert (await run.wait(timeout=45)).status is RunStatus.CANCELLED
    assert (await run.cancel()).outcome is CancelOutcome.ALREADY_FINISHED
    assert await messages(nats_url, project) == {}


async def test_cancel_of_a_running_and_of_an_unknown_run(client: JobClient, host: Backend):
    heard = asyncio.Event()
    await host.broker.hear_cancels(lambda _run: heard.set())
    run = await client.get_job(*SEND).trigger({"id": 7})
    await start(host, run.key)
    assert (await run.cancel()).outcome is CancelOutcome.ASKED
    async with asyncio.timeout(45):
        await heard.wait()
    unknown = client.run(*SEND, "nope")
    with pytest.raises(RunNotFound):
        await unknown.cancel()
    assert await host.runs.get(unknown.key) is None


@pytest.mark.parametrize("size", [1, 16 * 1024, 1_000_000, 5_000_000])
async def test_payloads_of_any_size_arrive(client: JobClient, host: Backend, size: int):
    run = await client.get_job(*SEND).trigger("x" * size)
    body = (await client.runs.get(run.run_id)).payload_body
    assert body is not None
    data = body.data if body.claim is None else await host.payloads.get(body.claim)
    assert codec.decode(data) == "x" * size


async def test_results_of_any_size_arrive(client: JobClient, host: Backend):
    run = await client.get_job(*SEND).trigger()
    record = await start(host, run.key)
    claim = await host.payloads.put(run.run_id, "out", "c1", codec.encode("y" * 5_000_000))
    stored = await host.runs.get(run.key)
    assert stored is not None
    await host.runs.update(advance(record, Event.SUCCEED, result_body=Body(claim=claim)), stored.revision)
    assert await run.result(timeout=45) == "y" * 5_000_000


async def test_too_large_is_refused_at_the_call(client: JobClient, host: Backend, nats_url: str, project: str):
    with pytest.raises(PayloadTooLargeError):
        await client.get_job(*SEND).trigger(b"x" * (64 * 1024 * 1024 + 1))
    assert await messages(nats_url, project) == {}


async def test_many_in_order(client: JobClient, host: Backend):
    requests = [TriggerRequest(str(SEND), n) for n in range(2000)]
    requests[700] = TriggerRequest("billing.eu.snd", 700)
    results = await client.trigger_many(requests)
    failed = [n for n, result in enumerate(results) if isinstance(result, TriggerError)]
    assert failed == [700]
    for n in (0, 1234, 1999):
        result = results[n]
        assert isinstance(result, JobRun)
        assert (await result.record()).payload == n


async def test_many_where_the_stream_takes_no_batches(client: JobClient, nats_url: str, project: str):
    connection = await nats.connect(nats_url)
    name = names.stream(project)
    config = json.loads((await connection.request(f"$JS.API.STREAM.INFO.{name}")).data)["config"]
    update = json.dumps({**config, "allow_atomic": False}).encode()
    assert "error" not in json.loads((await connection.request(f"$JS.API.STREAM.UPDATE.{name}", update)).data)
    await connection.close()
    results = await client.trigger_many(TriggerRequest(str(SEND), n) for n in range(300))
    assert all(isinstance(result, JobRun) for result in results)
    assert sum((await messages(nats_url, project)).values()) == 300


async def test_lists(client: JobClient, host: Backend):
    runs: list[RunKey] = []
    for n in range(5):
        run = RunKey(*SEND, f"r{n}")
        await finish(host, run, Event.FAIL if n == 2 else Event.SUCCEED)
        runs.insert(0, run)
    assert [record.run_key for record in await client.runs.list()] == runs
    assert [record.run_id for record in await client.runs.list(module="billing.eu", status="failed")] == ["r2"]
    assert [record.run_key async for record in client.runs.iter(job="send")] == runs
    assert [job.address for job in await client.jobs.list()] == [SEND]
    assert [each.host_id for each in await client.hosts.list()] == ["h1"]
    with pytest.raises(RunFailed):
        await client.run(*SEND, "r2").result(timeout=45)


async def test_a_project_nobody_started(nats_url: str, project: str):
    async with JobClient(nats_url, project=project, timeout=1.5) as client:
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.get_job(*SEND).trigger(1),
            lambda: client.get_job(*SEND).trigger(1, allow_unknown=True),
            lambda: client.runs.get("nope"),
            client.run(*SEND, "nope").cancel,
            client.runs.list,
        ]
        for call in calls:
            with pytest.raises(BrokerUnavailable, match="No host has prepared this project"):
                await call()
    connection = await nats.connect(nats_url)
    created = [info.config.name for info in await connection.jetstream().streams_info() if project in str(info.config)]
    await connection.close()
    assert created == []


async def test_it_opens_one_connection_and_closes_what_it_opened(nats_url: str, project: str):
    """Callers that connect at once share it, and a close in between leaves none behind."""

    def connections() -> int:
        names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
        return sum(name.endswith("Client._read_loop") for name in names)

    client = JobClient(nats_url, project=project)
    await asyncio.gather(client.connect(), client.connect(), client.connect())
    assert connections() == 1
    await client.close()
    for steps in (1, 3, 10, 40):
        connecting = asyncio.create_task(client.connect())
        for _ in range(steps):
            await asyncio.sleep(0)
        await client.close()
        await connecting
    await until(lambda: connections() == 0)


async def test_nobody_listens_at_the_address():
    began = time.monotonic()
    with pytest.raises(BrokerUnavailable):
        await JobClient(f"nats://127.0.0.1:{free_port()}", project="shop").connect()
    assert time.monotonic() - began < 20


async def test_every_call_ends_in_time_while_the_server_is_gone(own_server: RealServer, project: str):
    host = await prepared(own_server.url, project)
    async with JobClient(own_server.url, project=project, timeout=1) as client:
        run = await client.get_job(*SEND).trigger(1)
        own_server.kill9()
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: client.get_job(*SEND).trigger(2),
            lambda: client.get_job(*SEND).trigger(2, idempotency_key="k"),
            lambda: run.wait(timeout=1),
            run.status,
            run.cancel,
            client.runs.list,
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises((BrokerError, TimeoutError)):
                await call()
            assert time.monotonic() - began < 4
        waiting = asyncio.create_task(run.wait(timeout=45))
        own_server.restart()
        await client.get_job(*SEND).trigger(3, timeout=10)
        await finish(host, run.key)
        assert (await waiting).ok
    await host.close()
