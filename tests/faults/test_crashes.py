"""Hosts that die or freeze in a run."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import ACK_WAIT, Rig, eventually

TAKEN_OVER_WITHIN = 4 * ACK_WAIT + 5


async def test_a_killed_hosts_run_starts_once_more_elsewhere(rig: Rig) -> None:
    first = await rig.host()
    run_id = await rig.trigger("hold3", 1.0)
    await rig.journal.started(run_id)
    died = first.kill9()
    second = await rig.host()
    start = await rig.journal.started(run_id, times=2, within=TAKEN_OVER_WITHIN)
    assert (start.pid, start.attempt) == (second.pid, 2)
    record = await rig.ended("hold3", run_id)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 2, "attempt 2")
    assert [attempt.outcome for attempt in record.attempts] == ["LOST", "SUCCEEDED"]
    await rig.retired("hold3")
    assert len(rig.journal.starts(run_id)) == 2
    assert rig.journal.most_live(run=run_id, died={first.pid: died}) == 1


async def test_a_killed_hosts_last_attempt_is_failed_once(rig: Rig) -> None:
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
        assert (await rig.ended("hold", await rig.trigger("hold", 0), 5)).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("job", ["hold3", "spin3"])
async def test_a_frozen_host_that_wakes_records_nothing_and_stops(rig: Rig, job: str) -> None:
    first = await rig.host()
    run_id = await rig.trigger(job, 30)
    await rig.journal.started(run_id)
    second = await rig.host()
    first.freeze()
    start = await rig.journal.started(run_id, times=2, within=TAKEN_OVER_WITHIN)
    assert start.pid == second.pid
    owned = await rig.record(job, run_id)
    first.thaw()
    end = await rig.journal.ended(run_id, within=3)
    assert (end.pid, end.attempt, end.reason) == (first.pid, 1, "fenced")
    assert len(rig.journal.starts(run_id)) == 2
    record = await rig.record(job, run_id)
    assert (record.status, record.claim, record.host_id) == (RunStatus.RUNNING, owned.claim, owned.host_id)
    client = await rig.client()
    await client.run("basic", job, run_id).cancel()
    end = await rig.journal.ended(run_id, times=2, within=3)
    assert (end.pid, end.reason) == (second.pid, "cancel")
    record = await rig.ended(job, run_id)
    assert [attempt.outcome for attempt in record.attempts] == ["LOST", "CANCELLED"]
    await rig.retired(job)
    await rig.ping()


async def test_a_frozen_hosts_finished_handler_does_not_overwrite_the_newer_attempt(rig: Rig) -> None:
    hosts = [await rig.host(), await rig.host()]
    run_id = await rig.trigger("hold3", 1.5)  # due while its host is frozen
    pid = (await rig.journal.started(run_id)).pid
    first, second = sorted(hosts, key=lambda host: host.pid != pid)
    first.freeze()
    start = await rig.journal.started(run_id, times=2, within=TAKEN_OVER_WITHIN)
    assert start.pid == second.pid
    first.thaw()
    record = await rig.ended("hold3", run_id)
    assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "attempt 2", 2)
    assert record.host_id == second.events("host_started")[0]["host"]
    await eventually(lambda: len(rig.journal.ends(run_id)) == 2)
    await rig.retired("hold3")
    assert (await rig.record("hold3", run_id)).result == "attempt 2"
    assert len(rig.journal.starts(run_id)) == 2


async def test_a_whole_team_of_hosts_dies(rig: Rig) -> None:
    """Twenty runs on two hosts killed together: each gets one more start, and none is forgotten."""
    hosts = [await rig.host(), await rig.host()]
    runs = await rig.trigger_all("hold3", [1.0] * 20)
    await rig.journal.started(job="hold3", times=8)
    died = {host.pid: host.kill9() for host in hosts}
    started = {line.run for line in rig.journal.starts(job="hold3")}
    await asyncio.gather(*(host.ready() for host in [rig.spawn(), rig.spawn()]))
    for record in await rig.all_ended("hold3", runs):
        assert record.status is RunStatus.SUCCEEDED
        assert record.starts == len(rig.journal.starts(record.run_id)) <= 2
        assert record.starts == 1 or record.run_id in started
    await rig.retired("hold3")
    assert rig.journal.most_live("hold3", died=died) <= 8


async def test_a_cancelled_run_of_a_dead_host_never_starts_again(rig: Rig) -> None:
    first = await rig.host()
    run_id = await rig.trigger("hold3", 60)
    await rig.journal.started(run_id)
    first.kill9()
    client = await rig.client()
    assert (await client.run("basic", "hold3", run_id).cancel()).outcome.name == "ASKED"
    await rig.host()
    record = await rig.ended("hold3", run_id, TAKEN_OVER_WITHIN)
    assert (record.status, record.starts) == (RunStatus.CANCELLED, 1)
    await rig.retired("hold3")
    assert len(rig.journal.starts(run_id)) == 1
