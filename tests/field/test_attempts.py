"""Attempts, and hosts that die, freeze or are stopped in one: B66, B71, B77, B80."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig, eventually

pytestmark = pytest.mark.faults
TAKEN_OVER_WITHIN = 45.0


@pytest.mark.parametrize("job", ["hold3", "spin3"])
async def test_b66_a_frozen_host_that_wakes_records_nothing_and_stops(rig: Rig, job: str) -> None:
    first = await rig.host()
    run_id = await rig.trigger(job, 30)
    await rig.journal.started(run_id)
    second = await rig.host()
    first.freeze()
    start = await rig.journal.started(run_id, times=2, within=TAKEN_OVER_WITHIN)
    assert start.pid == second.pid
    owned = await rig.record(job, run_id)
    first.thaw()
    end = await rig.journal.ended(run_id, within=20)
    assert (end.pid, end.attempt, end.reason) == (first.pid, 1, "fenced")
    assert len(rig.journal.starts(run_id)) == 2
    record = await rig.record(job, run_id)
    assert (record.status, record.claim, record.host_id) == (RunStatus.RUNNING, owned.claim, owned.host_id)
    client = await rig.client()
    await client.run("basic", job, run_id).cancel()
    end = await rig.journal.ended(run_id, times=2, within=20)
    assert (end.pid, end.reason) == (second.pid, "cancel")
    record = await rig.ended(job, run_id)
    assert [attempt.outcome for attempt in record.attempts] == ["LOST", "CANCELLED"]
    await rig.retired(job)
    await rig.ping()


@pytest.mark.parametrize("woken", ["in the next attempt", "after it"])
async def test_b66_a_frozen_hosts_finished_handler_does_not_overwrite_the_newer_attempt(rig: Rig, woken: str) -> None:
    hosts = [await rig.host(), await rig.host()]
    run_id = await rig.trigger("hold3", 1.5)  # due while its host is frozen
    pid = (await rig.journal.started(run_id)).pid
    first, second = sorted(hosts, key=lambda host: host.pid != pid)
    first.freeze()
    start = await rig.journal.started(run_id, times=2, within=TAKEN_OVER_WITHIN)
    assert start.pid == second.pid
    if woken == "in the next attempt":
        first.thaw()
    record = await rig.ended("hold3", run_id)
    first.thaw()
    assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "attempt 2", 2)
    assert record.host_id == second.events("host_started")[0]["host"]
    await eventually(lambda: len(rig.journal.ends(run_id)) == 2)
    await rig.retired("hold3")
    second.sigterm()
    assert await second.exit_code() == 0
    await rig.ping()  # the first has caught up, and serves
    assert await rig.record("hold3", run_id) == record, "not a byte of it"
    assert len(rig.journal.starts(run_id)) == 2


@pytest.mark.long
async def test_b71_a_message_that_kills_its_host(rig: Rig) -> None:
    """Under a restart loop it gets its attempts and no more; other jobs go on."""
    run_id = await rig.trigger_first("kills_its_host")
    starts = 0

    async def restart() -> None:
        nonlocal starts
        while True:
            starts += 1
            host = rig.spawn()
            await host.exit_code(within=90)

    loop = asyncio.create_task(restart())
    try:
        record = await rig.ended("kills_its_host", run_id, 90)
    finally:
        loop.cancel()
    assert (record.status, record.starts) == (RunStatus.FAILED, 3)
    assert record.error is not None
    assert record.error.message.startswith("lost: ")
    assert len(rig.journal.starts(run_id)) == 3
    assert starts == 4
    await rig.retired("kills_its_host")
    await rig.ping()


@pytest.mark.parametrize("job", ["out_of_memory", "out_of_memory_in_thread"])
async def test_b71_memory_that_is_not_there(rig: Rig, job: str) -> None:
    """An error like any other: three attempts, then FAILED; the host goes on."""
    host = await rig.host()
    run_id = await rig.trigger(job)
    record = await rig.ended(job, run_id)
    assert (record.status, record.starts) == (RunStatus.FAILED, 3)
    assert record.error is not None
    assert record.error.type == "MemoryError"
    assert len(rig.journal.starts(run_id)) == 3
    await rig.retired(job)
    await rig.ping()
    assert host.process.poll() is None


async def test_b77_an_interrupted_run_goes_back_and_costs_no_attempt(rig: Rig) -> None:
    """Two attempts, two shutdowns: the third start still is attempt 1."""
    run_id = await rig.trigger_first("hold_twice", 6.0)
    for times in (1, 2):
        host = await rig.host(DRAIN="200ms")
        start = await rig.journal.started(run_id, times=times)
        assert (start.pid, start.attempt) == (host.pid, 1)
        host.sigterm()
        assert await host.exit_code(within=20) == 0
        assert rig.journal.ends(run_id)[-1].reason == "shutdown"
    record = await rig.record("hold_twice", run_id)
    assert (record.status, record.interruptions, record.starts, record.attempt) == (RunStatus.RETRYING, 2, 2, 0)
    await rig.host()
    record = await rig.ended("hold_twice", run_id)
    assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "attempt 1", 3)
    assert [attempt.outcome for attempt in record.attempts] == ["INTERRUPTED", "INTERRUPTED", "SUCCEEDED"]
    assert len(rig.journal.starts(run_id)) == 3


@pytest.mark.parametrize("job", ["hold", "fails_at_shutdown", "block_thread"])
async def test_b77_what_may_not_start_again_fails_with_host_shutdown(rig: Rig, job: str) -> None:
    host = await rig.host(DRAIN="200ms")
    run_id = await rig.trigger(job, 2.0 if job == "block_thread" else 30)
    await rig.journal.started(run_id)
    host.sigterm()
    assert await host.exit_code(within=20) == 0
    record = await rig.ended(job, run_id)
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert record.error is not None
    assert record.error.type == "HostShutdown"
    await rig.host()
    await rig.ping()
    assert len(rig.journal.starts(run_id)) == 1
    await rig.retired(job)


async def test_b80_a_killed_hosts_last_attempt_is_failed_once(rig: Rig) -> None:
    first = await rig.host()
    run_id = await rig.trigger("hold", 60)
    await rig.journal.started(run_id)
    first.kill9()
    for host in (hosts := [rig.spawn() for _ in range(3)]):
        await host.ready()
    record = await rig.ended("hold", run_id, TAKEN_OVER_WITHIN)
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert record.error is not None
    assert (record.error.type, record.error.message.startswith("lost: no heartbeat since ")) == ("Lost", True)
    assert [attempt.outcome for attempt in record.attempts] == ["LOST"]
    await rig.retired("hold")
    assert len(rig.journal.starts(run_id)) == 1
    assert sum(len(host.events("run_reaped")) for host in hosts) <= 1
    for _ in range(3):
        assert (await rig.ended("hold", await rig.trigger("hold", 0))).status is RunStatus.SUCCEEDED
