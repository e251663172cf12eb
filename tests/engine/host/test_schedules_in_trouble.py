"""A host's schedules over ports that fail and brokers that go: every occurrence comes to one end."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import msgpack
import pytest

from jetjobs import Cron, Every, JobHost, Module
from jetjobs._core import names
from jetjobs._core.intervals import anchor_of
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import RunStatus
from jetjobs._core.occurrences import decide
from jetjobs._core.schedule_record import ScheduleState
from jetjobs._core.triggers import schedule_id
from jetjobs._engine.schedules import Schedules
from jetjobs.errors import BrokerError, ScheduleError, WrongRevision
from jetjobs.testing import FailingBackend, memory_backend
from tests.engine.host.scene import JOB, SETTINGS, Scene


def _steady(due: list[float], step: float) -> bool:
    return due == [due[0] + n * step for n in range(len(due))]


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
    module.expose_job("j", scene.call, triggers=[Every("5s")])
    host = JobHost([module], backend=ports, settings=SETTINGS, clock=scene.clock)
    await scene.driven(host.start())
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


async def test_a_message_that_somebody_removed_comes_back(scene: Scene):
    await scene.host(Every("5s"))
    await scene.pass_by(7)
    subject = names.schedule_subject("test", JOB, schedule_id(JOB, "every"))
    await scene.driven(scene.ports.broker.purge(subject, up_to=10**9))
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
    other.expose_job("k", scene.call)
    host = JobHost([other], backend=memory_backend(scene.cluster), settings=SETTINGS, clock=scene.clock)
    await scene.driven(host.start())
    scene.hosts.append(host)
    await scene.pass_by(5)
    assert (await scene.record()).state is ScheduleState.DISABLED
    assert not await scene.has_message()
    await scene.host(Every("1h"))
    assert (await scene.record()).state is ScheduleState.ACTIVE
    assert await scene.has_message()


async def test_a_tick_of_no_schedule_is_removed_for_good(scene: Scene):
    await scene.host(Every("1h"))
    from jetjobs._core.schedule_messages import schedule_message
    from jetjobs._core.schedule_record import ScheduleRecord as Record

    stranger = Record("stranger", "m.j/stranger", "m", "j", "every", "5s", timedelta(seconds=5))
    await scene.driven(scene.ports.broker.store(schedule_message("test", stranger)))
    await scene.driven(scene.ports.broker.store(Outgoing(names.tick_subject("test", JOB, "bare"), {}, b"{}")))
    await scene.pass_by(20)
    assert not scene.calls
    assert await scene.messages() == 1


async def test_a_broker_that_knows_no_zones_is_told_at_the_start(scene: Scene):
    ports = FailingBackend(memory_backend(scene.cluster))
    ports.fail("broker.store", error=BrokerError("write: time zone is invalid (10223)"), times=None)
    module = Module("m")
    module.expose_job("j", scene.call, triggers=[Cron("0 3 * * *", timezone="Europe/Paris")])
    host = JobHost([module], backend=ports, settings=SETTINGS, clock=scene.clock)
    with pytest.raises(ScheduleError, match=r"m\.j/cron.*10223.*tzdata"):
        await scene.driven(host.start())


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


async def test_the_schedule_knows_of_an_end_before_the_next_tick(scene: Scene):
    ports = await scene.host(Every("60s"))
    ports.fail("schedules.update", skip=1, error=WrongRevision("somebody wrote"))
    await scene.pass_by(62)
    found = await scene.record()
    assert found.counters.runs == 1
    assert not found.live
    assert found.last_ended_at is not None


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
    scene.takes = 5.0
    await scene.host(Every("1h"))
    hosting = scene.hosts[0]._hosting
    assert hosting is not None
    schedules = Schedules(hosting.engine)
    began = await scene.record()
    assert began.next_run_at is not None
    nows = [began.next_run_at + n * timedelta(hours=1) for n in (2, 0, 1, 0)]
    decided = await scene.driven(asyncio.gather(*(schedules.decide(began.schedule_id, now=now) for now in nows)))
    found = await scene.record()
    assert found.cursor == nows[0]
    assert found.counters.decided == 3
    assert found.counters.runs == 1
    assert {each.counters.runs for each in decided} == {1}
    # Nobody has stored the trigger, and no tick comes: the host looks after what has been open for a while.
    await scene.clock.advance(3 * 3600 + 30)
    await scene.pass_by(30)
    assert found.open[0].timestamp() in scene.due


async def test_who_decides_too_late_leaves_the_record_of_what_was_counted(scene: Scene):
    """Its stretch is longer, and it writes that before it can know that another decision counts."""
    await scene.host(Every("1h", misfire_grace="1m"))
    hosting = scene.hosts[0]._hosting
    assert hosting is not None
    schedules = Schedules(hosting.engine)
    read = await scene.ports.schedules.get(schedule_id(JOB, "every"))
    assert read is not None
    assert read.schedule.next_run_at is not None
    first, later = (
        decide(read.schedule, read.schedule.next_run_at + timedelta(hours=hours, minutes=2)) for hours in (1, 2)
    )
    assert await scene.driven(schedules.write(read, first)) is not None
    assert await scene.driven(schedules.write(read, later)) is None
    (missed,) = [stored.record async for stored in scene.ports.runs.scan(JOB)]
    assert missed.status is RunStatus.MISSED
    assert missed.extra["occurrences"] == (await scene.record()).counters.missed == 2
    assert missed.extra["last_occurrence"] == first.missed[0].last


async def test_a_trigger_is_stored_once_whoever_stores_it(scene: Scene):
    scene.takes = 5.0
    await scene.host(Every("10s"))
    hosting = scene.hosts[0]._hosting
    assert hosting is not None
    await scene.pass_by(7)
    subject = names.schedule_subject("test", JOB, schedule_id(JOB, "every"))
    await scene.driven(scene.ports.broker.purge(subject, up_to=10**9))
    await scene.pass_by(5)
    schedules = Schedules(hosting.engine)
    decided = await scene.driven(schedules.decide(schedule_id(JOB, "every")))
    assert len(decided.open) == 1
    for _ in range(3):
        await scene.driven(schedules.start_open(decided))
    assert await scene.messages() == 1


async def test_a_tick_off_the_grid_moves_it(scene: Scene):
    """As after a crash of the broker, which counts an interval anew from its restart."""
    await scene.host(Every("10s"))
    await scene.pass_by(13)
    subject = names.schedule_subject("test", JOB, schedule_id(JOB, "every"))
    message = await scene.driven(scene.ports.broker.last(subject))
    await scene.driven(scene.ports.broker.purge(subject, up_to=10**9))
    again = Outgoing(subject, message.headers, message.data)
    stored_at = scene.cluster.now()
    await scene.driven(scene.ports.broker.store(again))
    await scene.pass_by(11)
    assert scene.due[-1] == anchor_of(stored_at).timestamp() + 10
