"""Hosts come and go, each time with other code: what stays in it keeps its rhythm, what goes fires no more."""

from __future__ import annotations

import asyncio
import time

import pytest

from jetjobs._core.schedule_record import ScheduleState
from tests.faults.field import show
from tests.faults.rig import HostProcess, eventually
from tests.faults.schedule_rig import Jobs, ScheduleRig, cron, every, occurrences_between

pytestmark = pytest.mark.faults


async def _lives(schedules: ScheduleRig, interval: str, life: float, times: int) -> list[int]:
    """Hosts one after the other, each gone after so many seconds, until so many runs; the message's sequences."""
    found: list[int] = []
    hourly: set[int] = set()
    while len(schedules.starts("j")) < times:
        host = await schedules.host({"j": {"triggers": [every(interval)]}, "rare": {"triggers": [every("1h")]}})
        found.append(await schedules.sequence("j", "every"))
        hourly.add(await schedules.sequence("rare", "every"))
        await asyncio.sleep(life)
        await schedules.stop(host)
        found.append(await schedules.sequence("j", "every"))
    assert len(hourly) == 1
    return found


async def test_b01_restarts_do_not_move_an_interval(schedules: ScheduleRig):
    began = time.time()
    sequences = await _lives(schedules, "4s", 1.5, 3)
    assert len(set(sequences)) == 1
    assert len(sequences) >= 4
    due = schedules.due("j")
    assert 3 <= due[0] - began <= 4 + 8
    assert all((at - due[0]) % 4 == 0 for at in due)
    assert len(set(due)) == len(due)


@pytest.mark.soak
async def test_b01_an_interval_longer_than_any_hosts_life_keeps_its_rhythm(schedules: ScheduleRig):
    """It fires 20, 40 and 60 s after the first start, though no host lives longer than 8 s."""
    began = time.time()
    sequences = await _lives(schedules, "20s", 8, 3)
    assert len(set(sequences)) == 1
    assert len(sequences) >= 12
    starts = schedules.starts("j")
    due = [line.due for line in starts]
    show(f"fired {[f'{at - began:.1f}' for at in due]} s after the first start")
    assert due == occurrences_between(due[0], due[0] + 40, 20)
    assert abs(due[0] - (began + 20)) <= 2
    assert all(line.now - line.due < 8 for line in starts)


@pytest.mark.parametrize("version", [None, "1.0"], ids=["no-version", "one-version"])
async def test_b03_what_code_no_longer_has_fires_no_more(schedules: ScheduleRig, version: str | None):
    """A trigger, then the whole job: its message is gone when the host has started, the kept one is as it was."""

    async def next_host(jobs: Jobs) -> HostProcess:
        return await schedules.host(jobs, version=version)

    host = await next_host({"j": {"triggers": [every("2s"), cron("*/2 * * * * *")], "at_once": 2}})
    kept = await schedules.sequence("j", "every")
    await eventually(lambda: schedules.starts("j", "cron"))
    await schedules.stop(host)
    host = await next_host({"j": {"triggers": [every("2s")]}})
    assert await schedules.message("j", "cron") is None
    gone = await schedules.record("j", "cron")
    assert gone.state is ScheduleState.DELETED
    assert await schedules.sequence("j", "every") == kept
    await schedules.started("j", len(schedules.starts("j")) + 2)
    assert all(due <= gone.state_at.timestamp() for due in schedules.due("j", "cron"))
    await schedules.stop(host)
    await next_host({"other": {"triggers": [every("1s")]}})
    assert await schedules.message("j", "every") is None
    ended = await schedules.record("j", "every")
    assert ended.state is ScheduleState.DELETED
    await schedules.started("other", 4)
    assert all(due <= ended.state_at.timestamp() for due in schedules.due("j"))
