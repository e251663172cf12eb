"""The blocking client against a real nats-server and a host that runs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import jetjobs
from jetjobs import JobHost, RunStatus
from jetjobs._client import scanning
from jetjobs._client.loop_thread import loop_thread
from jetjobs.client import CancelOutcome
from jetjobs.config import HostSettings
from jetjobs.errors import (
    AmbiguousHostError,
    BlockingCallError,
    BrokerUnavailable,
    ClientError,
    ConfigError,
    JobsNotHosted,
    PayloadInvalidError,
    RunFailed,
    TriggerUnconfirmed,
    UnknownJobError,
)
from jetjobs.sync import JobClient, JobRun, TriggerError, TriggerRequest
from tests.support.field import QUICK
from tests.support.links import until_it
from tests.support.servers import RealServer, free_port
from tests.support.sync_shop import Shop

pytestmark = pytest.mark.integration


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def host(shop: Shop, nats_url: str, project: str) -> AsyncIterator[JobHost]:
    async with JobHost([shop.module], project=project, nats=nats_url, settings=HostSettings(**QUICK)) as running:
        yield running


@pytest.fixture
async def client(host: JobHost, nats_url: str, project: str) -> AsyncIterator[JobClient]:
    made = JobClient(nats_url, project=project, timeout=5)
    yield made
    await asyncio.to_thread(made.close)


async def test_a_run_from_trigger_to_result(client: JobClient, shop: Shop):
    def use() -> None:
        run = client.get_job(shop.add).trigger(1, idempotency_key="k")
        assert run.result(timeout=45) == 2
        assert (run.status(), run.record().payload) == (RunStatus.SUCCEEDED, 1)
        again = client.get_job("shop.add").trigger(5, idempotency_key="k")
        assert (again.run_id, again.duplicate, again.payload_differs) == (run.run_id, True, True)
        assert client.run("shop", "add", run.run_id).wait(timeout=45).ok
        with pytest.raises(RunFailed, match="no way"):
            client.get_job("shop", "boom").trigger().result(timeout=45)
        with pytest.raises(PayloadInvalidError):
            client.get_job(shop.add).trigger("x")  # pyright: ignore[reportArgumentType]
        with pytest.raises(UnknownJobError, match="add"):
            client.get_job("shop.ad").trigger()

    await asyncio.to_thread(use)


async def test_runs_are_cancelled_and_moved(client: JobClient, shop: Shop):
    def use() -> None:
        run = client.get_job(shop.hold).trigger()
        with pytest.raises(TimeoutError):
            run.wait(timeout=0.3)
        assert run.cancel().outcome in {CancelOutcome.ASKED, CancelOutcome.CANCELLED}
        assert run.wait(timeout=45).status is RunStatus.CANCELLED
        later = client.get_job(shop.add).trigger(3, delay="1h")
        assert later.status() is RunStatus.SCHEDULED
        later.reschedule(datetime.now(UTC) - timedelta(seconds=1))
        assert later.result(timeout=45) == 4

    await asyncio.to_thread(use)


async def test_lists(client: JobClient, shop: Shop, host: JobHost, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(scanning, "_HELD", 2)

    def use() -> None:
        results = client.trigger_many(TriggerRequest(shop.add, n) for n in [*range(5), "x"])
        assert isinstance(results[5], TriggerError)
        runs = [each for each in results if isinstance(each, JobRun)]
        assert [run.result(timeout=45) for run in runs] == [1, 2, 3, 4, 5]
        ids = {run.run_id for run in runs}
        assert {record.run_id for record in client.runs.list(job="add", limit=10)} == ids
        assert [record.run_id for record in client.runs.iter(job="add")] == [
            record.run_id for record in client.runs.list(job="add")
        ]
        assert client.runs.get(runs[0].run_id).result == 1
        assert [job.job for job in client.jobs.list()] == ["add", "boom", "endless", "hold", "through"]
        assert client.jobs.get("shop.add").max_concurrency == 16
        assert [each.host_id for each in client.hosts.list()] == [host.host_id]

    await asyncio.to_thread(use)


async def test_twenty_threads_share_a_client_and_all_clients_one_thread(
    client: JobClient, shop: Shop, nats_url: str, project: str
):
    def use(n: int) -> list[int]:
        job = client.get_job(shop.add)
        runs = [job.trigger(n * 20 + i) for i in range(20)]
        return [run.result(timeout=45) for run in runs]

    def all_of_them() -> list[int]:
        with ThreadPoolExecutor(20) as threads:
            return [value for values in threads.map(use, range(20)) for value in values]

    assert await asyncio.to_thread(all_of_them) == [n + 1 for n in range(400)]
    assert sorted(shop.done) == list(range(400))
    other = JobClient(nats_url, project=project)
    await asyncio.to_thread(other.jobs.list)
    assert [each.name for each in threading.enumerate()].count("jetjobs-blocking") == 1
    await asyncio.to_thread(other.close)


async def test_a_running_loop_is_not_blocked(client: JobClient, shop: Shop):
    calls: list[Callable[[], object]] = [
        client.connect,
        client.jobs.list,
        lambda: client.get_job(shop.add).trigger(1),
        client.run("shop", "add", "x").wait,
        lambda: shop.add.trigger_blocking(1),
        lambda: shop.module.trigger_job("add", 1),
    ]
    for call in calls:
        with pytest.raises(BlockingCallError, match="await"):
            call()
    assert shop.done == []


async def test_jobs_bound_to_a_host_block_in_other_threads(host: JobHost, shop: Shop):
    assert await asyncio.to_thread(lambda: shop.add.trigger_blocking(1).result(timeout=45)) == 2
    assert await (await shop.through.trigger(5)).result(timeout=45) == 6
    run = await asyncio.to_thread(shop.module.trigger_job, "add", 7, idempotency_key="k")
    assert await asyncio.to_thread(run.result, 10) == 8
    with pytest.raises(UnknownJobError, match="add"):
        await asyncio.to_thread(shop.module.trigger_job, "ad")


async def test_a_handler_that_blocks_for_another_run_is_still_stopped(host: JobHost, shop: Shop):
    run = await shop.module.atrigger_job("endless")
    assert (await run.wait(timeout=45)).status is RunStatus.TIMED_OUT


async def test_jobs_bound_to_clients(host: JobHost, nats_url: str, project: str):
    callers = Shop()  # the same module in another process
    with pytest.raises(JobsNotHosted):
        callers.add.trigger_blocking(1)
    async with jetjobs.JobClient(nats_url, project=project, modules=[callers.module]):
        assert await asyncio.to_thread(lambda: callers.add.trigger_blocking(1).result(timeout=45)) == 2
    client = JobClient(nats_url, project=project, modules=[callers.module])
    assert await asyncio.to_thread(lambda: callers.add.trigger_blocking(2).result(timeout=45)) == 3
    with pytest.raises(JobsNotHosted, match="trigger_blocking"):
        await callers.add.trigger(1)
    async with jetjobs.JobClient(nats_url, project=project, modules=[callers.module]):
        assert await (await callers.add.trigger(4)).result(timeout=45) == 5
    other = JobClient(nats_url, project=project + "x", modules=[callers.module])
    with pytest.raises(AmbiguousHostError):
        await asyncio.to_thread(callers.add.trigger_blocking, 1)
    for each in (other, client):
        await asyncio.to_thread(each.close)
    with pytest.raises(JobsNotHosted):
        callers.add.trigger_blocking(1)


async def test_a_loop_that_ended_is_told(nats_url: str, project: str, host: JobHost):
    callers = Shop()
    client = jetjobs.JobClient(nats_url, project=project, modules=[callers.module])

    def use() -> None:
        with asyncio.Runner() as runner:
            runner.run(client.connect())
            with pytest.raises(ClientError, match="not running"):
                callers.add.trigger_blocking(1)
            runner.run(client.close())

    await asyncio.to_thread(use)


async def test_a_closed_client_says_so_and_a_dropped_one_lets_go(host: JobHost, nats_url: str, project: str):
    def use() -> None:
        with JobClient(nats_url, project=project) as client:
            assert len(client.jobs.list()) == 5
        client.close()
        with pytest.raises(ClientError, match="closed"):
            client.jobs.list()
        JobClient(nats_url, project=project).jobs.list()

    await asyncio.to_thread(use)
    thread = loop_thread()

    async def none_left() -> bool:
        return not thread._held

    await until_it(none_left)


async def test_an_open_connection_of_some_loop_is_refused(nats_url: str, project: str):
    import nats

    connection = await nats.connect(nats_url)
    with pytest.raises(ConfigError, match="URL"):
        JobClient(connection, project=project)
    await connection.close()


async def test_threads_that_wait_are_let_go_when_the_client_closes(host: JobHost, nats_url: str, project: str):
    """They end, or say why they do; else their threads would stay for ever, and with them the process."""
    client = JobClient(nats_url, project=project)
    run = await asyncio.to_thread(lambda: client.get_job("shop", "add").trigger(1, delay="1h"))
    begun = threading.Event()

    def watch() -> int:
        seen = 0
        try:
            for record in client.runs.watch(heartbeat="60s"):
                seen += record is not None
                begun.set()
        except ClientError as error:
            assert "closed" in str(error)  # noqa: PT017 - it may end just so, too
        return seen

    watching, waiting = (asyncio.create_task(asyncio.to_thread(call)) for call in (watch, run.wait))
    assert await asyncio.to_thread(begun.wait, 45)
    await asyncio.to_thread(client.close)
    async with asyncio.timeout(45):
        assert await watching == 0, "nothing happened to the run"
        with pytest.raises(ClientError, match="closed"):
            await waiting


def test_nobody_listens_at_the_address(project: str):
    client = JobClient(f"nats://127.0.0.1:{free_port()}", project=project)
    with pytest.raises(BrokerUnavailable):
        client.jobs.list()
    client.close()


def test_connecting_counts_in_the_timeout(project: str):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = JobClient(f"nats://127.0.0.1:{silent.getsockname()[1]}", project=project)
        calls: list[Callable[[], object]] = [
            lambda: client.jobs.list(timeout=0.5),
            lambda: client.run("a", "b", "c").wait(timeout=0.5),
            lambda: client.get_job("a.b").trigger(timeout=0.5),
        ]
        for call in calls:
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable):
                call()
            assert time.monotonic() - began < 4
        client.close()


async def test_every_call_ends_in_time_while_the_server_is_gone(own_server: RealServer, project: str, shop: Shop):
    async with JobHost([shop.module], project=project, nats=own_server.url, settings=HostSettings(**QUICK)):
        client = JobClient(own_server.url, project=project, timeout=1)

        def use() -> None:
            run = client.get_job(shop.add).trigger(1)
            run.wait(timeout=45)
            own_server.kill9()
            calls: list[Callable[[], object]] = [
                lambda: client.get_job(shop.add).trigger(2),
                run.status,
                run.cancel,
                client.runs.list,
            ]
            for call in calls:
                began = time.monotonic()
                with pytest.raises((BrokerUnavailable, TriggerUnconfirmed)):
                    call()
                assert time.monotonic() - began < 4
            own_server.restart()
            assert client.get_job(shop.add).trigger(3, timeout=20).result(timeout=45) == 4
            client.close()

        await asyncio.to_thread(use)
