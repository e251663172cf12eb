"""Brokers that go and come, clocks that are wrong, a cluster's leader, other platforms: B24, B81, B87, B89, B133."""

from __future__ import annotations

import asyncio
import os
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
from jetjobs.errors import BrokerUnavailable
from tests.faults.crowd import Crowd
from tests.faults.field import api, monitor, show
from tests.faults.rig import SOURCE, Rig, eventually
from tests.support.cluster import RealCluster
from tests.support.commands import APP, Terminal
from tests.support.servers import RealServer, free_port

# ------------------------------------------------------------- broker away


async def test_a_broker_killed_in_a_run(own_rig: Rig, own_server: RealServer) -> None:
    """B81: back after five seconds with the same store; the run ends once, and the host is not deaf."""
    rig = own_rig
    host = await rig.host()
    run_id = await rig.trigger("hold", 9)
    await rig.journal.started(run_id)
    await asyncio.to_thread(own_server.kill9)
    await asyncio.sleep(5)  # the outage
    await asyncio.to_thread(own_server.start)
    await rig.ping(10)
    record = await rig.ended("hold", run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert len(rig.journal.starts(run_id)) == 1
    await rig.retired("hold")
    assert host.process.poll() is None


async def test_a_trigger_while_offline_leaves_nothing_behind(own_rig: Rig, own_server: RealServer) -> None:
    """B89: the call says that nothing was sent, and nothing is sent later, by its own connection or at its close."""
    rig = own_rig
    await rig.trigger_first("ping")
    before = await api(rig.url, f"STREAM.INFO.JETJOBS_{rig.project}")
    client = JobClient({"servers": rig.url, "reconnect_time_wait": 0.1}, project=rig.project)
    await client.connect()
    job = client.get_job("basic", "ping")
    await job.trigger()  # it knows the job
    await asyncio.to_thread(own_server.kill9)
    await eventually(lambda: not client._open().backend.broker.connected_since, 5, "the loss being noticed")
    for options in ({}, {"idempotency_key": "k"}, {"delay": "1s"}):
        begun = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            await job.trigger(timeout=1, **options)  # pyright: ignore[reportArgumentType]
        assert time.monotonic() - begun < 2
    still_connecting = client.close()
    await asyncio.to_thread(own_server.start)
    await still_connecting
    after = await api(rig.url, f"STREAM.INFO.JETJOBS_{rig.project}")
    assert after["state"]["last_seq"] == before["state"]["last_seq"] + 1
    await rig.host()
    await eventually(lambda: len(rig.journal.starts(job="ping")) == 2)
    await rig.retired("ping")
    assert len(rig.journal.starts(job="ping")) == 2


USERS = "authorization {{ users: [ {{ user: boss, password: boss }}, {{ user: host, password: {password} }} ] }}"


async def test_a_password_changed_under_a_host(tmp_path: Path, project: str) -> None:
    """B83, later: expelled, it waits and says why, and goes on when it is let in again; nothing runs twice."""
    server = RealServer(tmp_path / "nats", extra_conf=USERS.format(password="right"))
    server.start()
    rig = Rig(tmp_path, server.url.replace("nats://", "nats://boss:boss@"), project)
    assert server.config is not None
    right = server.config.read_text()
    try:
        host = await rig.host(server=server.url.replace("nats://", "nats://host:right@"), ACK_WAIT="12s")
        run_id = await rig.trigger("hold", 6)
        await rig.journal.started(run_id)
        server.config.write_text(right.replace("password: right", "password: wrong"))
        os.kill(server.pid, signal.SIGHUP)
        await eventually(lambda: "uthorization" in host.log, 10, "the host's saying so")
        await asyncio.sleep(4)  # many tries: none may be the last
        server.config.write_text(right)
        os.kill(server.pid, signal.SIGHUP)
        await rig.ping(15)
        record = await rig.ended("hold", run_id)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        assert "host:right" not in host.log
        assert host.process.poll() is None
    finally:
        await rig.close()
        server.remove()


# -------------------------------------------------------------- many come back


@pytest.mark.timeout(200)
async def test_fifty_hosts_come_back_one_after_the_other(tmp_path: Path, project: str) -> None:
    """B87, scaled: all back in 30 s, spread, with few calls each, and no consumer made anew."""
    port = free_port()
    server = RealServer(tmp_path / "nats", extra_args=("-m", str(port)))
    server.start()
    crowd = Crowd(tmp_path, server.url, project, processes=10, hosts=5, jobs=5)
    try:
        await crowd.start(gather=20)
        assert crowd.errors == []
        consumers = await consumers_made(server.url, project)
        await asyncio.to_thread(server.kill9)
        await asyncio.sleep(7)  # the outage: every host has noticed, and tried again
        await asyncio.to_thread(server.start)
        begun = time.monotonic()

        async def all_back() -> bool:
            return (await monitor(port, "connz"))["num_connections"] >= crowd.size

        await eventually(all_back, 30, "everybody's return")
        took = time.monotonic() - begun
        found = (await monitor(port, "connz?limit=1000"))["connections"]
        seconds = Counter(each["start"][:19] for each in found if each["name"].startswith("jetjobs host"))
        await asyncio.sleep(3)  # what they ask for after their return
        calls = (await monitor(port, "jsz"))["api"]["total"]
        show(f"back in {took:.1f} s, a second {dict(seconds)}, API calls a host {calls / crowd.size:.1f}")
        # 30 % is what the waits make of it; chance adds to that with so few.
        assert max(seconds.values()) <= 0.55 * crowd.size
        assert calls <= 10 * crowd.size
        assert await consumers_made(server.url, project) == consumers
        assert (await monitor(port, "jsz"))["api"]["total"] > calls  # it does count
        async with JobClient(server.url, project=project) as client:
            runs = [await client.get_job("many", f"job{n % 5}").trigger() for n in range(20)]
            for run in runs:
                assert (await run.wait(timeout=15)).status is RunStatus.SUCCEEDED
        assert all(process.poll() is None for process in crowd.started)
    finally:
        crowd.close()
        server.remove()


async def consumers_made(url: str, project: str) -> dict[str, str]:
    """When each consumer was made."""
    answer = await api(url, f"CONSUMER.LIST.JETJOBS_{project}", {"offset": 0})
    return {each["name"]: each["created"] for each in answer["consumers"]}


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
