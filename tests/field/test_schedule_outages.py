"""Schedules while the broker stops, crashes and comes back; the hosts stay, and none is asked to do anything.

Each occurrence of the second-long intervals must come to exactly one end, whatever was asked for those that fell
due meanwhile: as many are counted as seconds have passed, and no run has two occurrences' work.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.outage_counts import RARE, WITH_CRON, WITH_GRACE, check_outage, check_rare, quiet
from tests.faults.rig import eventually
from tests.faults.schedule_rig import Jobs, ScheduleRig, every
from tests.support.servers import RealServer

pytestmark = pytest.mark.faults

AWAY = 4.0
SAVED_AFTER = 150.0


@pytest.fixture
def schedules(own_schedules: ScheduleRig) -> ScheduleRig:
    """On a server of the test's own."""
    return own_schedules


async def _outage(server: RealServer, *, crash: bool, away: float = AWAY) -> float:
    await asyncio.to_thread(server.kill9 if crash else server.sigterm)
    await asyncio.sleep(away)
    await asyncio.to_thread(server.start)
    return time.time()


@dataclass(frozen=True)
class Outage:
    """What is away and for how long, how it went, and how old the schedules are then."""

    who: Literal["broker", "hosts"]
    crash: bool
    away: float
    life: float = 2.0


SHORT = {
    "broker_stopped": Outage("broker", crash=False, away=AWAY),
    "broker_killed": Outage("broker", crash=True, away=AWAY),
    "hosts_killed": Outage("hosts", crash=True, away=AWAY),
}
LONG = {  # the broker saves the state of schedules two to two and a half minutes after they were made
    "broker_stopped": Outage("broker", crash=False, away=60, life=200),
    "broker_killed_before_it_saved_schedules": Outage("broker", crash=True, away=60, life=40),
    "broker_killed_after_it_saved_schedules": Outage("broker", crash=True, away=60, life=200),
    "broker_killed_for_150_s": Outage("broker", crash=True, away=150, life=40),
    "broker_killed_for_150_s_after_it_saved_schedules": Outage("broker", crash=True, away=150, life=200),
    "hosts_stopped": Outage("hosts", crash=False, away=60, life=40),
    "hosts_killed": Outage("hosts", crash=True, away=60, life=200),
}


@pytest.mark.parametrize("name", SHORT)
async def test_b17_an_outage_has_the_catch_up_that_was_asked_for(
    schedules: ScheduleRig, own_server: RealServer, name: str
):
    await _counted(schedules, own_server, SHORT[name], WITH_CRON)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LONG)
async def test_b17_a_long_outage_has_the_catch_up_that_was_asked_for(
    schedules: ScheduleRig, own_server: RealServer, name: str
):
    down, back = await _counted(schedules, own_server, LONG[name], WITH_GRACE, beside=RARE)
    await check_rare(schedules, down, back)


NONE: Jobs = {}


async def _counted(
    schedules: ScheduleRig, server: RealServer, outage: Outage, jobs: Jobs, *, beside: Jobs = NONE
) -> tuple[float, float]:
    """From when to when nobody could decide anything, once what each of the jobs came to is counted."""
    everything = {**jobs, **beside}
    hosts = [await schedules.host(everything) for _ in range(2)]
    began = time.time()
    for job in jobs:
        await schedules.started(job, 2)
    await asyncio.sleep(max(0.0, began + outage.life - time.time()))
    down = await quiet(schedules, jobs)  # a run that is going is another test's matter
    if outage.who == "broker":
        saved = any(server.store.rglob("sched.db"))
        assert saved == (outage.life > SAVED_AFTER)
        back = await _outage(server, crash=outage.crash, away=outage.away)
    else:
        for host in hosts:
            if outage.crash:
                host.kill9()
            else:
                await schedules.stop(host)
        await asyncio.sleep(max(0.0, down + outage.away - time.time()))
        back = time.time()
        for _ in hosts:
            await schedules.host(everything)
    for job in jobs:
        await check_outage(schedules, job, down, back)
    return down, back


@pytest.mark.parametrize("crash", [False, True], ids=["sigterm", "kill9"])
async def test_b17_hosts_and_broker_away_together(schedules: ScheduleRig, own_server: RealServer, *, crash: bool):
    jobs = {"j": {"triggers": [every("1s", misfire_grace="2s")]}, "k": {"triggers": [every("1s")]}}
    host = await schedules.host(jobs)
    for job in jobs:
        await schedules.started(job, 2)
    await asyncio.sleep((1.5 - time.time()) % 1)  # between two runs: one that is going is another test's matter
    host.kill9()
    back = await _outage(own_server, crash=crash)
    await schedules.host(jobs)
    for job in jobs:
        found = await schedules.settled(job, "every", back + 4)
        due = schedules.due(job)
        assert len(set(due)) == len(due)
        assert found.last_occurrence is not None
        assert found.counters.decided == round(found.last_occurrence.timestamp() - min(due)) + 1
        missed = [run for run in await schedules.runs(job) if run.status is RunStatus.MISSED]
        if job == "j":
            assert sum(run.extra["occurrences"] for run in missed) == found.counters.missed >= 1
        else:
            assert found.counters.missed == 0
            assert not missed


@pytest.mark.long
async def test_b17_a_crash_loses_no_tick_of_a_long_interval(schedules: ScheduleRig, own_server: RealServer):
    """The broker forgets what fell due while it was away; no tick of 20 s tells, so the host looks."""
    await schedules.host({"j": {"triggers": [every("20s")]}})
    began = (await schedules.record("j", "every")).next_run_at
    assert began is not None
    due = began.timestamp()
    await asyncio.sleep(max(0.0, due - 2 - time.time()))
    await _outage(own_server, crash=True, away=5)
    starts = await schedules.started("j", 1)
    assert starts[0].due == due
    assert starts[0].now - due < 18, "before the next tick"


async def test_b17_a_run_over_an_outage_is_not_doubled(schedules: ScheduleRig, own_server: RealServer):
    await schedules.host({"j": {"triggers": [every("1s")], "takes": 6, "at_once": 2}})
    await schedules.started("j", 1)
    back = await _outage(own_server, crash=True, away=3)
    await schedules.started("j", 2)
    assert schedules.rig.journal.most_live("j") == 1
    await eventually(lambda: time.time() > back + 2)
    due = schedules.due("j")
    assert len(set(due)) == len(due)
