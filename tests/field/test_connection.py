"""Brokers that go and come, and hosts that come back to them: B81, B83, B87, B89."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from jetjobs import JobClient
from jetjobs._core.models import RunStatus
from jetjobs.errors import BrokerUnavailable
from tests.faults.crowd import Crowd
from tests.faults.field import api, monitor, show
from tests.faults.rig import Rig, eventually
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.faults


async def test_b81_a_broker_killed_in_a_run(own_rig: Rig, own_server: RealServer) -> None:
    """Back after five seconds with the same store; the run ends once, and the host is not deaf."""
    rig = own_rig
    host = await rig.host()
    run_id = await rig.trigger("hold", 9)
    await rig.journal.started(run_id)
    await asyncio.to_thread(own_server.kill9)
    await asyncio.sleep(5)  # the outage
    await asyncio.to_thread(own_server.start)
    await rig.ping(30)
    record = await rig.ended("hold", run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert len(rig.journal.starts(run_id)) == 1
    await rig.retired("hold")
    assert host.process.poll() is None


async def test_b89_a_trigger_while_offline_leaves_nothing_behind(own_rig: Rig, own_server: RealServer) -> None:
    """The call says that nothing was sent, and nothing is sent later, by its own connection or at its close."""
    rig = own_rig
    await rig.trigger_first("ping")
    before = await api(rig.url, f"STREAM.INFO.JETJOBS_{rig.project}")
    client = JobClient({"servers": rig.url, "reconnect_time_wait": 0.1}, project=rig.project)
    await client.connect()
    job = client.get_job("basic", "ping")
    await job.trigger()  # it knows the job
    await asyncio.to_thread(own_server.kill9)
    await eventually(lambda: not client._open().backend.broker.connected_since, what="the loss being noticed")
    for options in ({}, {"idempotency_key": "k"}, {"delay": "1s"}):
        begun = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            await job.trigger(timeout=1, **options)  # pyright: ignore[reportArgumentType]
        assert time.monotonic() - begun < 4
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


async def test_b83_a_password_changed_under_a_host(tmp_path: Path, project: str) -> None:
    """Expelled, it waits and says why, and goes on when it is let in again; nothing runs twice."""
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
        await eventually(lambda: "uthorization" in host.log, what="the host's saying so")
        await asyncio.sleep(4)  # many tries: none may be the last
        server.config.write_text(right)
        os.kill(server.pid, signal.SIGHUP)
        await rig.ping(30)
        record = await rig.ended("hold", run_id)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        assert "host:right" not in host.log
        assert host.process.poll() is None
    finally:
        await rig.close()
        server.remove()


@pytest.mark.long
@pytest.mark.timeout(200)
@pytest.mark.parametrize(
    "hosts,share",
    [
        (5, 0.55),  # 30 % is what the waits make of it; chance adds to that with so few
        pytest.param(10, 0.4, marks=pytest.mark.soak),
    ],
)
async def test_b87_many_hosts_come_back_one_after_the_other(
    tmp_path: Path, project: str, hosts: int, share: float
) -> None:
    """Ten processes: all back in 30 s, spread, with few calls each, and no consumer made anew."""
    port = free_port()
    server = RealServer(tmp_path / "nats", extra_args=("-m", str(port)))
    server.start()
    crowd = Crowd(tmp_path, server.url, project, processes=10, hosts=hosts, jobs=5)
    try:
        await crowd.start()
        assert crowd.errors == []
        consumers = await consumers_made(server.url, project)
        await asyncio.to_thread(server.kill9)
        await asyncio.sleep(7)  # the outage: every host has noticed, and tried again
        await asyncio.to_thread(server.start)
        begun = time.monotonic()

        async def all_back() -> bool:
            return (await monitor(port, "connz"))["num_connections"] >= crowd.size

        await eventually(all_back, 60, "everybody's return")
        took = time.monotonic() - begun
        found = (await monitor(port, "connz?limit=1000"))["connections"]
        seconds = Counter(each["start"][:19] for each in found if each["name"].startswith("jetjobs host"))
        await asyncio.sleep(3)  # what they ask for after their return
        calls = (await monitor(port, "jsz"))["api"]["total"]
        show(f"back in {took:.1f} s, a second {dict(seconds)}, API calls a host {calls / crowd.size:.1f}")
        assert max(seconds.values()) <= share * crowd.size
        assert calls <= 10 * crowd.size
        assert await consumers_made(server.url, project) == consumers
        assert (await monitor(port, "jsz"))["api"]["total"] > calls  # it does count
        async with JobClient(server.url, project=project) as client:
            runs = [await client.get_job("many", f"job{n % 5}").trigger() for n in range(20)]
            for run in runs:
                assert (await run.wait(timeout=45)).status is RunStatus.SUCCEEDED
        assert all(process.poll() is None for process in crowd.started)
    finally:
        crowd.close()
        server.remove()


async def consumers_made(url: str, project: str) -> dict[str, str]:
    """When each consumer was made."""
    answer = await api(url, f"CONSUMER.LIST.JETJOBS_{project}", {"offset": 0})
    return {each["name"]: each["created"] for each in answer["consumers"]}
