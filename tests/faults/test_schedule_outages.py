"""Schedules while the broker stops, crashes and comes back; the hosts stay, and none is asked to do anything.

Each occurrence of the second-long intervals must come to exactly one end, whatever was asked for those that fell
due meanwhile: as many are counted as seconds have passed, and no run has two occurrences' work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig, eventually
from tests.faults.schedule_rig import ScheduleRig, every, occurrences_between
from tests.support.servers import RealServer

AWAY = 4.0
POLICIES = {
    f"{coalesce}_{overlap}": {
        "triggers": [every("1s", coalesce=coalesce, overlap=overlap)],
        "at_once": 2,
    }
    for coalesce in ("latest", "all")
    for overlap in ("skip", "queue")
}


@pytest.fixture
async def schedules(own_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScheduleRig]:
    made = ScheduleRig(own_rig, monkeypatch)
    yield made
    await made.close()


async def _outage(server: RealServer, *, crash: bool, away: float = AWAY) -> float:
    await asyncio.to_thread(server.kill9 if crash else server.sigterm)
    await asyncio.sleep(away)
    await asyncio.to_thread(server.start)
    return time.time()


@pytest.mark.parametrize("crash", [False, True], ids=["sigterm", "kill9"])
async def test_an_outage_of_the_broker_has_one_catch_up_as_asked(
    schedules: ScheduleRig, own_server: RealServer, *, crash: bool
):
    await schedules.host(POLICIES)
    for job in POLICIES:
        await schedules.started(job, 2)
    back = await _outage(own_server, crash=crash)
    for job in POLICIES:
        found = await schedules.settled(job, "every", back + 4, within=30)
        due = schedules.due(job)
        assert len(set(due)) == len(due), job
        counters = found.counters
        assert found.last_occurrence is not None
        last = found.last_occurrence.timestamp()
        assert counters.decided == round(last - due[0]) + 1, job
        assert counters.runs == len([at for at in due if at <= last]), job
        assert counters.missed == 0
        gaps = [later - earlier for earlier, later in pairwise(due) if later - earlier > 1]
        if job == "all_queue":
            assert due == occurrences_between(due[0], due[-1])
        elif job.startswith("latest"):
            assert len(gaps) == 1, (job, due)
            assert counters.coalesced >= gaps[0] - 1
            assert counters.overlap_skips == counters.decided - counters.runs - counters.coalesced
        else:
            # Each of them was to run, but one at a time: the first did.
            assert counters.overlap_skips >= AWAY - 2
            assert counters.coalesced == 0


@pytest.mark.parametrize("crash", [False, True], ids=["sigterm", "kill9"])
async def test_hosts_and_broker_away_together(schedules: ScheduleRig, own_server: RealServer, *, crash: bool):
    jobs = {"j": {"triggers": [every("1s", misfire_grace="2s")]}, "k": {"triggers": [every("1s")]}}
    host = await schedules.host(jobs)
    await schedules.started("k", 2)
    await asyncio.sleep((1.5 - time.time()) % 1)  # between two runs: one that is going is another test's matter
    host.kill9()
    back = await _outage(own_server, crash=crash)
    await schedules.host(jobs)
    for job in jobs:
        found = await schedules.settled(job, "every", back + 4, within=30)
        due = schedules.due(job)
        assert len(set(due)) == len(due)
        assert found.last_occurrence is not None
        assert found.counters.decided == round(found.last_occurrence.timestamp() - due[0]) + 1
        missed = [run for run in await schedules.runs(job) if run.status is RunStatus.MISSED]
        if job == "j":
            assert sum(run.extra["occurrences"] for run in missed) == found.counters.missed >= 1
        else:
            assert found.counters.missed == 0
            assert not missed


async def test_a_crash_loses_no_tick_of_a_long_interval(schedules: ScheduleRig, own_server: RealServer):
    """The broker forgets what fell due while it was away; no tick of 20 s tells, so the host looks."""
    await schedules.host({"j": {"triggers": [every("20s")]}})
    began = (await schedules.record("j", "every")).next_run_at
    assert began is not None
    due = began.timestamp()
    await asyncio.sleep(max(0.0, due - 2 - time.time()))
    await _outage(own_server, crash=True, away=5)
    starts = await schedules.started("j", 1, within=15)
    assert starts[0].due == due
    assert starts[0].now - due < 12


async def test_a_run_over_an_outage_is_not_doubled(schedules: ScheduleRig, own_server: RealServer):
    await schedules.host({"j": {"triggers": [every("1s")], "takes": 6, "at_once": 2}})
    await schedules.started("j", 1)
    back = await _outage(own_server, crash=True, away=3)
    await schedules.started("j", 2, within=20)
    assert schedules.rig.journal.most_live("j") == 1
    await eventually(lambda: time.time() > back + 2, 5)
    due = schedules.due("j")
    assert len(set(due)) == len(due)
