"""A host's schedules over ports that fail, with a clock that moves when told: every occurrence comes to one end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgpack
import pytest

from jetjobs import Cron, Every, HostSettings, JobContext, JobHost, Module
from jetjobs._core import names
from jetjobs._core.headers import trigger_message
from jetjobs._core.models import JobAddress, RunKey, RunStatus, TriggerInfo
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._core.schedules import pause, resume
from jetjobs._core.starting import jittered
from jetjobs._core.timetables import timetable_of
from jetjobs._core.triggers import schedule_id
from jetjobs._engine.schedules import Schedules
from jetjobs.errors import BrokerError, ScheduleError, WrongRevision
from jetjobs.testing import FailingBackend, ManualClock, MemoryCluster, memory_backend
from jetjobs.testing.memory_backend import MemoryBackend

JOB = JobAddress("m", "j")
SETTINGS = HostSettings(ack_wait=3, heartbeat_every=1, lost_after=10, upkeep_every=30)


class Scene:
    """Hosts of one project in memory, and when their job was called for which occurrence."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster(self.clock, ack_wait=timedelta(seconds=3))
        self.ports = memory_backend(self.cluster)
        self.hosts: list[JobHost] = []
        self.links: list[MemoryBackend] = []
        self.calls: list[tuple[float, float]] = []
        self.takes = 0.0
        self.live = 0
        self.most_live = 0

    async def _call(self, ctx: JobContext[Any]) -> None:
        due = ctx.trigger.scheduled_for
        assert due is not None
        self.calls.append((due.timestamp(), self.clock.now().timestamp()))
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        try:
            await self.clock.sleep(self.takes)
        finally:
            self.live -= 1

    async def host(self, *triggers: Cron | Every, at_once: int = 2, attempts: int = 1) -> FailingBackend:
        module = Module("m")
        module.expose_job("j", self._call, triggers=triggers, max_concurrency=at_once, max_attempts=attempts)
        connection = memory_backend(self.cluster)
        self.links.append(connection)
        ports = FailingBackend(connection)
        host = JobHost([module], backend=ports, settings=SETTINGS, clock=self.clock)
        await self._driven(host.start())
        self.hosts.append(host)
        return ports

    async def _driven(self, coroutine: Any) -> Any:
        task = asyncio.ensure_future(coroutine)
        for _ in range(2000):
            if task.done():
                break
            await self.clock.advance(0.02)
        return await task

    async def pass_by(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            await self.clock.advance(0.25)

    async def stop(self) -> None:
        await self._driven(self.hosts.pop().close())

    async def record(self, name: str = "every") -> ScheduleRecord:
        stored = await self._driven(self.ports.schedules.get(schedule_id(JOB, name)))
        assert stored is not None
        return stored.schedule

    async def edit(self, how: Any, name: str = "every") -> None:
        stored = await self._driven(self.ports.schedules.get(schedule_id(JOB, name)))
        assert stored is not None
        await self._driven(self.ports.schedules.update(how(stored.schedule, self.cluster.now()), stored.revision))

    async def has_message(self, name: str = "every") -> bool:
        subject = names.schedule_subject("test", JOB, schedule_id(JOB, name))
        return await self._driven(self.ports.broker.last(subject)) is not None

    async def messages(self) -> int:
        return len(self.cluster.project("test").stream)

    @property
    def due(self) -> list[float]:
        return [due for due, _ in self.calls]

    async def close(self) -> None:
        while self.hosts:
            await self.stop()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    await made.close()


def _steady(due: list[float], step: float) -> bool:
    return due == [due[0] + n * step for n in range(len(due))]


async def test_each_tick_is_one_run_and_leaves_nothing(scene: Scene):
    await scene.host(Every("10s"), Cron("*/20 * * * * *"))
    await scene.pass_by(65)
    found = await scene.record()
    assert found.counters.runs == 6
    assert (await scene.record("cron")).counters.runs >= 3
    assert not found.live
    assert await scene.messages() == 2  # the schedules themselves
    runs = found.counters.runs + (await scene.record("cron")).counters.runs
    assert scene.cluster.project("test").stream.last_sequence == 2 + runs  # a tick is its run's only message


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "method",
    ["schedules.get", "schedules.update", "broker.store", "broker.last", "runs.create", "runs.update", "runs.get"],
)
@pytest.mark.parametrize("skip", [0, 3])
async def test_a_failing_call_costs_no_occurrence_and_doubles_none(scene: Scene, method: str, when: Any, skip: int):
    ports = await scene.host(Every("5s", overlap="queue"))
    scene.takes = 1.0
    await scene.pass_by(7)
    failure = ports.fail(method, when=when, times=3, skip=skip)
    await scene.pass_by(65)
    assert failure.hits or method in {"broker.store", "broker.last", "runs.get"}
    assert _steady(scene.due, 5)
    assert len(scene.due) >= 12
    found = await scene.record()
    assert found.counters.runs == found.counters.decided
    assert found.last_occurrence is not None
    assert found.counters.decided == round(found.last_occurrence.timestamp() - scene.due[0]) // 5 + 1


@pytest.mark.parametrize("method", ["schedules.create", "broker.store", "schedules.update"])
async def test_an_answer_lost_at_the_start_is_looked_up(scene: Scene, method: str):
    ports = FailingBackend(memory_backend(scene.cluster))
    ports.fail(method, when="after")
    module = Module("m")
    module.expose_job("j", scene._call, triggers=[Every("5s")])
    host = JobHost([module], backend=ports, settings=SETTINGS, clock=scene.clock)
    await scene._driven(host.start())
    scene.hosts.append(host)
    await scene.pass_by(21)
    assert _steady(scene.due, 5)
    assert len(scene.due) >= 3


async def test_the_broker_away_means_one_catch_up(scene: Scene):
    await scene.host(Every("5s"))
    await scene.pass_by(12)
    scene.cluster.stop()
    await scene.pass_by(60)
    scene.cluster.start()
    await scene.pass_by(21)
    assert len(set(scene.due)) == len(scene.due)
    gaps = [later - earlier for earlier, later in zip(scene.due, scene.due[1:], strict=False) if later - earlier > 6]
    assert len(gaps) == 1
    counters = (await scene.record()).counters
    assert counters.coalesced >= 10
    assert counters.decided == round(scene.due[-1] - scene.due[0]) // 5 + 1


async def test_a_slow_job_skips_and_never_overlaps(scene: Scene):
    scene.takes = 12.0
    for _ in range(2):
        await scene.host(Every("5s"), at_once=3)
    await scene.pass_by(100)
    assert scene.most_live == 1
    found = await scene.record()
    assert found.counters.overlap_skips >= 9
    assert found.counters.runs >= 5
    assert await scene.messages() <= 4


async def test_at_most_so_many_run_at_once_when_they_may_overlap(scene: Scene):
    scene.takes = 22.0
    await scene.host(Every("5s", overlap="allow", max_instances=3), at_once=5)
    await scene.pass_by(100)
    assert scene.most_live == 3


async def test_jitter_delays_a_start_and_holds_no_slot(scene: Scene):
    await scene.host(Every("20s", jitter="15s"))
    await scene.pass_by(130)
    assert len(scene.calls) >= 5
    late = [now - due for due, now in scene.calls]
    assert max(late) > 1
    found = await scene.record()
    for due, now in scene.calls:
        at = datetime.fromtimestamp(due, UTC)
        assert 0 <= now - jittered(found, timetable_of(found), at).timestamp() <= 0.5
    assert _steady(sorted(scene.due), 20)


def _resumed(schedule: ScheduleRecord, now: datetime) -> ScheduleRecord:
    return resume(schedule, now).schedule


async def test_pause_and_resume(scene: Scene):
    await scene.host(Every("5s"))
    await scene.pass_by(12)
    await scene.edit(pause)
    await scene.pass_by(6)
    assert not await scene.has_message()  # the next tick told, before any upkeep
    await scene.pass_by(34)
    count = len(scene.calls)
    assert count <= 3
    await scene.pass_by(40)
    assert len(scene.calls) == count
    await scene.edit(_resumed)
    await scene.pass_by(60)
    assert await scene.has_message()
    assert len(scene.calls) >= count + 4
    assert (await scene.record()).counters.missed == 0


async def test_a_schedule_that_ends_is_completed_and_its_message_goes(scene: Scene):
    await scene.host(Every("5s", end_at=scene.cluster.now() + timedelta(seconds=18)))
    await scene.pass_by(60)
    assert len(scene.calls) == 3
    assert (await scene.record()).state is ScheduleState.COMPLETED
    assert not await scene.has_message()


async def test_a_message_that_somebody_removed_comes_back(scene: Scene):
    await scene.host(Every("5s"))
    await scene.pass_by(7)
    subject = names.schedule_subject("test", JOB, schedule_id(JOB, "every"))
    await scene._driven(scene.ports.broker.purge(subject, up_to=10**9))
    await scene.pass_by(60)
    assert await scene.has_message()
    found = await scene.record()
    assert found.last_occurrence is not None
    assert (scene.cluster.now() - found.last_occurrence).total_seconds() < 7


async def test_a_schedule_nobody_hosts_is_disabled_after_a_week_and_wakes_with_its_host(scene: Scene):
    await scene.host(Every("1h"))
    await scene.pass_by(2)
    await scene.stop()
    await scene.clock.advance(timedelta(days=7, hours=2).total_seconds())
    other = Module("other")
    other.expose_job("k", scene._call)
    host = JobHost([other], backend=memory_backend(scene.cluster), settings=SETTINGS, clock=scene.clock)
    await scene._driven(host.start())
    scene.hosts.append(host)
    await scene.pass_by(5)
    assert (await scene.record()).state is ScheduleState.DISABLED
    assert not await scene.has_message()
    await scene.host(Every("1h"))
    assert (await scene.record()).state is ScheduleState.ACTIVE
    assert await scene.has_message()


async def test_a_tick_of_no_schedule_is_removed_for_good(scene: Scene):
    await scene.host(Every("1h"))
    from jetjobs._core.models import Outgoing
    from jetjobs._core.schedule_messages import schedule_message
    from jetjobs._core.schedule_record import ScheduleRecord as Record

    stranger = Record("stranger", "m.j/stranger", "m", "j", "every", "5s", timedelta(seconds=5))
    await scene._driven(scene.ports.broker.store(schedule_message("test", stranger)))
    await scene._driven(scene.ports.broker.store(Outgoing(names.tick_subject("test", JOB, "bare"), {}, b"{}")))
    await scene.pass_by(20)
    assert not scene.calls
    assert await scene.messages() == 1


async def test_a_run_that_retries_is_one_run_of_its_schedule(scene: Scene):
    failed: list[str] = []
    module = Module("m")

    async def sometimes(ctx: JobContext[Any]) -> None:
        if ctx.attempt == 1:
            failed.append(ctx.run_id)
            raise ValueError("once")

    module.expose_job("j", sometimes, triggers=[Every("20s")], max_attempts=2)
    host = JobHost([module], backend=memory_backend(scene.cluster), settings=SETTINGS, clock=scene.clock)
    await scene._driven(host.start())
    scene.hosts.append(host)
    await scene.pass_by(70)
    found = await scene.record()
    assert found.counters.runs == len(failed) == 3
    assert found.counters.failures == 0
    runs = [stored.record async for stored in scene.ports.runs.scan(JOB)]
    assert {run.status for run in runs} == {RunStatus.SUCCEEDED}
    assert {run.attempt for run in runs} == {2}
    assert await scene.messages() == 1


async def test_a_failing_job_is_counted_with_its_last_error(scene: Scene):
    module = Module("m")

    async def never(ctx: JobContext[Any]) -> None:
        raise ValueError("no luck")

    module.expose_job("j", never, triggers=[Every("10s")])
    host = JobHost([module], backend=memory_backend(scene.cluster), settings=SETTINGS, clock=scene.clock)
    await scene._driven(host.start())
    scene.hosts.append(host)
    await scene.pass_by(35)
    found = await scene.record()
    assert found.counters.failures == found.counters.runs == 3
    assert found.last_error == "ValueError: no luck"


async def test_a_broker_that_knows_no_zones_is_told_at_the_start(scene: Scene):
    ports = FailingBackend(memory_backend(scene.cluster))
    ports.fail("broker.store", error=BrokerError("write: time zone is invalid (10223)"), times=None)
    module = Module("m")
    module.expose_job("j", scene._call, triggers=[Cron("0 3 * * *", timezone="Europe/Paris")])
    host = JobHost([module], backend=ports, settings=SETTINGS, clock=scene.clock)
    with pytest.raises(ScheduleError, match=r"m\.j/cron.*10223.*tzdata"):
        await scene._driven(host.start())


async def test_a_record_of_a_newer_release_is_left_alone(scene: Scene):
    await scene.host(Every("5s"))
    await scene.pass_by(7)
    await scene.stop()
    table = scene.cluster.project("test").schedules
    newer = cast("bytes", msgpack.packb({"v": 99}))
    revision = table.put(schedule_id(JOB, "every"), newer)
    await scene.host(Every("5s"), Every("10s", name="other"))
    await scene.pass_by(31)
    row = table.get(schedule_id(JOB, "every"))
    assert row is not None
    assert (row.value, row.revision) == (newer, revision)
    assert (await scene.record("other")).counters.runs >= 2


async def test_waiting_for_another_run_of_the_job_uses_up_no_grace(scene: Scene):
    scene.takes = 16.0
    await scene.host(Every("20s", misfire_grace="9s"), at_once=1)
    began = await scene.record()
    assert began.next_run_at is not None
    await scene.pass_by((began.next_run_at - scene.cluster.now()).total_seconds() - 2)
    info = TriggerInfo("delayed", scheduled_for=scene.cluster.now())
    message = trigger_message("test", RunKey("m", "j", "by-hand"), None, info=info)
    await scene._driven(scene.ports.broker.store(message, expected=0))
    await scene.pass_by(40)
    found = await scene.record()
    assert found.counters.missed == 0
    assert found.counters.runs >= 1
    assert scene.due[1] == began.next_run_at.timestamp()


async def test_a_run_longer_than_grace_and_expiry_is_never_beside_another(scene: Scene):
    scene.takes = 2 * 3600.0
    module = Module("m")
    module.expose_job("j", scene._call, triggers=[Every("5m", misfire_grace="1m")], max_concurrency=2, expires_in="1h")
    for _ in range(2):
        host = JobHost([module], backend=memory_backend(scene.cluster), settings=SETTINGS, clock=scene.clock)
        await scene._driven(host.start())
        scene.hosts.append(host)
        module = Module("m")
        module.expose_job(
            "j", scene._call, triggers=[Every("5m", misfire_grace="1m")], max_concurrency=2, expires_in="1h"
        )
    await scene.clock.advance(timedelta(hours=4, minutes=20).total_seconds())
    found = await scene.record()
    assert scene.most_live == 1
    assert found.counters.runs == len(scene.calls) == 2 + 1
    assert found.counters.missed == 0
    assert found.counters.overlap_skips >= 46
    statuses = [stored.record.status async for stored in scene.ports.runs.scan(JOB)]
    assert statuses.count(RunStatus.SUCCEEDED) == 2


async def test_the_schedule_knows_of_an_end_before_the_next_tick(scene: Scene):
    ports = await scene.host(Every("60s"))
    ports.fail("schedules.update", skip=1, error=WrongRevision("somebody wrote"))
    await scene.pass_by(62)
    found = await scene.record()
    assert found.counters.runs == 1
    assert not found.live
    assert found.last_ended_at is not None


async def test_what_is_queued_starts_when_the_run_before_it_ends(scene: Scene):
    scene.takes = 70.0
    await scene.host(Every("60s", overlap="queue"))
    await scene.pass_by(205)
    first, second = scene.calls[:2]
    assert second[0] == first[0] + 60
    assert second[1] - (first[1] + 70) < 1


async def test_what_nobody_could_start_in_time_is_one_record(scene: Scene):
    await scene.host(Every("5s", misfire_grace="7s"))
    await scene.pass_by(12)
    await scene.stop()
    await scene.pass_by(60)
    await scene.host(Every("5s", misfire_grace="7s"))
    await scene.pass_by(12)
    missed = [run async for run in scene.ports.runs.scan(JOB) if run.record.status is RunStatus.MISSED]
    found = await scene.record()
    assert len(missed) == 1
    assert missed[0].record.extra["occurrences"] == found.counters.missed >= 9


async def test_a_tick_that_is_running_is_taken_over_and_never_acked(scene: Scene):
    scene.takes = 20.0
    await scene.host(Every("1h"), attempts=2)
    await scene.host(Every("1h"), attempts=2)
    await scene.pass_by(3600)
    assert len(scene.calls) == 1
    holder = scene.hosts[0] if scene.hosts[0].health().running else scene.hosts[1]
    scene.links[scene.hosts.index(holder)].cut()
    await scene.pass_by(60)
    scene.links[scene.hosts.index(holder)].heal()
    await scene.pass_by(30)
    (run,) = [stored.record async for stored in scene.ports.runs.scan(JOB)]
    assert (run.status, run.attempt) == (RunStatus.SUCCEEDED, 2)
    assert not (await scene.record()).live


async def test_of_those_who_decide_together_one_does(scene: Scene):
    await scene.host(Every("10s"))
    await scene.host(Every("10s"))
    await scene.stop()
    one = scene.hosts[0]._hosting
    assert one is not None
    schedules = Schedules(one.engine)
    await scene.pass_by(3)
    ahead = scene.cluster.now() + timedelta(seconds=8)
    name = schedule_id(JOB, "every")
    decided = await scene._driven(asyncio.gather(*(schedules.decide(name, now=ahead) for _ in range(5))))
    assert {each.counters.decided for each in decided} == {1}
    for each in decided:
        await scene._driven(schedules.start_open(each))
    assert await scene.messages() == 2
    assert (await scene.record()).counters.runs == 1
