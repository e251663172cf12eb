"""Neighbours of B81 to B89: brokers that come back empty, older or full, that freeze, and lines that are slow."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from jetjobs import JobClient
from jetjobs._core.models import RunStatus
from jetjobs.client import JobRun
from jetjobs.errors import BrokerError, TriggerUnconfirmed
from tests.faults.rig import Rig, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

pytestmark = pytest.mark.faults


async def test_b81_a_broker_that_lost_its_storage(own_rig: Rig, own_server: RealServer) -> None:
    """A volume that wasn't kept: hosts bring everything back, callers know the jobs again, no handler goes on alone."""
    rig = own_rig
    hosts = [await rig.host(), await rig.host()]
    lost = await rig.trigger("hold3", 20)
    await rig.journal.started(lost)
    await asyncio.to_thread(own_server.kill9)
    shutil.rmtree(own_server.store)
    await asyncio.to_thread(own_server.start)
    await rig.journal.started(await rig.trigger_at_last("ping"))
    assert (await rig.journal.ended(lost)).reason == "fenced"
    for record in await rig.all_ended("four", [await rig.trigger_at_last("four", 0.01) for _ in range(20)]):
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    await rig.retired("four")
    assert len(rig.journal.starts(lost)) == 1
    for host in hosts:
        host.sigterm()
        assert await host.exit_code() == 0


async def test_b81_a_broker_restored_from_a_backup(own_rig: Rig, own_server: RealServer, tmp_path: Path) -> None:
    """Records and messages of an hour ago: what they say still runs is done again, what they never heard of is gone."""
    rig = own_rig
    for _ in range(2):
        await rig.host()
    again = await rig.trigger("hold3", 1.5)
    await rig.journal.started(again)
    await asyncio.to_thread(own_server.kill9)
    shutil.copytree(own_server.store, tmp_path / "backup")
    await asyncio.to_thread(own_server.start)
    assert (await rig.ended("hold3", again)).starts == 1
    unheard_of = await rig.trigger("hold3", 20)
    await rig.journal.started(unheard_of)
    await asyncio.to_thread(own_server.kill9)
    shutil.rmtree(own_server.store)
    shutil.copytree(tmp_path / "backup", own_server.store)
    await asyncio.to_thread(own_server.start)
    await rig.ping(30)
    assert (await rig.journal.ended(unheard_of)).reason == "fenced"
    record = await rig.ended("hold3", again)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 2)
    for record in await rig.all_ended("four", await rig.trigger_all("four", [0.01] * 20)):
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    await rig.retired("hold3")
    assert rig.journal.most_live("hold3") <= 2
    assert (len(rig.journal.starts(again)), len(rig.journal.starts(unheard_of))) == (2, 1)


async def test_b89_a_trigger_to_a_frozen_broker(own_rig: Rig, own_server: RealServer) -> None:
    """It says that it can't know; the same call again, by its key or its run id, is the same run."""
    rig = own_rig
    await rig.host()
    async with JobClient({"servers": rig.url, "reconnect_time_wait": 0.1}, project=rig.project) as client:
        job = client.get_job("basic", "ping")
        await (await job.trigger()).wait(30)
        await asyncio.to_thread(own_server.sigstop)
        begun = time.monotonic()
        with pytest.raises(TriggerUnconfirmed) as unsure:
            await job.trigger(timeout=1)
        with pytest.raises(BrokerError):
            await job.trigger(timeout=1, idempotency_key="k")
        assert time.monotonic() - begun < 8
        own_server.sigcont()

        async def stored() -> JobRun[Any] | None:
            try:
                return await job.trigger(timeout=2, idempotency_key="k")
            except BrokerError:
                return None

        runs = [(await eventually(stored, what="a trigger being stored")).run_id for _ in range(3)]
        assert len(set(runs)) == 1
        for run_id in (unsure.value.run_id, runs[0]):
            assert (await client.run("basic", "ping", run_id).wait(30)).starts == 1
    await rig.retired("ping")
    assert len(rig.journal.starts(job="ping")) == 3


async def test_b87_a_broker_without_room_for_everybody(tmp_path: Path, project: str) -> None:
    """`maximum connections exceeded` is no reason to give up: whoever found no place has one when there is."""
    server = RealServer(tmp_path / "nats", extra_conf="# room for all")
    server.start()
    rig = Rig(tmp_path, server.url, project)
    assert server.config is not None
    roomy = server.config.read_text()
    try:
        hosts = [await rig.host() for _ in range(3)]
        await rig.ping()
        server.config.write_text(f"{roomy}\nmax_connections: 1\n")
        await asyncio.to_thread(server.restart)
        # The server hangs up after the word, and who writes at that moment sees a broken pipe instead of it.
        await eventually(lambda: any("maximum connections" in host.log for host in hosts), 45, what="a refusal")
        await asyncio.sleep(1)  # more tries: none may be the last
        server.config.write_text(roomy)
        os.kill(server.pid, signal.SIGHUP)
        await rig.ping(30)
        for host in hosts:
            host.ask_health()
        await eventually(lambda: len(rig.journal.lines("health")) == 3)

        async def all_ready() -> bool:
            for host in hosts:
                host.ask_health()
            newest = {line.pid: line.ready for line in rig.journal.lines("health")}
            return len(newest) == 3 and all(newest.values())

        await eventually(all_ready, what="three hosts that serve")
        for record in await rig.all_ended("four", await rig.trigger_all("four", [0.01] * 20)):
            assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    finally:
        await rig.close()
        server.remove()


async def test_b81_a_line_that_is_slow(rig: Rig) -> None:
    """A fifth of a second there and back: it starts, and works as elsewhere."""
    async with Proxy(int(rig.url.rpartition(":")[2])) as proxy:
        proxy.to_broker.delay = proxy.to_client.delay = 0.1
        host = await rig.host(server=proxy.url, ACK_WAIT="6s", HEARTBEAT_EVERY="1500ms", LOST_AFTER="10s")
        runs = await rig.trigger_all("hold3", [3.0, 0.1, 0.1, 0.1])
        for record in await rig.all_ended("hold3", runs):
            assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        failing = await rig.trigger("fails_until", 3)
        assert (await rig.ended("fails_until", failing)).starts == 3
        await rig.retired("hold3")
        assert not host.events("run_fenced")
