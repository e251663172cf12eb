"""What becomes of the occurrences of a host's schedules, hours of them in a moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from jetjobs import Cron, Every, JobContext, JobHost, JobRetention, Module
from jetjobs._core.headers import trigger_message
from jetjobs._core.models import RunKey, RunStatus, TriggerInfo
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._core.schedules import pause, resume
from jetjobs._core.starting import jittered
from jetjobs._core.timetables import timetable_of
from jetjobs.testing import memory_backend
from tests.engine.host.scene import JOB, SETTINGS, Scene

HOUR = 3600.0


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


async def test_a_run_that_retries_is_one_run_of_its_schedule(scene: Scene):
    failed: list[str] = []
    module = Module("m")

    async def sometimes(ctx: JobContext[Any]) -> None:
        if ctx.attempt == 1:
            failed.append(ctx.run_id)
            raise ValueError("once")

    module.expose_job("j", sometimes, triggers=[Every("20s")], max_attempts=2)
    host = JobHost([module], backend=memory_backend(scene.cluster), settings=SETTINGS, clock=scene.clock)
    await scene.driven(host.start())
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
    await scene.driven(host.start())
    scene.hosts.append(host)
    await scene.pass_by(35)
    found = await scene.record()
    assert found.counters.failures == found.counters.runs == 3
    assert found.last_error == "ValueError: no luck"


async def test_waiting_for_another_run_of_the_job_uses_up_no_grace(scene: Scene):
    scene.takes = 16.0
    await scene.host(Every("20s", misfire_grace="9s"), at_once=1)
    began = await scene.record()
    assert began.next_run_at is not None
    await scene.pass_by((began.next_run_at - scene.cluster.now()).total_seconds() - 2)
    info = TriggerInfo("delayed", scheduled_for=scene.cluster.now())
    message = trigger_message("test", RunKey("m", "j", "by-hand"), None, info=info)
    await scene.driven(scene.ports.broker.store(message, expected=0))
    await scene.pass_by(40)
    found = await scene.record()
    assert found.counters.missed == 0
    assert found.counters.runs >= 1
    assert scene.due[1] == began.next_run_at.timestamp()


async def test_a_run_longer_than_grace_and_expiry_is_never_beside_another(scene: Scene):
    scene.takes = 2 * 3600.0
    module = Module("m")
    module.expose_job("j", scene.call, triggers=[Every("5m", misfire_grace="1m")], max_concurrency=2, expires_in="1h")
    for _ in range(2):
        host = JobHost([module], backend=memory_backend(scene.cluster), settings=SETTINGS, clock=scene.clock)
        await scene.driven(host.start())
        scene.hosts.append(host)
        module = Module("m")
        module.expose_job(
            "j", scene.call, triggers=[Every("5m", misfire_grace="1m")], max_concurrency=2, expires_in="1h"
        )
    await scene.clock.advance(timedelta(hours=4, minutes=20).total_seconds())
    found = await scene.record()
    assert scene.most_live == 1
    assert found.counters.runs == len(scene.calls) == 2 + 1
    assert found.counters.missed == 0
    assert found.counters.overlap_skips >= 46
    statuses = [stored.record.status async for stored in scene.ports.runs.scan(JOB)]
    assert statuses.count(RunStatus.SUCCEEDED) == 2


async def test_what_is_queued_starts_when_the_run_before_it_ends(scene: Scene):
    scene.takes = 70.0
    await scene.host(Every("60s", overlap="queue"))
    await scene.pass_by(205)
    first, second = scene.calls[:2]
    assert second[0] == first[0] + 60
    assert second[1] - (first[1] + 70) < 1


async def test_what_was_missed_is_kept_as_its_job_says(scene: Scene) -> None:
    hourly, kept = Every("1h", misfire_grace="1m"), JobRetention(finished="30d")
    await scene.host(hourly, retention=kept)
    await scene.stop()
    await scene.clock.advance(3 * HOUR)
    await scene.host(hourly, retention=kept)
    await scene.pass_by(12)
    await scene.stop()
    await scene.clock.advance(20 * 24 * HOUR)
    runs = [run.record.status async for run in scene.ports.runs.scan(JOB)]
    assert RunStatus.MISSED in runs


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
