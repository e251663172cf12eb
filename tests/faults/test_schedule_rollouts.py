"""Three hosts started together, restarted, and redeployed one by one: only what was edited moves."""

from __future__ import annotations

import asyncio
import time

import pytest

from jetjobs._core.schedule_record import ScheduleState
from tests.faults.field import show
from tests.faults.rig import HostProcess
from tests.faults.schedule_rig import Jobs, ScheduleRig, cron, every, occurrences_between

OLD: Jobs = {
    "j": {"triggers": [every("1h", name="a"), every("2h", name="b"), cron("0 3 * * *"), every("5h", name="gone")]},
    "k": {"triggers": [every("1h"), cron("0 5 * * *", timezone="Europe/Paris")]},
}
NEW: Jobs = {  # in another order; the cron lines changed, one in its zone alone; one new, one removed
    "k": {"triggers": [cron("0 5 * * *", timezone="Europe/Lisbon"), every("1h")]},
    "j": {"triggers": [every("3h", name="new"), cron("0 4 * * *"), every("2h", name="b"), every("1h", name="a")]},
}
KEPT = [("j", "a"), ("j", "b"), ("k", "every")]
CHANGED = [("j", "cron"), ("k", "cron")]
NAMES = [*KEPT, *CHANGED, ("j", "gone"), ("j", "new")]


async def _sequences(schedules: ScheduleRig) -> dict[tuple[str, str], int | None]:
    found = {each: await schedules.message(*each) for each in NAMES}
    return {each: message.sequence if message is not None else None for each, message in found.items()}


async def _replace(schedules: ScheduleRig, hosts: list[HostProcess], place: int, jobs: Jobs, version: str) -> None:
    await schedules.stop(hosts[place])
    hosts[place] = await schedules.host(jobs, version=version)


async def test_a_rollout_over_three_hosts_moves_what_was_edited_and_once(schedules: ScheduleRig):
    hosts = [schedules.spawn(OLD, version="1.0") for _ in range(3)]
    for host in hosts:
        await host.ready()
    first = await _sequences(schedules)
    assert first.pop(("j", "new")) is None
    assert None not in first.values()
    for place in range(3):
        await _replace(schedules, hosts, place, OLD, "1.0")
        assert await _sequences(schedules) == {**first, ("j", "new"): None}

    await _replace(schedules, hosts, 0, NEW, "1.1")
    rolled = await _sequences(schedules)
    assert {each: rolled[each] for each in KEPT} == {each: first[each] for each in KEPT}
    assert all((rolled[each] or 0) > (first[each] or 0) for each in CHANGED)
    assert rolled["j", "gone"] is None
    assert rolled["j", "new"] is not None
    assert (await schedules.record("j", "gone")).state is ScheduleState.DELETED

    hosts[1].kill9()  # an old one that crashes and comes back, while the rollout is under way
    hosts[1] = await schedules.host(OLD, version="1.0")
    assert hosts[1].events("schedule_declared_differently")
    assert await _sequences(schedules) == rolled
    for place in (1, 2):
        await _replace(schedules, hosts, place, NEW, "1.1")
        assert await _sequences(schedules) == rolled
    assert not hosts[2].events("schedule_declared_differently")


async def _lives(schedules: ScheduleRig, interval: str, life: float, times: int) -> list[int]:
    """Hosts one after the other, each gone after so many seconds, until so many runs; the message's sequences."""
    found: list[int] = []
    while len(schedules.starts("j")) < times:
        host = await schedules.host({"j": {"triggers": [every(interval)]}})
        found.append(await schedules.sequence("j", "every"))
        await asyncio.sleep(life)
        await schedules.stop(host)
        found.append(await schedules.sequence("j", "every"))
    return found


async def test_restarts_do_not_move_an_interval(schedules: ScheduleRig):
    began = time.time()
    sequences = await _lives(schedules, "4s", 1.5, 3)
    assert len(set(sequences)) == 1
    assert len(sequences) >= 4
    due = schedules.due("j")
    assert 3 <= due[0] - began <= 4 + 8
    assert all((at - due[0]) % 4 == 0 for at in due)
    assert len(set(due)) == len(due)


@pytest.mark.soak
async def test_an_interval_longer_than_any_hosts_life_keeps_its_rhythm(schedules: ScheduleRig):
    """B01: it fires 20, 40 and 60 s after the first start, though no host lives longer than 8 s."""
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
