"""Neighbours of B67 to B80: what goes wrong around a delivery that nobody counts on, on real hosts."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.field import api
from tests.faults.rig import Rig

PATIENT = {"ACK_WAIT": "6s", "HEARTBEAT_EVERY": "1500ms", "LOST_AFTER": "20s"}


@pytest.mark.faults
async def test_b67_a_call_into_c_code_longer_than_the_ack_wait(rig: Rig) -> None:
    """As frozen as by SIGSTOP: taken over elsewhere, and nothing of the first attempt counts when it wakes."""
    job = "hostile.holds_the_interpreter"
    hosts = [await rig.host("hostile", "basic") for _ in range(2)]
    run_id = await rig.trigger(job, 7)
    pid = (await rig.journal.started(run_id)).pid
    first, second = sorted(hosts, key=lambda host: host.pid != pid)
    assert (await rig.journal.started(run_id, times=2)).pid == second.pid
    record = await rig.ended(job, run_id)
    assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "attempt 2", 2)
    await rig.journal.ended(run_id, times=2)
    await rig.retired(job)
    second.sigterm()
    assert await second.exit_code() == 0
    await rig.ping()  # the first serves again
    assert await rig.record(job, run_id) == record
    assert first.process.poll() is None
    assert len(rig.journal.starts(run_id)) == 2


async def test_b71_no_thread_for_a_handler(rig: Rig) -> None:
    """A system without room for a thread costs an attempt, at once and in words; slots and threads come back."""
    host = await rig.host("hostile", "basic")
    starving = await rig.trigger("hostile.starves_threads", 6)
    await rig.journal.started(starving)
    run_id = await rig.trigger("block_thread", 0)
    record = await rig.ended("block_thread", run_id)
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert record.error is not None
    assert (record.error.type, "thread" in record.error.message) == ("NoThread", True)
    assert not rig.journal.starts(run_id)
    await rig.ended("hostile.starves_threads", starving)
    await rig.retired("block_thread")
    record = await rig.ended("block_thread", await rig.trigger("block_thread", 0))
    assert record.status is RunStatus.SUCCEEDED
    host.ask_health()
    health = await rig.journal.health()
    assert health.threads_busy == 0
    await rig.ping()


async def test_b73_a_record_removed_under_its_run(rig: Rig) -> None:
    """By an operator: the handler is told, the message is still there, and the run is done once more, alone."""
    for _ in range(2):
        await rig.host()
    run_id = await rig.trigger("hold3", 6)
    await rig.journal.started(run_id)
    key = f"$KV.jetjobs_{rig.project}_runs.basic.hold3.{run_id}"
    assert (await api(rig.url, f"STREAM.PURGE.KV_jetjobs_{rig.project}_runs", {"filter": key}))["purged"] == 1
    assert (await rig.journal.ended(run_id)).reason == "fenced"
    record = await rig.ended("hold3", run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert len(rig.journal.starts(run_id)) == 2
    assert rig.journal.most_live(run=run_id) == 1
    await rig.retired("hold3")
    await rig.ping()


async def test_b73_a_consumer_edited_under_its_runs(rig: Rig) -> None:
    """An ack wait shorter than any renewal, and another limit: redelivered all the time, and started once."""
    for _ in range(2):
        await rig.host(**PATIENT)
    await asyncio.sleep(6)  # connected for longer than an ack wait, neither spares the other: only its answer counts
    run_id = await rig.trigger("hold3", 5)
    await rig.journal.started(run_id)
    name = f"JETJOBS_{rig.project}"
    config = (await api(rig.url, f"CONSUMER.INFO.{name}.basic=_hold3"))["config"]
    edited = {**config, "ack_wait": 1_000_000_000, "max_ack_pending": 2}
    order = {"stream_name": name, "config": edited, "action": "update"}
    assert "error" not in await api(rig.url, f"CONSUMER.CREATE.{name}.basic=_hold3", order)
    runs = [run_id, *[await rig.trigger("hold3", 0.3) for _ in range(5)]]
    for record in await rig.all_ended("hold3", runs):
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert sorted(line.run for line in rig.journal.starts(job="hold3")) == sorted(runs)
    await rig.retired("hold3")


async def test_b69_put_off_for_no_time_at_all_until_it_expires(rig: Rig) -> None:
    """Ten runs that snooze as fast as they can stop nobody, and their expiry ends them."""
    await rig.host("hostile", "basic")
    runs = [await rig.trigger("hostile.at_once_again") for _ in range(10)]
    for _ in range(5):
        await rig.ping(3.5)
    for run_id in runs:
        record = await rig.ended("hostile.at_once_again", run_id)
        assert record.status is RunStatus.FAILED
        assert record.error is not None
        assert record.error.type == "Expired"
        assert record.starts == record.snoozes == len(rig.journal.starts(run_id)) > 1
    await rig.retired("hostile.at_once_again")
