"""Schedules on hosts whose clock is set while they serve, and on a cluster that loses its leader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from jetjobs import Cron, Every, HostSettings, JobClient, JobContext, JobHost, Module, RunStatus
from jetjobs._clock import SystemClock
from jetjobs._core.models import JobAddress
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.triggers import schedule_id
from jetjobs._nats import open_backend
from tests.faults.rig import eventually
from tests.support.cluster import RealCluster
from tests.support.servers import RealServer
from tests.support.zones import PrivateZone, private_zones, zone_changing

pytestmark = pytest.mark.faults

EVERY = schedule_id(JobAddress("m", "j"), "every")
SETTINGS = HostSettings(upkeep_every="2s", ack_wait="3s", heartbeat_every="1s")


def _noting(due: list[float], takes: float = 0) -> Module:
    module = Module("m")

    async def note(ctx: JobContext[Any]) -> None:
        assert ctx.trigger.scheduled_for is not None
        due.append(ctx.trigger.scheduled_for.timestamp())
        await asyncio.sleep(takes)

    module.expose_job("j", note, triggers=[Every("1s")], timeout="1m")
    return module


async def _decided(read: Callable[[], Awaitable[ScheduleRecord]], due: list[float]) -> ScheduleRecord:
    """The schedule when none of its runs is going; all of what is due has come to one end."""

    async def quiet() -> ScheduleRecord | None:
        found = await read()
        return found if not found.live else None

    found: ScheduleRecord = await eventually(quiet, what="a moment without a run")
    assert found.last_occurrence is not None
    assert found.counters.decided == round(found.last_occurrence.timestamp() - due[0]) + 1
    return found


async def test_b24_a_clock_set_ahead_and_back_moves_no_tick(nats_url: str, project: str):
    """Two hours ahead, four back: no tick moves, a run in progress goes on, nothing spins."""
    due: list[float] = []
    clock = SystemClock()
    module, goes_on, starts = _noting(due), asyncio.Event(), list[int]()

    @module.job(timeout="30s", max_attempts=3)
    async def long(ctx: JobContext) -> None:
        starts.append(ctx.attempt)
        await goes_on.wait()

    async with (
        JobHost([module], project=project, nats=nats_url, settings=SETTINGS, clock=clock) as host,
        JobClient(nats_url, project=project) as client,
    ):
        run = await client.get_job("m.long").trigger()
        await eventually(lambda: len(due) >= 2 and starts, what="two runs")
        for hours in (2, -4):
            clock.offset = timedelta(hours=hours)
            count, worked, begun = len(due), time.process_time(), time.monotonic()
            await eventually(lambda count=count: len(due) >= count + 5, what="five more runs")
            assert time.process_time() - worked < (time.monotonic() - begun) / 2  # one that spins takes all of it
        assert await run.status() is RunStatus.RUNNING
        goes_on.set()
        record = await run.wait(45)
        assert (record.status, record.interruptions, starts) == (RunStatus.SUCCEEDED, 0, [1])
        assert record.started_at is not None
        assert record.finished_at is not None
        assert timedelta(0) < record.finished_at - record.started_at < timedelta(minutes=1)
        assert all(later - earlier == 1 for earlier, later in pairwise(due))
        backend = host._backend
        assert backend is not None

        async def read() -> ScheduleRecord:
            stored = await backend.schedules.get(EVERY)
            assert stored is not None
            return stored.schedule

        found = await _decided(read, due)
        assert found.counters.coalesced == found.counters.missed == found.counters.overlap_skips == 0
        assert abs(found.cursor.timestamp() - time.time()) < 15


async def test_a_cluster_without_its_leader_for_a_while(cluster: RealCluster, project: str):
    due: list[float] = []
    settings = HostSettings(upkeep_every="2s", replicas=3)
    target = {"servers": cluster.urls, "reconnect_time_wait": 0.1}
    async with JobHost([_noting(due)], project=project, nats=target, settings=settings):
        await eventually(lambda: len(due) >= 2, what="two runs")
        leader = await cluster.leader_of(f"JETJOBS_{project}")
        assert leader is not None
        leader.kill9()
        count = len(due)
        await eventually(lambda: len(due) >= count + 4, what="runs under the new leader")
        assert len(set(due)) == len(due)
        backend = await open_backend(target, project, name="test")

        async def read() -> ScheduleRecord:
            stored = await backend.schedules.get(EVERY)
            assert stored is not None
            return stored.schedule

        found = await _decided(read, due)
        assert found.counters.missed == 0
        await backend.close()


async def test_b06_an_outage_over_a_change_of_the_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str):
    """What clocks show ends at the change or comes again; whoever decides when, no instant is lost or doubled."""
    change_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=16)
    # Between two instants: looking from one for the next within a minute, the broker doesn't look at the hour again.
    change_at += timedelta(seconds=1 - change_at.second % 2)
    # In the middle of the hour, so that clocks show it from the start on, whatever the second.
    spring = zone_changing("Test/Spring", change_at, reading=timedelta(hours=2, minutes=30), shift=timedelta(hours=1))
    autumn = zone_changing("Test/Autumn", change_at, reading=timedelta(hours=3), shift=timedelta(hours=-1))
    due: dict[str, list[float]] = {"spring": [], "left_out": [], "autumn": []}
    module = Module("m")

    async def note(ctx: JobContext[Any]) -> None:
        assert ctx.trigger.scheduled_for is not None
        due[ctx.job].append(ctx.trigger.scheduled_for.timestamp())

    with private_zones(tmp_path / "zones", [spring, autumn]) as zones:
        monkeypatch.setenv("ZONEINFO", str(zones))
        with RealServer(tmp_path / "nats") as server:
            for job, line, zone in (
                ("spring", "*/2 * * * * *", "Test/Spring"),
                ("left_out", "*/2 * 2 * * *", "Test/Spring"),
                ("autumn", "*/2 * * * * *", "Test/Autumn"),
            ):
                module.expose_job(
                    job, note, triggers=[Cron(line, timezone=zone, coalesce="all", overlap="queue")], timeout="1m"
                )
            target = {"servers": server.url, "reconnect_time_wait": 0.1}
            async with JobHost([module], project=project, nats=target, settings=SETTINGS):
                await eventually(lambda: due["spring"] and due["autumn"], 15, "the first runs")
                await asyncio.to_thread(server.kill9)
                await asyncio.sleep(max(0.0, change_at.timestamp() + 1 - time.time()))
                await asyncio.to_thread(server.start)
                after = change_at.timestamp() + 6
                await eventually(lambda: min(due[job][-1] for job in ("spring", "autumn")) >= after, what="later runs")
    for job in ("spring", "autumn"):
        assert due[job][0] < change_at.timestamp()
        assert all(later - earlier == 2 for earlier, later in pairwise(due[job])), job
    # The hour that isn't there any more fired for as long as it was.
    assert due["left_out"] == [at for at in due["spring"] if at < change_at.timestamp()]


@pytest.mark.long
async def test_b06_an_instant_that_comes_twice_has_two_runs_and_one_left_out_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str
):
    """Clocks that go back at three show 2:59:55 twice; those that go on at two never show 2:00:05."""
    change_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=20)
    midnight = change_at.replace(hour=0, minute=0, second=0)
    moved = timedelta(seconds=10)
    before_autumn, before_spring = (timedelta(hours=shown) - (change_at - midnight) for shown in (3, 2))
    autumn = PrivateZone("Test/Autumn", change_at, before_autumn, before_autumn - moved)
    spring = PrivateZone("Test/Spring", change_at, before_spring, before_spring + moved)
    lines = {
        "twice": ("55 59 2 * * *", autumn.name),
        "never": ("5 0 2 * * *", spring.name),
        "after": ("15 0 2 * * *", spring.name),
    }
    due: dict[str, list[float]] = {job: [] for job in lines}
    runs: set[str] = set()
    module = Module("m")

    async def note(ctx: JobContext[Any]) -> None:
        assert ctx.trigger.scheduled_for is not None
        due[ctx.job].append(ctx.trigger.scheduled_for.timestamp())
        runs.add(ctx.run_id)

    with private_zones(tmp_path / "zones", [spring, autumn]) as zones:
        for job, (line, zone) in lines.items():
            module.expose_job(job, note, triggers=[Cron(line, timezone=zone)], timeout="1m")
        monkeypatch.setenv("ZONEINFO", str(zones))
        with RealServer(tmp_path / "nats") as server:
            async with JobHost([module], project=project, nats=server.url, settings=SETTINGS):
                assert time.time() < change_at.timestamp() - 6, "the machine is too slow to start in time"
                await eventually(lambda: len(due["twice"]) == 2 and due["after"], 60, "the runs after the change")
                await eventually(lambda: time.time() > change_at.timestamp() + 8, what="a while after that")
    at = change_at.timestamp()
    assert due == {"twice": [at - 5, at + 5], "never": [], "after": [at + 5]}
    assert len(runs) == 3


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_a_thousand_schedules_are_ready_in_time_and_all_fire(nats_url: str, project: str):
    due: dict[str, list[float]] = {}

    async def note(ctx: JobContext[Any]) -> None:
        assert ctx.trigger.scheduled_for is not None
        due.setdefault(ctx.job, []).append(ctx.trigger.scheduled_for.timestamp())

    def module() -> Module:
        made = Module("m")
        for number in range(1000):
            made.expose_job(f"j{number}", note, triggers=[Every("20s")], timeout="1m")
        return made

    began = time.process_time()  # which the neighbours of a busy machine don't change
    async with JobHost([module()], project=project, nats=nats_url):
        fresh = time.process_time() - began
    began = time.process_time()
    async with JobHost([module()], project=project, nats=nats_url):
        warm = time.process_time() - began
        await eventually(lambda: len(due) == 1000, 60, "a run of each")
    assert fresh < 10
    assert warm < 5
    assert all(later - earlier == 20 for each in due.values() for earlier, later in pairwise(each))
