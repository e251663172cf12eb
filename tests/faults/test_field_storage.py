"""No room left, many records, and what a run costs the broker: field cases B91, B93, B113."""

from __future__ import annotations

import asyncio
import subprocess
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Self

import nats
import pytest
from nats.aio.msg import Msg
from nats.js.errors import APIError

from jetjobs import JobClient, JobContext, JobHost, Module
from jetjobs._core.models import Body, RunRecord, RunStatus
from jetjobs._nats import open_backend
from jetjobs._nats.provision import ProvisionSettings, wanted_streams
from jetjobs._nats.run_store import NatsRunStore
from jetjobs.errors import BrokerError, StorageFull, StreamMismatch
from jetjobs.testing import FailingBackend
from tests.faults.field import api, monitor, show
from tests.faults.rig import HostProcess, Rig, eventually
from tests.support.links import open_link
from tests.support.servers import RealServer, free_port

LIMIT = 4_000_000
BY_ACCOUNT = (
    f"accounts {{ A {{ jetstream: {{ max_file: {LIMIT}, max_mem: 1MB }}, users: [{{ user: u, password: p }}] }} }}"
)
BY_SERVER = f"jetstream {{ max_file_store: {LIMIT}, max_memory_store: 1MB }}"


# ---------------------------------------------------------------- no room


@pytest.fixture(params=["account", "server"])
def small_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a server whose JetStream may keep 4 MB, by the account's limit or by its own."""
    if request.param == "account":
        server = RealServer(tmp_path / "nats", extra_conf=BY_ACCOUNT)
    else:
        server = RealServer(tmp_path / "nats", config=None, extra_conf=BY_SERVER)
    server.start()
    yield f"nats://u:p@127.0.0.1:{server.port}" if request.param == "account" else server.url
    server.remove()


class Ballast:
    """A stream of somebody else, which takes all the room there is, and gives it back."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def __aenter__(self) -> Self:
        self._client = await nats.connect(self._url)
        self._js = self._client.jetstream()
        await self._js.add_stream(name="ballast", subjects=["ballast"])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def take_all(self) -> None:
        for size in (50_000, 2_000, 100):
            for _ in range(2 * LIMIT // size):
                try:
                    await self._js.publish("ballast", b"x" * size)
                except APIError:
                    break
            else:
                pytest.fail("the limit was never reached")

    async def give_back(self) -> None:
        await self._js.purge_stream("ballast")


async def test_storage_full_and_room_again(tmp_path: Path, small_server: str, project: str) -> None:
    """B91: refused with one error from the first on, nothing accepted is lost, and all goes on without a restart."""
    rig = Rig(tmp_path, small_server, project)
    try:
        host = await rig.host()
        running = await rig.trigger("hold", 3)
        await rig.journal.started(running)
        async with Ballast(small_server) as ballast:
            await ballast.take_all()
            accepted, refused = await trigger_many(rig, 60)
            assert refused, "the storage was not full"
            assert {type(error) for error in refused} == {StorageFull}
            assert all("nothing was stored" in str(error) for error in refused)
            await rig.journal.ended(running)
            await eventually(lambda: host.events("run_not_saved"), 10, "the host missing room for the outcome")
            assert (await rig.record("hold", running)).status is RunStatus.RUNNING
            with pytest.raises(StorageFull):  # a host that starts now says so instead of waiting
                async with asyncio.timeout(10):
                    await JobHost([Module("late")], project=project, nats=small_server).start()
            await ballast.give_back()
        record = await rig.ended("hold", running, 15)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        again, still_refused = await trigger_many(rig, 5)
        assert still_refused == []
        for record in await rig.all_ended("ping", [*accepted, *again]):
            assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        assert sorted(line.run for line in rig.journal.starts(job="ping")) == sorted([*accepted, *again])
        await rig.retired("hold")
        assert host.process.poll() is None
    finally:
        await rig.close()


async def trigger_many(rig: Rig, count: int) -> tuple[list[str], list[Exception]]:
    """The ids of what was accepted, and the errors of what was not."""
    client = await rig.client()
    job = client.get_job("basic", "ping")
    accepted: list[str] = []
    refused: list[Exception] = []
    for _ in range(count):
        try:
            accepted.append((await job.trigger({"pad": "x" * 2_000})).run_id)
        except BrokerError as error:
            refused.append(error)
    return accepted, refused


@pytest.mark.parametrize("limit", [{"max_bytes": 1_000_000}, {"max_msgs": 100}, {"max_msgs_per_subject": 1}])
async def test_a_limit_by_which_the_broker_drops_accepted_triggers(
    nats_url: str, project: str, limit: dict[str, int]
) -> None:
    """B91: a stream with schedules can't refuse new messages, it drops old ones: no host serves on such a one."""
    wanted = wanted_streams(project, ProvisionSettings())[0]
    await api(nats_url, f"STREAM.CREATE.{wanted.name}", {**wanted.config, **limit})
    with pytest.raises(StreamMismatch) as mismatch:
        await JobHost([Module("empty")], project=project, nats=nats_url).start()
    for word in (wanted.name, *limit, "drop", "account"):
        assert word in str(mismatch.value)


# -------------------------------------------------------------- a full disk


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 24 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_disk_that_fills_up_in_a_run(tmp_path: Path, small_disk: Path, project: str) -> None:
    """B93: clear errors meanwhile, no crash loop, and the run ends well once there is room and the broker is back."""
    server = RealServer(small_disk / "nats")
    server.start()
    rig = Rig(tmp_path, server.url, project)
    try:
        host = await rig.host(ACK_WAIT="6s", LOST_AFTER="30s")
        running = await rig.trigger("hold", 4)
        await rig.journal.started(running)
        filler = small_disk / "filler"
        fill(filler)
        errors = await provoke(rig)
        assert errors, "the disk was not full"
        assert all(isinstance(error, BrokerError) for error in errors)
        assert all("x" * 100 not in str(error) for error in errors)
        await eventually(lambda: not_well(rig, host), 15, "health saying so")
        filler.unlink()
        await asyncio.to_thread(server.restart)
        record = await rig.ended("hold", running, 30)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        assert len(rig.journal.starts(running)) == 1
        await rig.ping(15)
        assert host.process.poll() is None
    finally:
        await rig.close()
        server.remove()


def not_well(rig: Rig, host: HostProcess) -> bool:
    host.ask_health()
    told = rig.journal.lines("health")
    return bool(told) and not told[-1].ok and bool(told[-1].problem)


def fill(path: Path) -> None:
    with path.open("wb") as out:
        try:
            while True:
                out.write(b"\0" * 65_536)
                out.flush()
        except OSError:
            return


async def provoke(rig: Rig) -> list[Exception]:
    """Trigger until the broker notices that there is no room, and a few times more."""
    client = await rig.client()
    job = client.get_job("basic", "ping")
    errors: list[Exception] = []
    for _ in range(300):
        try:
            await job.trigger({"pad": "x" * 15_000}, timeout=2)
        except BrokerError as error:
            errors.append(error)
            if len(errors) == 3:
                break
    return errors


# ------------------------------------------------------------- many records


async def fill_records(url: str, project: str, count: int) -> None:
    """Finished runs of ten jobs, one second apart; every tenth FAILED."""
    link = await open_link(url)
    store = NatsRunStore(link, project)
    began = datetime(2026, 1, 1, tzinfo=UTC)

    async def create(number: int) -> None:
        at = began + timedelta(seconds=number)
        await store.create(
            RunRecord(
                f"r{number:06}",
                "shop",
                f"job{number % 10}",
                RunStatus.FAILED if number % 100 < 10 else RunStatus.SUCCEEDED,
                created_at=at,
                started_at=at,
                finished_at=at,
                payload_body=Body(b"x" * 100),
            )
        )

    for start in range(0, count, 1000):
        await asyncio.gather(*(create(number) for number in range(start, min(start + 1000, count))))
    await link.connection.close()


async def list_many(url: str, project: str, count: int) -> None:
    async with JobHost([Module("empty")], project=project, nats=url):
        await fill_records(url, project, count)
    async with JobClient(url, project=project) as client:
        begun = time.monotonic()
        newest = await client.runs.list(limit=50)
        first_page = time.monotonic() - begun
        assert [record.run_id for record in newest] == [f"r{n:06}" for n in range(count - 1, count - 51, -1)]
        begun = time.monotonic()
        failed = await client.runs.list(module="shop", job="job3", status="failed", limit=50)
        filtered = time.monotonic() - begun
        assert [record.run_id for record in failed] == [
            f"r{n:06}" for n in range(count - 97, count - 97 - 50 * 100, -100)
        ][: len(failed)]
        assert len(failed) == min(50, count // 100)
        tracemalloc.start()
        await client.runs.list(limit=50)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
        tracemalloc.stop()
    show(f"{count} records: newest 50 in {first_page:.2f} s, of one job {filtered:.2f} s, peak {peak:.1f} MB")
    assert first_page < 3
    assert filtered < 1.5
    assert peak < 30


async def test_the_newest_of_ten_thousand_records(nats_url: str, project: str) -> None:
    """B113, scaled: the first page, a page by job and status, in bounded memory."""
    await list_many(nats_url, project, 10_000)


@pytest.mark.soak
async def test_the_newest_of_fifty_thousand_records(nats_url: str, project: str) -> None:
    """B113."""
    await list_many(nats_url, project, 50_000)


# ------------------------------------------------------------- what a run costs


RUNS = 20
PORT_CALLS = {"broker.store": 1, "runs.create": 1, "runs.update": 1, "delivery.ack": 1, "broker.announce_end": 1}
MESSAGES_A_RUN = 6  # trigger, create, update, ack, end announced; a pull request for the next


@pytest.fixture
async def counted(tmp_path: Path) -> AsyncIterator[tuple[str, int]]:
    """A server of the test's own, and its monitoring port."""
    port = free_port()
    server = RealServer(tmp_path / "nats", extra_args=("-m", str(port)))
    server.start()
    yield server.url, port
    server.remove()


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
                async with asyncio.timeout(10):
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
