"""Runs that take longer than their interval, on three hosts: never two at once, and nothing piles up."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from jetjobs._core.models import RunStatus
from jetjobs._core.schedule_record import ScheduleRecord
from tests.faults.field import show
from tests.faults.schedule_rig import Jobs, ScheduleRig, every, occurrences_between

pytestmark = pytest.mark.faults

SHORT: Jobs = {"j": {"triggers": [every("1s")], "takes": 2.3, "at_once": 3}}
LONG: Jobs = {
    "forty": {"triggers": [every("1s")], "takes": 40, "at_once": 3},
    "five": {"triggers": [every("2s")], "takes": 5, "at_once": 3},
    "alone": {"triggers": [every("2s")], "takes": 5},
    # Longer than its tick's grace, and than what a run may take until it is retried no more.
    "expiring": {"triggers": [every("1s", misfire_grace="1s")], "takes": 20, "at_once": 3, "expires_in": "5s"},
}
RHYTHM = {"j": {3, 4, 5, 6}, "forty": {41, 42}, "five": {6, 8}, "alone": {6, 8}, "expiring": {21, 22}}


async def _three(schedules: ScheduleRig, jobs: Jobs) -> None:
    hosts = [schedules.spawn(jobs) for _ in range(3)]
    for host in hosts:
        await host.ready()


async def _most_messages(schedules: ScheduleRig, seconds: float) -> int:
    """The most that the jobs stream ever held, looked at once a second for so long."""
    stream, most, until = f"JETJOBS_{schedules.rig.project}", 0, time.monotonic() + seconds
    while time.monotonic() < until:
        info = await schedules.rig.jetstream(lambda js: js.stream_info(stream))
        most = max(most, info.state.messages)
        await asyncio.sleep(1)
    return most


async def _check(schedules: ScheduleRig, job: str) -> ScheduleRecord:
    """Each occurrence ran or was skipped, as the records say; none is beside another run."""
    found = await schedules.settled(job, "every", time.time() - 1, within=60)
    assert found.last_occurrence is not None
    assert schedules.rig.journal.most_live(job) == 1
    due = schedules.due(job)
    assert len(set(due)) == len(due)
    last, step = found.last_occurrence.timestamp(), found.interval.total_seconds() if found.interval else 0
    ran = [at for at in sorted(due) if at <= last]
    counters = found.counters
    show(f"{job}: {counters}")
    assert {later - sooner for sooner, later in pairwise(ran)} <= RHYTHM[job]
    assert counters.runs == len(ran)
    assert counters.decided == len(occurrences_between(ran[0], last, step))
    assert (counters.missed, counters.coalesced, counters.failures) == (0, 0, 0)
    runs = await schedules.runs(job)
    skipped = [run for run in runs if run.status is RunStatus.SKIPPED]
    growing = found.skipping.count if found.skipping else 0
    assert sum(run.extra["occurrences"] for run in skipped) + growing == counters.overlap_skips
    assert len(skipped) <= counters.runs + 1
    assert {run.status for run in runs} <= {RunStatus.SUCCEEDED, RunStatus.SKIPPED}
    assert {run.starts for run in runs if run.status is RunStatus.SUCCEEDED} == {1}
    return found


async def test_b19_a_run_longer_than_its_interval_is_never_beside_another(schedules: ScheduleRig):
    await _three(schedules, SHORT)
    most = await _most_messages(schedules, 10)
    await schedules.started("j", 4)
    found = await _check(schedules, "j")
    assert found.counters.overlap_skips >= 4
    assert most <= 6


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_b19_runs_of_many_intervals_are_never_beside_each_other(schedules: ScheduleRig):
    """On three hosts for two minutes."""
    await _three(schedules, LONG)
    most = await _most_messages(schedules, 120)
    show(f"{most} messages in the stream at most")
    assert most <= 3 * len(LONG)
    for job in LONG:
        found = await _check(schedules, job)
        assert found.counters.runs >= 120 // max(RHYTHM[job])
