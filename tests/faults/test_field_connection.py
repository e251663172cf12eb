"""Clocks that are wrong, a cluster's leader, other platforms: B24, B133."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jetjobs import Backoff, JobClient, JobContext, JobHost, Module
from jetjobs._clock import SystemClock
from jetjobs._core.models import RunStatus
from jetjobs._nats import open_backend
from jetjobs.config import HostSettings
from tests.faults.field import api
from tests.faults.rig import SOURCE, Rig
from tests.support.cluster import RealCluster
from tests.support.commands import APP, Terminal

# ------------------------------------------------------------------- cluster


async def test_a_clusters_leader_killed_in_a_run(cluster: RealCluster, tmp_path: Path, project: str) -> None:
    """Three replicas: long runs and a queue survive the loss of the jobs stream's leader, each started once."""
    rig = Rig(tmp_path, ",".join(cluster.urls), project)
    try:
        for _ in range(2):
            await rig.host(REPLICAS="3", ACK_WAIT="18s", HEARTBEAT_EVERY="2s", LOST_AFTER="30s", UPKEEP_EVERY="10s")
        long_ones = await rig.trigger_all("hold3", [10] * 4)
        for run_id in long_ones:
            await rig.journal.started(run_id)
        queued = await rig.trigger_all("four", [0.2] * 60)
        stream = f"JETJOBS_{project}"
        info = await api(cluster.urls[0], f"STREAM.INFO.{stream}")
        assert info["config"]["num_replicas"] == 3
        leader = await cluster.leader_of(stream)
        assert leader is not None
        await rig.journal.started(job="four", times=10)
        await asyncio.to_thread(leader.kill9)
        assert len(rig.journal.starts(job="four")) < 60
        records = [*await rig.all_ended("four", queued, 60), *await rig.all_ended("hold3", long_ones, 40)]
        assert {record.status for record in records} == {RunStatus.SUCCEEDED}
        assert {record.starts for record in records} == {1}
        assert Counter(line.run for line in rig.journal.starts()) == Counter([*queued, *long_ones])
        assert rig.journal.most_live("four") <= 4
        run_id = await rig.trigger("ping", timeout=20)
        await rig.journal.started(run_id)
    finally:
        await rig.close()


# -------------------------------------------------------------------- clocks


SETTINGS = HostSettings(ack_wait=3, heartbeat_every=0.5, lost_after=2, upkeep_every=1, drain=2)


@asynccontextmanager
async def skewed_client(url: str, project: str, offset: timedelta) -> AsyncGenerator[JobClient]:
    """A client on a machine whose clock is off by so much."""
    backend = await open_backend(url, project, name="skewed", clock=SystemClock(offset))
    try:
        async with JobClient(backend=backend) as client:
            yield client
    finally:
        await backend.close()


def clocked() -> Module:
    module = Module("clocked")

    @module.job(max_concurrency=4, timeout="30s")
    async def hold(ctx: JobContext, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @module.job(max_concurrency=4, timeout="30s", max_attempts=2, backoff=Backoff(1))
    async def fails_once(ctx: JobContext) -> int:
        if ctx.attempt == 1:
            raise ValueError("once")
        return ctx.attempt

    return module


def near_now(*instants: datetime | None) -> bool:
    return all(at is not None and abs(datetime.now(UTC) - at) < timedelta(seconds=30) for at in instants)


@pytest.mark.parametrize("hours", [-5, 3])
async def test_a_host_whose_clock_is_off_by_hours(nats_url: str, project: str, hours: int) -> None:
    """B24: deadlines, ages and retries are judged in broker time, so nothing is reaped, MISSED or late."""
    skewed = JobHost(
        [clocked()], project=project, nats=nats_url, settings=SETTINGS, clock=SystemClock(timedelta(hours=hours))
    )
    reaping = JobHost([Module("other")], project=project, nats=nats_url, settings=SETTINGS)
    async with skewed, reaping, JobClient(nats_url, project=project) as client:
        hold = client.get_job("clocked", "hold")
        long_one = await hold.trigger(5)
        quick = await hold.trigger(0, start_within="20s", expires_in="40s")
        retried = await client.get_job("clocked", "fails_once").trigger(expires_in="40s")
        for run in (quick, retried, long_one):
            record = await run.wait(timeout=20)
            assert (record.status, record.interruptions) == (RunStatus.SUCCEEDED, 0)
            assert near_now(record.created_at, record.started_at, record.finished_at)
            assert record.started_at is not None
            assert record.finished_at is not None
            assert record.finished_at >= record.started_at
        assert len((await long_one.record()).attempts) <= 1
        hosts = await client.hosts.list()
        assert len(hosts) == 2
        assert near_now(*(host.seen_at for host in hosts), *(host.started_at for host in hosts))


@pytest.mark.parametrize("hours", [-5, 3])
async def test_a_client_whose_clock_is_off_by_hours(nats_url: str, project: str, hours: int) -> None:
    """B24 in the caller: a delay is counted from the broker's now, and a start deadline too."""
    async with (
        JobHost([clocked()], project=project, nats=nats_url),
        skewed_client(nats_url, project, timedelta(hours=hours)) as client,
    ):
        hold = client.get_job("clocked", "hold")
        begun = time.monotonic()
        delayed = await hold.trigger(0, delay=2)
        within = await hold.trigger(0, start_within="20s")
        assert (await within.wait(timeout=5)).status is RunStatus.SUCCEEDED
        assert (await delayed.wait(timeout=10)).status is RunStatus.SUCCEEDED
        assert 1.5 < time.monotonic() - begun < 6
        waiting = await hold.trigger(0, delay="1h")
        await waiting.reschedule(datetime.now(UTC) + timedelta(seconds=1.5))
        assert (await waiting.wait(timeout=10)).status is RunStatus.SUCCEEDED


# ----------------------------------------------------------------- platforms

# Python imports a module of this name at its start, whatever it is asked to run.
SITECUSTOMIZE = """
import asyncio

def refuse(self, *_):
    raise NotImplementedError

asyncio.SelectorEventLoop.add_signal_handler = refuse
asyncio.SelectorEventLoop.remove_signal_handler = refuse
"""


def test_without_signal_handlers_of_the_loop(tmp_path: Path, nats_url: str, project: str) -> None:
    """B133: as on Windows; it starts, and Ctrl-C drains."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    terminal.env["PYTHONPATH"] = f"{tmp_path}:{SOURCE}"
    probe = [sys.executable, "-c", "import asyncio; asyncio.new_event_loop().add_signal_handler(2, print)"]
    assert b"NotImplementedError" in subprocess.run(probe, env=terminal.env, capture_output=True, check=False).stderr
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        host.signal(signal.SIGINT)
        assert host.end() == 130
        assert "host_draining" in host.said
        assert "Traceback" not in host.said
