"""Three hosts started together, restarted, and redeployed one by one: only what was edited moves."""

from __future__ import annotations

from jetjobs._core.schedule_record import ScheduleState
from tests.faults.rig import HostProcess
from tests.faults.schedule_rig import Jobs, ScheduleRig, cron, every

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
