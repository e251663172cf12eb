"""Schedules while hosts come, go, die and are redeployed; the broker stays."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest

from jetjobs._core.models import RunStatus
from jetjobs._core.schedule_record import ScheduleState
from jetjobs._core.schedules import pause
from jetjobs.errors import WrongRevision
from tests.faults.rig import eventually
from tests.faults.schedule_rig import ScheduleRig, cron, every, occurrences_between

SLOW_UPKEEP = {"UPKEEP_EVERY": "10m"}  # so that ticks decide, and not the reconciler


async def test_intervals_and_cron_lines_fire_on_time(schedules: ScheduleRig):
    await schedules.host({"j": {"triggers": [every("2s"), cron("*/2 * * * * *")], "at_once": 2}}, **SLOW_UPKEEP)
    await schedules.started("j", 6)
    for name in ("every", "cron"):
        starts = schedules.starts("j", name)
        due = [line.due for line in starts]
        assert due == occurrences_between(due[0], due[-1], 2)
        assert all(0 <= line.now - line.due < 1.9 for line in starts), "before the next one"
    assert all(due % 2 == 0 for due in schedules.due("j", "cron"))


async def test_hosts_that_start_together_write_each_schedule_once(schedules: ScheduleRig):
    jobs = {f"j{n}": {"triggers": [every("1h"), cron("0 3 * * *")]} for n in range(5)}
    hosts = [schedules.spawn(jobs) for _ in range(3)]
    for host in hosts:
        await host.ready()
    published = [entry["schedule"] for host in hosts for entry in host.events("schedule_published")]
    written = [entry["schedule"] for host in hosts for entry in host.events("schedule_written")]
    expected = sorted(f"t.j{n}/{name}" for n in range(5) for name in ("every", "cron"))
    assert sorted(published) == sorted(written) == expected
    sequences = [await schedules.sequence(job, name) for job in jobs for name in ("every", "cron")]
    for host in hosts:
        await schedules.stop(host)
    again = [schedules.spawn(jobs) for _ in range(2)]
    for host in again:
        await host.ready()
        assert not host.events("schedule_published")
    assert [await schedules.sequence(job, name) for job in jobs for name in ("every", "cron")] == sequences


async def test_an_edited_list_moves_what_was_edited_and_nothing_else(schedules: ScheduleRig):
    host = await schedules.host({"j": {"triggers": [every("1h", name="a"), every("1s", name="b"), cron("0 4 * * *")]}})
    await schedules.started("j", 2)
    before = {name: await schedules.sequence("j", name) for name in ("a", "b", "cron")}
    await schedules.stop(host)
    runs = (await schedules.record("j", "b")).counters.runs
    await schedules.host(
        {"j": {"triggers": [cron("0 4 * * *"), every("2s", name="b"), every("1h", name="a"), every("3h", name="c")]}}
    )
    after = {name: await schedules.sequence("j", name) for name in ("a", "b", "cron", "c")}
    assert after["a"] == before["a"]
    assert after["cron"] == before["cron"]
    assert after["b"] > before["b"]
    found = await schedules.record("j", "b")
    assert (found.line, found.revision) == ("2s", 2)
    assert found.counters.runs >= runs >= 2
    assert (await schedules.record("j", "cron")).revision == 1


async def test_an_older_release_beside_a_newer_one_changes_nothing(schedules: ScheduleRig):
    old = {"j": {"triggers": [every("1h"), every("3h", name="gone")]}}
    new = {"j": {"triggers": [every("2h")]}}
    first = await schedules.host(old, version="1.0")
    before = await schedules.sequence("j", "every")
    await schedules.host(new, version="1.1")
    assert (await schedules.record("j", "every")).line == "2h"
    assert await schedules.message("j", "gone") is None
    after = await schedules.sequence("j", "every")
    assert after > before
    await schedules.stop(first)
    again = await schedules.host(old, version="1.0")
    assert again.events("schedule_declared_differently")
    assert await schedules.sequence("j", "every") == after
    assert await schedules.message("j", "gone") is None


async def test_without_releases_a_rollout_is_complete_when_the_last_old_host_has_gone(schedules: ScheduleRig):
    old = await schedules.host({"j": {"triggers": [every("1h"), every("3h", name="gone")]}})
    new = await schedules.host({"j": {"triggers": [every("2h")]}})
    assert new.events("schedule_declared_differently")
    assert (await schedules.record("j", "every")).line == "1h"
    assert await schedules.message("j", "gone") is not None
    await schedules.stop(old)

    async def complete() -> bool:
        line = (await schedules.record("j", "every")).line
        return line == "2h" and await schedules.message("j", "gone") is None

    await eventually(complete, what="the new declaration")


async def test_queued_occurrences_run_one_after_the_other(schedules: ScheduleRig):
    jobs = {"j": {"triggers": [every("1s", overlap="queue")], "takes": 1.3, "at_once": 3}}
    await schedules.host(jobs, **SLOW_UPKEEP)
    await schedules.host(jobs, **SLOW_UPKEEP)
    await schedules.started("j", 5)
    due = schedules.due("j")
    assert due == occurrences_between(due[0], due[-1])
    assert schedules.rig.journal.most_live("j") == 1


@pytest.mark.parametrize("policy", ["latest", "earliest", "all"])
async def test_hosts_that_were_away_catch_up_as_asked(schedules: ScheduleRig, policy: str):
    jobs = {"j": {"triggers": [every("1s", coalesce=policy, overlap="queue")], "at_once": 3}}
    host = await schedules.host(jobs)
    await schedules.started("j", 2)
    await schedules.stop(host)
    await asyncio.sleep(5)
    back = time.time()
    await schedules.host(jobs)
    seen = len(schedules.starts("j"))
    await schedules.started("j", seen + 4)
    found = await schedules.settled("j", "every", back + 2)
    due = schedules.due("j")
    assert len(set(due)) == len(due)
    if policy == "all":
        assert due == occurrences_between(due[0], due[-1])
        assert found.counters.coalesced == 0
    else:
        gaps = [later - earlier for earlier, later in pairwise(due) if later - earlier > 1]
        assert len(gaps) == 1
        assert found.counters.coalesced >= gaps[0] - 1 >= 3
    assert found.counters.runs + found.counters.coalesced == found.counters.decided
    assert found.last_occurrence is not None
    assert found.counters.decided == round(found.last_occurrence.timestamp() - due[0]) + 1


async def test_what_is_past_its_grace_is_missed_in_one_record(schedules: ScheduleRig):
    jobs = {"j": {"triggers": [every("1s", misfire_grace="1500ms")]}}
    host = await schedules.host(jobs)
    await schedules.started("j", 2)
    await schedules.stop(host)
    await asyncio.sleep(5)
    seen = len(schedules.starts("j"))
    await schedules.host(jobs)
    await schedules.started("j", seen + 2)
    found = await schedules.record("j", "every")
    missed = [run for run in await schedules.runs("j") if run.status is RunStatus.MISSED]
    assert len(missed) == 1
    assert missed[0].extra["occurrences"] == found.counters.missed >= 3
    assert missed[0].skip_reason is not None
    assert "misfire grace" in missed[0].skip_reason


async def test_a_paused_schedule_stays_paused(schedules: ScheduleRig):
    jobs = {"j": {"triggers": [every("1s")]}}
    host = await schedules.host(jobs)
    await schedules.started("j", 2)
    store = (await schedules.ports()).schedules
    while True:
        stored = await store.get((await schedules.record("j", "every")).schedule_id)
        assert stored is not None
        try:
            await store.update(pause(stored.schedule, (await schedules.ports()).broker.now()), stored.revision)
        except WrongRevision:
            continue
        break

    async def silent() -> bool:
        return await schedules.message("j", "every") is None

    await eventually(silent, what="the message's removal")
    count = len(schedules.starts("j"))
    await schedules.stop(host)
    await schedules.host({"j": {"triggers": [every("2s")]}})
    await asyncio.sleep(2.5)
    assert await schedules.message("j", "every") is None
    found = await schedules.record("j", "every")
    assert (found.state, found.line) == (ScheduleState.PAUSED, "2s")
    assert len(schedules.starts("j")) <= count + 1


@pytest.mark.parametrize("attempts", [1, 2])
async def test_a_host_killed_in_a_run_leaves_nothing_open(schedules: ScheduleRig, attempts: int):
    jobs = {"j": {"triggers": [every("2s")], "takes": 1, "attempts": attempts}}
    host = await schedules.host(jobs)
    killed = (await schedules.started("j", 1))[0].run
    host.kill9()
    await schedules.host(jobs)
    last = (await schedules.started("j", 4 + attempts))[-1]
    found = await schedules.settled("j", "every", last.due)
    runs = {run.run_id: run for run in await schedules.runs("j")}
    if attempts == 1:
        assert (runs[killed].status, found.counters.failures) == (RunStatus.FAILED, 1)
        assert found.last_error is not None
        assert "no heartbeat since" in found.last_error
    else:
        assert (runs[killed].status, runs[killed].starts, found.counters.failures) == (RunStatus.SUCCEEDED, 2, 0)
    others = [run for run in runs.values() if run.run_id not in {killed, last.run}]
    assert all(run.status in {RunStatus.SUCCEEDED, RunStatus.SKIPPED} for run in others)
    by_run = {line.run for line in schedules.starts("j")}
    assert found.counters.runs == len(by_run)


async def test_a_host_without_schedules_writes_none_and_still_serves_ticks(schedules: ScheduleRig):
    jobs = {"j": {"triggers": [every("1s")]}}
    host = await schedules.host(jobs, SCHEDULES="false")
    assert not host.events("schedule_published")
    assert await (await schedules.ports()).schedules.all() == []
    other = await schedules.host({**jobs, "unrelated": {}})
    await schedules.started("j", 1)
    await schedules.stop(other)
    count = len(schedules.starts("j"))
    await schedules.started("j", count + 2)


async def test_a_job_switched_off_here_keeps_its_schedule(schedules: ScheduleRig):
    jobs = {"j": {"triggers": [every("1h")]}, "k": {}}
    host = await schedules.host(jobs)
    sequence = await schedules.sequence("j", "every")
    await schedules.stop(host)
    await schedules.host(jobs, DISABLE="t.j")
    assert await schedules.sequence("j", "every") == sequence
    assert (await schedules.record("j", "every")).state is ScheduleState.ACTIVE
