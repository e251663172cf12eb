"""No room left, by a limit and by a full disk: B91, B93."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import nats
import pytest
from nats.js.errors import APIError

from jetjobs import JobHost, Module
from jetjobs._core.models import RunStatus
from jetjobs._nats.provision import ProvisionSettings, wanted_streams
from jetjobs.errors import BrokerError, StorageFull, StreamMismatch
from tests.faults.field import api
from tests.faults.rig import HostProcess, Rig, eventually
from tests.faults.schedule_rig import ScheduleRig, every
from tests.support.servers import RealServer

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
    with server:
        yield f"nats://u:p@127.0.0.1:{server.port}" if request.param == "account" else server.url


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


@pytest.mark.faults
async def test_b91_storage_full_and_room_again(tmp_path: Path, small_server: str, project: str) -> None:
    """B91: refused with one error from the first on, nothing accepted is lost, and all goes on without a restart."""
    rig = Rig(tmp_path, small_server, project)
    try:
        host = await rig.host()
        running = await rig.trigger("hold", 8)
        await rig.journal.started(running)
        async with Ballast(small_server) as ballast:
            await ballast.take_all()
            accepted, refused = await trigger_many(rig, 60)
            assert refused, "the storage was not full"
            assert {type(error) for error in refused} == {StorageFull}
            assert all("nothing was stored" in str(error) for error in refused)
            await rig.journal.ended(running)
            await eventually(lambda: host.events("run_not_saved"), what="the host missing room for the outcome")
            assert (await rig.record("hold", running)).status is RunStatus.RUNNING
            with pytest.raises(StorageFull):  # a host that starts now says so instead of waiting
                async with asyncio.timeout(45):
                    await JobHost([Module("late")], project=project, nats=small_server).start()
            await ballast.give_back()
        record = await rig.ended("hold", running)
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


@pytest.mark.faults
async def test_b91_schedules_survive_full_storage(
    tmp_path: Path, small_server: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While no tick can be stored none comes; the rule itself stays, and fires again by itself."""
    schedules = ScheduleRig(Rig(tmp_path, small_server, project), monkeypatch)
    try:
        host = await schedules.host({"sold": {"triggers": [every("1s")]}, "later": {"triggers": [every("1h")]}})
        await schedules.started("sold", 2)
        later = await schedules.sequence("later", "every")
        async with Ballast(small_server) as ballast:
            await ballast.take_all()
            _, refused = await trigger_many(schedules.rig, 3, job="t.later")
            assert refused, "the storage was not full"
            await asyncio.sleep(3)  # ticks fall due meanwhile
            await ballast.give_back()
        before = len(schedules.starts("sold"))
        await schedules.started("sold", before + 3)
        assert await schedules.sequence("later", "every") == later
        due = schedules.due("sold")
        assert len(due) == len(set(due))
        assert host.process.poll() is None
    finally:
        await schedules.close()


async def trigger_many(rig: Rig, count: int, *, job: str = "basic.ping") -> tuple[list[str], list[Exception]]:
    """The ids of what was accepted, and the errors of what was not."""
    client = await rig.client()
    called = client.get_job(job)
    accepted: list[str] = []
    refused: list[Exception] = []
    for _ in range(count):
        try:
            accepted.append((await called.trigger({"pad": "x" * 2_000})).run_id)
        except BrokerError as error:
            refused.append(error)
    return accepted, refused


@pytest.mark.parametrize("limit", [{"max_bytes": 1_000_000}, {"max_msgs": 100}, {"max_msgs_per_subject": 1}])
async def test_b91_a_limit_by_which_the_broker_drops_accepted_triggers(
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


@pytest.mark.faults
async def test_b93_a_disk_that_fills_up_in_a_run(tmp_path: Path, small_disk: Path, project: str) -> None:
    """B93: clear errors meanwhile, no crash loop, and the run ends well once there is room and the broker is back."""
    server = RealServer(small_disk / "nats")
    server.start()
    rig = Rig(tmp_path, server.url, project)
    try:
        host = await rig.host(ACK_WAIT="6s", LOST_AFTER="30s")
        running = await rig.trigger("hold", 8)
        await rig.journal.started(running)
        filler = small_disk / "filler"
        fill(filler)
        errors = await provoke(rig)
        assert errors, "the disk was not full"
        assert all(isinstance(error, BrokerError) for error in errors)
        assert all("x" * 100 not in str(error) for error in errors)
        await eventually(lambda: not_well(rig, host), what="health saying so")
        filler.unlink()
        await asyncio.to_thread(server.restart)
        record = await rig.ended("hold", running)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        assert len(rig.journal.starts(running)) == 1
        await rig.ping(30)
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
