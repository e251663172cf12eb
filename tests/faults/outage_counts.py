"""What the page about schedules promises of an outage under each policy, counted to the instant.

All schedules are of one second, and their runs take next to nothing. So each instant of the outage has one place
where it must be, and what comes before and after has no hole.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.schedule_record import ScheduleRecord
from tests.faults.field import show
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

LATE_STARTS = {  # how many of the outage run before the rhythm goes on; `None`: all
    **dict.fromkeys(("latest_skip", "latest_queue", "latest_allow", "cron", "grace"), 0),
    **dict.fromkeys(("earliest_skip", "earliest_queue", "earliest_allow", "all_skip"), 1),
    "all_allow": INSTANCES,
    "all_queue": None,
}


async def check_outage(schedules: ScheduleRig, job: str, down: float, back: float) -> None:
    """Every instant from the first run to some seconds after `back` is where the job's policy has it.

    `down` and `back` are epoch seconds: since when nobody could decide anything, and when somebody can again.
    """
    name = "cron" if job == "cron" else "every"
    found = await schedules.settled(job, name, back + 5, within=60)
    assert found.last_occurrence is not None
    last = found.last_occurrence.timestamp()
    started = schedules.due(job)
    assert len(set(started)) == len(started), f"{job}: an occurrence ran twice"
    ran = [at for at in sorted(started) if at <= last]
    counters = found.counters
    assert counters.runs == len(ran), job
    assert counters.decided == len(occurrences_between(ran[0], last)), f"{job}: an occurrence has no end, or two"
    gaps = [(sooner, later) for sooner, later in pairwise(ran) if later - sooner > 1]
    show(f"{job}: {counters}, without a run {gaps}")
    late = LATE_STARTS[job]
    if late is None:
        assert gaps == [], job
        assert counters.runs == counters.decided
        return
    ((sooner, later),) = gaps
    # The last run before, the late starts, then nothing until the first that is in time again.
    assert sooner == [at for at in ran if at <= down][-1] + late, job
    assert back - 1 <= later <= back + 4, job
    gone = round(later - sooner) - 1
    if job.startswith("all"):
        assert (counters.overlap_skips, counters.coalesced, counters.missed) == (gone, 0, 0), job
    elif job == "grace":
        _check_missed(found, await schedules.runs(job), (sooner, later))
    else:
        assert (counters.coalesced, counters.overlap_skips, counters.missed) == (gone, 0, 0), job


def _check_missed(found: ScheduleRecord, runs: list[RunRecord], gap: tuple[float, float]) -> None:
    """One record says which were too late, and those within their grace came to the one run."""
    sooner, later = gap
    missed = [run for run in runs if run.status is RunStatus.MISSED]
    assert len(missed) == 1
    first, last = missed[0].scheduled_for, missed[0].extra["last_occurrence"]
    assert first is not None
    assert first.timestamp() == sooner + 1
    assert later - last.timestamp() in {GRACE, GRACE + 1}
    assert missed[0].extra["occurrences"] == found.counters.missed == round((last - first) / timedelta(seconds=1)) + 1
    assert found.counters.coalesced == round(later - last.timestamp()) - 1
    assert found.counters.overlap_skips == 0
