"""B98, B100, B102: what runs may finish, what waits runs elsewhere, and what is interrupted costs no attempt."""

from __future__ import annotations

import asyncio
import signal

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import ACK_WAIT, Rig, eventually
from tests.support.servers import RealServer

pytestmark = pytest.mark.faults


async def test_b98_a_draining_host_finishes_its_run_and_starts_no_other(rig: Rig) -> None:
    hosts = [await rig.host(DRAIN="40s"), await rig.host(DRAIN="40s")]
    running = await rig.trigger("slow_and_queued", 5.0)
    pid = (await rig.journal.started(running)).pid
    first, second = sorted(hosts, key=lambda host: host.pid != pid)
    queued = await rig.trigger_all("slow_and_queued", [0.0] * 20)
    at = first.sigterm()
    assert await first.exit_code(within=30) == 0
    record = await rig.ended("slow_and_queued", running)
    assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, str(first.pid), 1)
    for record in await rig.all_ended("slow_and_queued", queued):
        assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, str(second.pid), 1)
    starts = rig.journal.starts(job="slow_and_queued")
    assert not [line for line in starts if line.pid == first.pid and line.at > at]
    assert len(starts) == 21
    assert [
        line.what for line in rig.journal.lines() if line.what.startswith("lifespan") and line.pid == first.pid
    ] == [
        "lifespan opens",
        "lifespan closes",
    ]


async def test_b102_a_draining_run_is_not_taken_for_lost(rig: Rig) -> None:
    """Drain longer than ack wait and lost_after together, with a reaper beside it."""
    first = await rig.host(DRAIN="30s")
    run_id = await rig.trigger("hold", 3 * ACK_WAIT + 2)
    await rig.journal.started(run_id)
    second = await rig.host()
    first.sigterm()
    record = await rig.ended("hold", run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert await first.exit_code() == 0
    assert not second.events("run_reaped")
    assert len(rig.journal.starts(run_id)) == 1


async def test_b98_a_jobs_own_drain_time(rig: Rig) -> None:
    host = await rig.host(DRAIN="200ms")
    patient = await rig.trigger("patient", 2.0)
    other = await rig.trigger("hold", 2.0)
    await rig.journal.started(patient)
    await rig.journal.started(other)
    host.sigterm()
    assert await host.exit_code() == 0
    assert (await rig.ended("patient", patient)).result == "done"
    assert (await rig.ended("hold", other)).status is RunStatus.FAILED


async def test_b100_exit_codes_and_the_second_signal(rig: Rig) -> None:
    host = await rig.host(DRAIN="30s")
    await rig.journal.started(await rig.trigger("hold", 30))
    host.process.send_signal(signal.SIGINT)
    other = await rig.host()
    await rig.ping()  # the first one has heard its signal
    host.process.send_signal(signal.SIGINT)
    assert await host.exit_code(within=20) == 130
    other.process.send_signal(signal.SIGINT)
    assert await other.exit_code() == 130


async def test_b98_a_thread_that_will_not_end_is_left_to_redelivery(rig: Rig) -> None:
    """It had its only attempt: the next host finds it lost, and runs nothing twice."""
    host = await rig.host(DRAIN="200ms")
    run_id = await rig.trigger("block_thread", 300)
    await rig.journal.started(run_id)
    host.sigterm()
    assert await host.exit_code() == 0
    await rig.host()
    record = await rig.ended("block_thread", run_id)
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert len(rig.journal.starts(run_id)) == 1
    await rig.retired("block_thread")


async def test_b98_a_host_ends_in_time_although_the_broker_is_away(own_rig: Rig, own_server: RealServer) -> None:
    """What it couldn't save starts again when both are back: the broker knows no better."""
    rig = own_rig
    host = await rig.host()
    run_id = await rig.trigger("hold3", 0.8)
    await rig.journal.started(run_id)
    await asyncio.to_thread(own_server.kill9)
    host.sigterm()
    assert await host.exit_code() == 0
    await asyncio.to_thread(own_server.start)
    await rig.host()
    record = await rig.ended("hold3", run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 2)
    assert rig.journal.most_live(run=run_id) == 1


@pytest.mark.parametrize("job,status", [("leaves_a_thread", "TIMED_OUT"), ("leaves_a_task", "SUCCEEDED")])
async def test_b98_what_a_handler_left_behind_keeps_no_process_alive(rig: Rig, job: str, status: str) -> None:
    host = await rig.host()
    run_id = await rig.trigger(job)
    assert (await rig.ended(job, run_id)).status == status
    host.sigterm()
    assert await host.exit_code() == 0
    assert [line.what for line in rig.journal.lines() if line.what.startswith("lifespan")] == [
        "lifespan opens",
        "lifespan closes",
    ]


@pytest.mark.parametrize("phase", ["entering", "leaving"])
async def test_b98_a_lifespan_that_hangs_keeps_no_host_alive(rig: Rig, monkeypatch: pytest.MonkeyPatch, phase: str):
    """Told to stop while it waits for what never comes: before the host serves, or after its drain."""
    monkeypatch.setenv("HANGS", phase)
    host = rig.spawn("hanging", DRAIN="1s")
    if phase == "leaving":
        await host.ready()
    await eventually(lambda: rig.journal.lines("entering"), what="the lifespan")
    host.sigterm()
    assert await host.exit_code() == 0
    assert bool(host.events("lifespan_not_left")) == (phase == "leaving")
