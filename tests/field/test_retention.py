"""Retention on a real server: what goes, what stays, and what the broker holds afterwards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import nats
import pytest

from jetjobs import HostSettings, JobContext, JobHost, JobRetention, Module
from jetjobs._core import names
from jetjobs._core.bodies import Body
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus
from jetjobs._nats import open_backend
from jetjobs._nats.catalog import NatsCatalog
from jetjobs._ports import Backend
from jetjobs.client import CancelOutcome, JobClient
from jetjobs.errors import PayloadInvalidError
from tests.faults.field import cpu_share, show
from tests.support.servers import RealServer
from tests.support.waiting import eventually

FAST = JobAddress("shop", "fast")
KEYED = JobAddress("shop", "keyed")
AGO = timedelta(minutes=30)


@pytest.fixture
async def backend(nats_url: str, project: str) -> AsyncIterator[Backend]:
    made = await open_backend(nats_url, project, name="retention")
    await made.broker.ensure_project()
    yield made
    await made.close()


def module() -> Module:
    shop = Module("shop")

    @shop.job(name="fast", max_concurrency=100)
    async def fast(ctx: JobContext[Any], size: int) -> bytes:
        return b"x" * size

    @shop.job(name="keyed", max_concurrency=100)
    async def keyed(ctx: JobContext[Any], size: int) -> bytes:
        return b"x" * size

    return shop


def host(url: str, project: str, **retention: Any) -> JobHost:
    settings = HostSettings(upkeep_every="1s", retention=JobRetention(**retention))
    return JobHost([module()], project=project, nats=url, settings=settings)


def ended(backend: Backend, number: int, job: JobAddress = FAST, **changes: Any) -> RunRecord:
    at = backend.broker.now() - AGO + timedelta(milliseconds=number)
    record = RunRecord(f"r{number}", *job, RunStatus.SUCCEEDED, created_at=at, started_at=at, finished_at=at)
    return replace(record, **changes)


async def write(backend: Backend, records: Iterable[RunRecord]) -> None:
    waiting = list(records)
    for first in range(0, len(waiting), 500):
        await asyncio.gather(*(backend.runs.create(record) for record in waiting[first : first + 500]))


async def until_held(backend: Backend, entries: int, within: float = 30) -> None:
    """Wait until the runs bucket holds so many messages."""

    async def holds() -> bool:
        return (await backend.runs.holding()).entries == entries

    await eventually(holds, within)


async def stubs(backend: Backend) -> set[str]:
    return {stored.record.run_id async for stored in backend.runs.scan() if stored.record.stub}


async def bodies(backend: Backend) -> set[str]:
    return {run_id async for run_id in backend.payloads.run_ids()}


async def test_b95_five_thousand_runs_against_a_thousand(backend: Backend, nats_url: str, project: str):
    """B95. The newest stay, what is active stays, and the bucket's count of messages follows."""
    await write(backend, (ended(backend, number) for number in range(5000)))
    skipped = [ended(backend, n, JobAddress("shop", "other"), status=RunStatus.SKIPPED) for n in range(100)]
    long_ago = backend.broker.now() - timedelta(hours=2)
    await write(backend, (replace(each, finished_at=long_ago) for each in skipped[:60]))
    await write(backend, skipped[60:])
    beating = backend.broker.now()
    active = [
        ended(backend, 9000 + n, status=status, finished_at=None, heartbeat_at=beating, retry_at=beating)
        for n, status in enumerate([RunStatus.RUNNING, RunStatus.RETRYING] * 10)
    ]
    await write(backend, active)
    async with host(nats_url, project):
        await until_held(backend, 1000 + 40 + len(active))
    left = {stored.record.run_id: stored.record async for stored in backend.runs.scan(FAST)}
    assert {f"r{number}" for number in range(4000, 5000)} <= left.keys()
    assert {record.run_id: record for record in active}.items() <= left.items()
    await backend.runs.create(ended(backend, 0))


async def test_b113_a_pass_over_many_records_blocks_no_heartbeat(backend: Backend, nats_url: str, project: str):
    """While a host removes 8,000 records its own runs go on, its loop turns and their records are kept fresh."""
    await write(backend, (ended(backend, number) for number in range(8000)))
    shop, gaps = Module("shop"), list[float]()

    @shop.job(name="watches")
    async def watches(ctx: JobContext[Any]) -> None:
        while (await backend.runs.holding()).entries > 11:
            began = time.process_time()  # others may use this machine
            await asyncio.sleep(0.01)
            gaps.append(time.process_time() - began)

    settings = HostSettings(
        ack_wait="10s", heartbeat_every="200ms", upkeep_every="1s", retention=JobRetention(max_per_job=10)
    )
    async with (
        JobHost([shop], project=project, nats=nats_url, settings=settings),
        JobClient(nats_url, project=project) as client,
    ):
        run = await client.get_job("shop", "watches").trigger()
        record = await run.wait(60)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert max(gaps) < 1, "the loop's longest turn"


async def test_b95_two_pruners_at_once(backend: Backend, nats_url: str, project: str, monkeypatch: pytest.MonkeyPatch):
    async def always(*_: object) -> bool:
        return True

    monkeypatch.setattr(NatsCatalog, "lease", always)
    await write(backend, (ended(backend, number, key=f"k{number}" if number % 2 else None) for number in range(2000)))
    async with host(nats_url, project, max_per_job=100), host(nats_url, project, max_per_job=100):
        await until_held(backend, 100 + 950)
        whole = [stored.record.run_id async for stored in backend.runs.scan() if not stored.record.stub]
    assert sorted(whole) == sorted(f"r{number}" for number in range(1900, 2000))


async def test_b95_a_key_is_one_run_past_the_number(backend: Backend, nats_url: str, project: str):
    """With real runs: their records shrink to stubs, their large results go, and each key still names its run."""
    async with JobClient(nats_url, project=project) as client, host(nats_url, project, max_per_job=5, min_age=0):
        keyed = client.get_job(*KEYED)
        runs = [await keyed.trigger(20_000, idempotency_key=f"k{number}") for number in range(20)]
        for run in runs:
            await run.wait(20)

        async def have_shrunk() -> bool:
            return len(await stubs(backend)) >= 15

        await eventually(have_shrunk)
        for number, run in enumerate(runs):
            again = await keyed.trigger(20_000, idempotency_key=f"k{number}")
            assert (again.run_id, again.duplicate, again.payload_differs) == (run.run_id, True, False)
            assert (await keyed.trigger(7, idempotency_key=f"k{number}")).payload_differs
        small = await stubs(backend)
        shrunk = next(run for run in runs if run.run_id in small)
        assert await shrunk.status() is RunStatus.SUCCEEDED
        with pytest.raises(PayloadInvalidError, match="ended long ago"):
            await shrunk.result(5)

        async def results_gone() -> bool:
            return not await bodies(backend) & small

        await eventually(results_gone)
        assert {run.run_id for run in runs} == {stored.record.run_id async for stored in backend.runs.scan(KEYED)}


async def test_b95_large_bodies_go_with_their_run_and_without_one(backend: Backend, nats_url: str, project: str):
    body = Body(claim=await backend.payloads.put("0" * 26, "in", "a", b"x" * 600_000))
    old = ended(backend, 0, run_id="0" * 26, payload_body=body, finished_at=backend.broker.now() - timedelta(days=9))
    await write(backend, [old])
    await backend.payloads.put("young", "in", "a", b"x")
    async with host(nats_url, project):
        await until_held(backend, 0)

        async def one_left() -> bool:
            return await bodies(backend) == {"young"}

        await eventually(one_left)


async def test_b95_the_record_of_a_run_with_a_message_stays(backend: Backend, nats_url: str, project: str):
    """It turns the message away. Nobody here hosts the job, so that the message stays, too."""
    elsewhere = JobAddress("shop", "elsewhere")
    old = backend.broker.now() - timedelta(days=9)
    await write(backend, [ended(backend, number, elsewhere, finished_at=old) for number in range(10)])
    await backend.broker.store(Outgoing(names.trigger_subject(project, RunKey(*elsewhere, "r3"))))
    due = (backend.broker.now() + timedelta(hours=1)).isoformat(timespec="seconds").replace("+00:00", "Z")
    waits = RunKey(*elsewhere, "r4")
    headers = {"Nats-Schedule": f"@at {due}", "Nats-Schedule-Target": names.trigger_subject(project, waits)}
    await backend.broker.store(Outgoing(names.retry_subject(project, waits, 2), headers))
    async with host(nats_url, project):
        await until_held(backend, 2)
    assert sorted([stored.record.run_id async for stored in backend.runs.scan()]) == ["r3", "r4"]


async def test_b95_the_broker_is_as_it_was_after_twenty_thousand_removals(own_server: RealServer, project: str):
    """No tombstone is left: the stream has no deleted message to skip, and a restart reads nothing of them.

    Nor does the broker do anything for them: it is idle as before, while a host looks after its project.
    """
    backend = await open_backend(own_server.url, project, name="retention")
    await backend.broker.ensure_project()
    for part in range(4):
        await write(backend, (ended(backend, number) for number in range(5000 * part, 5000 * part + 5000)))
    async with host(own_server.url, project, max_per_job=10):
        await until_held(backend, 10, within=60)
        work = await cpu_share(own_server.pid, 3)
    show(f"after 20,000 removals the broker takes {work:.1%} of a core")
    assert work < 0.2
    assert await _interior_deletes(own_server.url, project) == 0
    before = await backend.runs.holding()
    await asyncio.to_thread(own_server.restart)

    async def connected() -> bool:
        return backend.broker.connected_since is not None

    await eventually(connected)
    assert await backend.runs.holding() == before
    assert len([stored async for stored in backend.runs.scan()]) == 10
    await backend.close()


async def _interior_deletes(url: str, project: str) -> int:
    """How many removed messages the stream of records keeps account of."""
    client = await nats.connect(url)
    info = await client.jetstream().stream_info(names.bucket_stream(names.runs_bucket(project)))
    await client.close()
    return info.state.num_deleted or 0


async def test_b95_a_run_that_never_started_goes_by_itself(backend: Backend, nats_url: str, project: str):
    """Its first record is its last: no host need be there when its time is up."""
    async with host(nats_url, project):
        pass
    async with JobClient(nats_url, project=project) as client:
        run = await client.get_job("shop", "fast").trigger(1, start_within="1ms")
        malformed = Outgoing(names.trigger_subject(project, RunKey(*FAST, "bad")), {"Jetjobs-Turn": "x"}, b"")
        await backend.broker.store(malformed)
        await asyncio.sleep(0.01)  # its time to start passes
        async with host(nats_url, project, finished=timedelta(hours=1)):
            assert (await run.wait(45)).status is RunStatus.MISSED
            assert (await client.run("shop", "fast", "bad").wait(45)).status is RunStatus.FAILED
    connection = await nats.connect(nats_url)
    stream = connection.jetstream()
    for run_id in (run.run_id, "bad"):
        subject = names.record_subject(project, RunKey(*FAST, run_id))
        stored: Any = await stream.get_last_msg(f"KV_{names.runs_bucket(project)}", subject)
        assert int(stored.headers["Nats-TTL"].removesuffix("s")) >= 3600
    await connection.close()


@pytest.mark.parametrize("kept", [timedelta(hours=2), timedelta(days=90)])
async def test_b95_what_a_client_cancelled_goes_by_itself(nats_url: str, project: str, kept: timedelta) -> None:
    """Nobody else writes its record again; a host that prunes may never come."""
    shop = Module("shop")
    retention = JobRetention(finished=kept, keys=kept)
    job = shop.expose_job("slow", _nothing, timeout="1s", retention=retention)
    await prepare(nats_url, project, shop)
    async with JobClient(nats_url, project=project) as client:
        runs = [
            await client.get_job(job).trigger(idempotency_key="a"),
            await client.get_job(job).trigger(delay="1h"),
        ]
        for run in runs:
            assert (await run.cancel()).outcome is CancelOutcome.CANCELLED
    connection = await nats.connect(nats_url)
    for run in runs:
        subject = names.record_subject(project, run.key)
        stored: Any = await connection.jetstream().get_last_msg(f"KV_{names.runs_bucket(project)}", subject)
        lifetime = int(stored.headers["Nats-TTL"].removesuffix("s"))
        least = max(timedelta(days=30), kept)
        assert least <= timedelta(seconds=lifetime) < least + timedelta(hours=2)
    await connection.close()


async def _nothing(ctx: JobContext) -> None: ...


async def prepare(url: str, project: str, module: Module) -> None:
    host = JobHost([module], project=project, nats=url)
    await host.prepare()
    await host.close()
