"""What the page about schedules promises of an outage under each policy, counted to the instant.

All schedules are of one second, and their runs take next to nothing. So each instant of the outage has one place
where it must be, and what comes before and after has no hole.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from itertools import pairwise

from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.schedule_record import ScheduleRecord
from tests.faults.field import show
from tests.faults.rig import eventually
from tests.faults.schedule_rig import Jobs, ScheduleRig, cron, every, occurrences_between

INSTANCES = 3
GRACE = 20.0
POLICIES: Jobs = {
    f"{coalesce}_{overlap}": {
        "triggers": [every("1s", coalesce=coalesce, overlap=overlap, **more)],
        "at_once": 4,
    }
    for coalesce in ("latest", "earliest", "all")
    for overlap, more in {"skip": {}, "queue": {}, "allow": {"max_instances": INSTANCES}}.items()
}
WITH_CRON: Jobs = {**POLICIES, "cron": {"triggers": [cron("* * * * * *")]}}
WITH_GRACE: Jobs = {**WITH_CRON, "grace": {"triggers": [every("1s", misfire_grace=f"{GRACE:.0f}s")]}}
RARE: Jobs = {"rare": {"triggers": [every("30s"), cron("*/30 * * * * *")], "at_once": 2}}
"""Of these a crashed broker forgets ticks and repeats others, and an interval gets another rhythm."""

LATE_STARTS = {  # how many of the outage run before the rhythm goes on; `None`: all
    **dict.fromkeys(("latest_skip", "latest_queue", "latest_allow", "cron", "grace"), 0),
    **dict.fromkeys(("earliest_skip", "earliest_queue", "earliest_allow", "all_skip"), 1),
    "all_allow": INSTANCES,
    "all_queue": None,
}


@dataclass(frozen=True)
class Account:
    """Where each instant of a schedule is, in epoch seconds, by the journal and by the records."""

    ran: list[float]
    skipped: set[float]
    missed: set[float]
    last: float

    @property
    def coalesced(self) -> set[float]:
        """What is in none of the others."""
        return set(occurrences_between(self.ran[0], self.last)) - set(self.ran) - self.skipped - self.missed


async def quiet(schedules: ScheduleRig, jobs: Jobs) -> float:
    """Return in the middle of a second in which no run is going, and none is waiting for its end to be saved."""

    await schedules.ports()

    async def none_live() -> bool:
        if not 0.2 < time.time() % 1 < 0.8:
            return False
        found = await asyncio.gather(*(schedules.record(job, _name(job)) for job in jobs))
        return not any(each.live for each in found) and 0.2 < time.time() % 1 < 0.9

    await eventually(none_live, 60, "a moment without a run")
    return time.time()


async def check_outage(schedules: ScheduleRig, job: str, down: float, back: float) -> None:
    """Every instant from the first run to some seconds after `back` is where the job's policy has it.

    `down` and `back` are epoch seconds: since when nobody could decide anything, and when somebody can again. A busy
    machine may take more than a second for a run before and after; that must be counted, and be rare.
    """
    found = await schedules.settled(job, _name(job), back + 5, within=60)
    account = await _account(schedules, job, found)
    counters, ran = found.counters, account.ran
    assert counters.runs == len(ran), job
    assert counters.overlap_skips == len(account.skipped), job
    assert counters.missed == len(account.missed), job
    assert counters.coalesced == len(account.coalesced), job
    assert counters.decided == round(account.last - ran[0]) + 1, f"{job}: an occurrence has no end, or two"
    late = LATE_STARTS[job]
    if late is None:
        assert counters.runs == counters.decided, job
        return
    # The last run before, the late starts, then nothing until the first that is in time again.
    place = len([at for at in ran if at <= down]) - 1
    sooner, later = ran[place + late], ran[place + late + 1]
    show(f"{job}: {counters}, none in {later - sooner - 1:.0f} s of {account.last - ran[0] + 1:.0f}")
    assert sooner == ran[place] + late, job
    assert back - 1 <= later <= back + 30, job
    gone = set(occurrences_between(sooner + 1, later - 1))
    assert counters.decided - counters.runs - len(gone) <= max(3, counters.decided / 10), (
        "the machine is too busy to tell"
    )
    busy = {at for at in gone if at <= down or at > back}  # behind a run that took its time
    if job.startswith("all"):
        assert gone <= account.skipped, job
        assert (counters.coalesced, counters.missed) == (0, 0), job
    elif job == "grace":
        missed = {at for at in gone if at < later - GRACE - 1}
        assert missed <= account.missed <= {*missed, later - GRACE - 1, later - GRACE}
        assert gone - account.missed <= account.coalesced | busy
    else:
        assert gone <= account.coalesced | busy, job
        assert counters.missed == 0, job


async def check_rare(schedules: ScheduleRig, down: float, back: float) -> None:
    """Each occurrence is run or counted, none twice; one that fell due in the outage ran when it was over."""
    for name in ("every", "cron"):
        later = await eventually(
            lambda name=name: [at for at in schedules.due("rare", name) if at > back + 5], 90, name
        )
        record = await schedules.settled("rare", name, later[0], within=30)
        ran, counters = schedules.due("rare", name), record.counters
        gaps = [later - sooner for sooner, later in pairwise(ran)]
        show(f"rare/{name}: {counters}, {gaps} s between runs")
        assert len(set(ran)) == len(ran) == counters.runs
        assert counters.missed == counters.overlap_skips == 0
        expected = (ran[-1] - ran[0]) / 30 + 1
        assert counters.decided == expected if name == "cron" else abs(counters.decided - expected) < 1
        assert min(gaps) >= 15
        assert any(down < at <= back + 5 for at in ran), "no catch-up"


async def _account(schedules: ScheduleRig, job: str, found: ScheduleRecord) -> Account:
    assert found.last_occurrence is not None
    last = found.last_occurrence.timestamp()
    started = schedules.due(job)
    assert len(set(started)) == len(started), f"{job}: an occurrence ran twice"
    runs = await schedules.runs(job)
    growing = found.skipping
    # The stretch that was growing when the schedule was read may have a record by now.
    stretches = [run for run in runs if run.status is RunStatus.SKIPPED]
    skipped = [
        each for run in stretches if growing is None or run.scheduled_for != growing.first for each in _instants(run)
    ]
    if growing is not None:
        skipped += occurrences_between(growing.first.timestamp(), growing.last.timestamp())
    missed_in = [run for run in runs if run.status is RunStatus.MISSED]
    assert len(missed_in) == (1 if job == "grace" and found.counters.missed else 0), job
    missed = [each for run in missed_in for each in _instants(run)]
    assert len(skipped) + len(missed) == len({*skipped, *missed}), f"{job}: one instant in two records"
    return Account([at for at in sorted(started) if at <= last], set(skipped), set(missed), last)


def _instants(run: RunRecord) -> list[float]:
    """Which occurrences the record of a stretch stands for."""
    assert run.scheduled_for is not None
    found = occurrences_between(run.scheduled_for.timestamp(), run.extra["last_occurrence"].timestamp())
    assert run.extra["occurrences"] == len(found)
    return found


def _name(job: str) -> str:
    return "cron" if job == "cron" else "every"
