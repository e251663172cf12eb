"""The broker dies, comes back, or can't be reached by one host alone."""

from __future__ import annotations

import asyncio
import time

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import ACK_WAIT, Rig, eventually
from tests.support.proxy import Proxy
from tests.support.servers import RealServer


async def test_an_outage_longer_than_the_ack_wait_kills_no_child(own_rig: Rig, own_server: RealServer) -> None:
    """Its host can't renew, but nobody can take the run over either; so it goes on to answer for its children."""
    rig = own_rig
    hosts = [await rig.host("isolated"), await rig.host("isolated")]
    run = await rig.trigger("isolated.sleeps", 3.5 * ACK_WAIT)
    await rig.journal.started(run)
    await asyncio.to_thread(own_server.kill9)
    await asyncio.sleep(2 * ACK_WAIT)  # the outage
    await asyncio.to_thread(own_server.start)
    record = await rig.ended("isolated.sleeps", run)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 1, "slept")
    assert all(not host.events("run_fenced") for host in hosts)


@pytest.mark.parametrize("job", ["hold3", "spin3"])
async def test_an_outage_longer_than_the_ack_wait_starts_nothing_twice(
    own_rig: Rig, own_server: RealServer, job: str
) -> None:
    rig = own_rig
    hosts = [await rig.host(), await rig.host()]
    runs = await rig.trigger_all(job, [4.5 * ACK_WAIT] * 3)
    for run_id in runs:
        await rig.journal.started(run_id)
    await asyncio.sleep(ACK_WAIT / 2)  # the runs are under way
    await asyncio.to_thread(own_server.kill9)
    await asyncio.sleep(2 * ACK_WAIT)  # the outage
    await asyncio.to_thread(own_server.start)
    for record in await rig.all_ended(job, runs):
        assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 1, "attempt 1")
    await rig.retired(job)
    assert sorted(line.run for line in rig.journal.starts(job=job)) == sorted(runs)
    assert all(not host.events("run_fenced") for host in hosts)
    await rig.ping()


async def test_handlers_that_end_during_the_outage_are_saved_after_it(own_rig: Rig, own_server: RealServer) -> None:
    rig = own_rig
    host = await rig.host()
    await rig.host()
    runs = await rig.trigger_all("hold3", [1.0] * 4)
    for run_id in runs:
        await rig.journal.started(run_id)
    await asyncio.to_thread(own_server.kill9)
    for run_id in runs:
        await rig.journal.ended(run_id)
    await asyncio.sleep(1.5 * ACK_WAIT)  # the outage
    await asyncio.to_thread(own_server.start)
    for record in await rig.all_ended("hold3", runs):
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    await rig.retired("hold3")
    assert len(rig.journal.starts(job="hold3")) == 4
    assert host.process.poll() is None


async def test_a_killed_broker_with_200_runs_queued(own_rig: Rig, own_server: RealServer) -> None:
    rig = own_rig
    hosts = [await rig.host(), await rig.host()]
    runs = await rig.trigger_all("four", [0.02] * 200)
    await rig.journal.started(job="four", times=40)
    await asyncio.to_thread(own_server.kill9)
    assert len(rig.journal.starts(job="four")) < 200
    await asyncio.to_thread(own_server.start)
    records = await rig.all_ended("four", runs)
    await rig.retired("four")
    assert {record.status for record in records} == {RunStatus.SUCCEEDED}
    assert {record.starts for record in records} == {1}
    assert sorted(line.run for line in rig.journal.starts(job="four")) == sorted(runs)
    assert rig.journal.most_live("four") <= 4
    assert all(host.process.poll() is None for host in hosts)


@pytest.mark.parametrize("job", ["hold3", "spin3"])
async def test_a_host_that_alone_lost_the_broker_stops_before_another_starts(rig: Rig, job: str) -> None:
    ack_wait, patient = 6.0, {"ACK_WAIT": "6s", "HEARTBEAT_EVERY": "1500ms", "LOST_AFTER": "10s"}
    async with Proxy(int(rig.url.rpartition(":")[2])) as proxy:
        first = await rig.host(server=proxy.url, INTERRUPT_GRACE="9s", **patient)  # politeness must not cost the fence
        run_id = await rig.trigger(job, 40)
        assert (await rig.journal.started(run_id)).pid == first.pid
        second = await rig.host(**patient)
        await asyncio.sleep(ack_wait)  # longer connected than the second must have been, and renewed since
        proxy.black_hole()
        gone = time.monotonic()
        end = await rig.journal.ended(run_id)
        assert (end.pid, end.reason) == (first.pid, "fenced")
        assert end.at - gone < ack_wait
        start = await rig.journal.started(run_id, times=2)
        assert (start.pid, start.attempt) == (second.pid, 2)
        assert start.at > end.at
        proxy.heal()
        await eventually(lambda: first.events("run_lost_to_another_host"))
        client = await rig.client()
        await client.run("basic", job, run_id).cancel()
        record = await rig.ended(job, run_id)
        assert [attempt.outcome for attempt in record.attempts] == ["LOST", "CANCELLED"]
        assert rig.journal.most_live(run=run_id) == 1
        assert len(rig.journal.starts(run_id)) == 2


async def test_a_frozen_broker_is_no_reason_to_start_twice_at_once(own_rig: Rig, own_server: RealServer) -> None:
    """Frozen, it answers nobody: every host fences its runs, and none may overlap with the next attempt."""
    rig = own_rig
    await rig.host()
    await rig.host()
    runs = await rig.trigger_all("hold3", [2.5 * ACK_WAIT] * 3)
    for run_id in runs:
        await rig.journal.started(run_id)
    await asyncio.to_thread(own_server.sigstop)
    await asyncio.sleep(2 * ACK_WAIT)
    own_server.sigcont()
    for record in await rig.all_ended("hold3", runs):
        assert record.status is RunStatus.SUCCEEDED
        assert rig.journal.most_live(run=record.run_id) == 1
    await rig.retired("hold3")


async def test_a_consumer_deleted_under_running_runs(rig: Rig) -> None:
    """It is made again and hands all of them out anew; whoever gets one asks its owner, and lets it be."""
    await rig.host()
    await rig.host()
    runs = await rig.trigger_all("hold3", [3 * ACK_WAIT] * 4)
    for run_id in runs:
        await rig.journal.started(run_id)
    await rig.jetstream(lambda stream: stream.delete_consumer(f"JETJOBS_{rig.project}", "basic=_hold3"))
    following = await rig.trigger("hold3", 0)
    assert (await rig.ended("hold3", following)).status is RunStatus.SUCCEEDED
    for record in await rig.all_ended("hold3", runs):
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert rig.journal.most_live("hold3") <= 8
    await rig.retired("hold3")
    assert len(rig.journal.starts(job="hold3")) == 5


async def test_messages_purged_under_running_and_waiting_runs(rig: Rig) -> None:
    """By an operator, say: what runs ends as ever, and what waits for its retry is not forgotten."""
    await rig.host()
    running = await rig.trigger("hold3", 4.0)
    waiting = await rig.trigger("one_at_a_time", "retry in six")
    await rig.journal.started(running)
    await rig.journal.ended(waiting)
    await rig.retired("one_at_a_time")  # its retry has been stored
    await rig.jetstream(lambda stream: stream.purge_stream(f"JETJOBS_{rig.project}"))
    assert (await rig.ended("hold3", running)).status is RunStatus.SUCCEEDED
    record = await rig.ended("one_at_a_time", waiting)
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert "its message is gone" in record.error.message
    assert len(rig.journal.starts(waiting)) == 1
    await rig.ping()
