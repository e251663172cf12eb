"""Hosts that die or freeze in a run."""

from __future__ import annotations

import asyncio

from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig

TAKEN_OVER_WITHIN = 45.0


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
