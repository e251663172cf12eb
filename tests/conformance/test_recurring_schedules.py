from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.intervals import anchor_of
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import JobAddress
from jetjobs._core.occurrences import Tick
from jetjobs._core.schedule_messages import read_tick, same_schedule, schedule_message
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._ports import Backend, Delivery
from jetjobs.errors import BrokerError
from tests.support.worlds import Takings, World, eventually

JOB = JobAddress("m", "j")
EVERY = ScheduleRecord("every", "m.j/every", "m", "j", "every", "1s", timedelta(seconds=1))
CRON = ScheduleRecord("cron", "m.j/cron", "m", "j", "cron", "* * * * * *", timezone="Asia/Kathmandu")


async def _ticks(backend: Backend, world: World, schedule: ScheduleRecord, count: int) -> tuple[Message, list[Message]]:
    """The schedule as stored, and its first ticks, each acked."""
    broker = backend.broker
    await broker.ensure_consumer(JOB, 10)
    takings = Takings(world)

    def take(delivery: Delivery) -> None:
        takings(delivery)
        delivery.ack()  # or it comes again beside the next tick, an ack wait later

    share = await broker.consume(JOB, take)
    share.allow(count)
    await broker.store(schedule_message(broker.project, schedule), expected=0)

    async def enough() -> bool:
        return len(takings) >= count

    await eventually(world, enough)
    await share.stop()
    stored = await broker.last(names.schedule_subject(broker.project, JOB, schedule.schedule_id))
    assert stored is not None
    return stored, [delivery.message for delivery in takings.deliveries]


@pytest.mark.parametrize("schedule", [EVERY, CRON], ids=lambda schedule: schedule.kind)
async def test_ticks_tell_their_occurrence_and_the_schedule_stays(
    backend: Backend, world: World, schedule: ScheduleRecord
):
    before = backend.broker.now()
    stored, ticks = await _ticks(backend, world, schedule, 2)
    assert same_schedule(stored, schedule_message(backend.broker.project, schedule))
    read = [read_tick(tick) for tick in ticks]
    assert all(isinstance(tick, Tick) for tick in read)
    first, second = (tick.occurrence for tick in read if isinstance(tick, Tick))
    assert second - first == timedelta(seconds=1)
    assert first.microsecond == 0
    assert before - timedelta(seconds=1) < first
    if schedule is EVERY:
        assert first == anchor_of(stored.stored_at) + timedelta(seconds=1)
    for tick, occurrence in zip(ticks, (first, second), strict=True):
        assert tick.subject == names.tick_subject(backend.broker.project, JOB, schedule.schedule_id)
        assert timedelta(0) <= tick.stored_at - occurrence < timedelta(seconds=1)


async def test_a_purged_schedule_ticks_no_more(backend: Backend, world: World):
    stored, _ = await _ticks(backend, world, EVERY, 1)
    broker = backend.broker
    await broker.purge(stored.subject, up_to=stored.sequence)
    assert await broker.last(stored.subject) is None
    last = await broker.last(names.tick_subject(broker.project, JOB, EVERY.schedule_id))
    await world.elapse(1.5)
    assert await broker.last(names.tick_subject(broker.project, JOB, EVERY.schedule_id)) == last


@pytest.mark.parametrize("line", ["@every 0s", "@every", "0 2 * *", "@at tomorrow", "0 0 0 31 2 *"])
async def test_what_means_nothing_is_refused(backend: Backend, line: str):
    broker = backend.broker
    message = schedule_message(broker.project, EVERY)
    with pytest.raises(BrokerError, match="10189"):
        await broker.store(Outgoing(message.subject, {**message.headers, "Nats-Schedule": line}))


async def test_an_edited_schedule_replaces_the_other(backend: Backend):
    broker = backend.broker
    hourly = ScheduleRecord("s", "m.j/s", "m", "j", "every", "1h", timedelta(hours=1), created_at=datetime.now(UTC))
    first = await broker.store(schedule_message(broker.project, hourly), expected=0)
    with pytest.raises(BrokerError):
        await broker.store(schedule_message(broker.project, hourly), expected=0)
    second = await broker.store(schedule_message(broker.project, hourly), expected=first)
    found = await broker.last(names.schedule_subject(broker.project, JOB, "s"))
    assert found is not None
    assert found.sequence == second > first
