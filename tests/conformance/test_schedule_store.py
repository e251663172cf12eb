from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from jetjobs._core.bodies import Body
from jetjobs._core.schedule_record import Counters, ScheduleRecord, ScheduleState, Stretch
from jetjobs._ports import Backend, ScheduleStore
from jetjobs.errors import ScheduleNameTaken, WrongRevision
from tests.support.worlds import NatsWorld, World, eventually, only_nats

NOON = datetime(2030, 5, 1, 12, tzinfo=UTC)
NIGHTLY = ScheduleRecord(
    "s1",
    "billing.close_day/cron",
    "billing",
    "close_day",
    "cron",
    "0 2 * * *",
    timezone="Europe/Paris",
    payload_body=Body(b"\x01"),
    misfire_grace=timedelta(hours=1),
    cursor=NOON,
    open=(NOON,),
    skipping=Stretch(NOON, NOON, 1),
    counters=Counters(runs=3, missed=2),
)


@pytest.fixture
def store(backend: Backend) -> ScheduleStore:
    return backend.schedules


async def test_a_schedule_is_stored_and_found_by_id_and_name(store: ScheduleStore):
    assert await store.get("s1") is None
    assert await store.find(NIGHTLY.name) is None
    assert await store.all() == []
    revision = await store.create(NIGHTLY)
    for found in (await store.get("s1"), await store.find(NIGHTLY.name), *await store.all()):
        assert found == (NIGHTLY, revision)


async def test_of_those_who_create_it_together_one_does(store: ScheduleStore, world: World):
    other = (await world.connect()).schedules
    outcomes = await asyncio.gather(*((store, other)[n % 2].create(NIGHTLY) for n in range(6)), return_exceptions=True)
    assert all(isinstance(outcome, int | WrongRevision) for outcome in outcomes)
    assert sum(isinstance(outcome, int) for outcome in outcomes) == 1


async def test_a_write_needs_the_revision_that_was_read(store: ScheduleStore):
    revision = await store.create(NIGHTLY)
    paused = replace(NIGHTLY, state=ScheduleState.PAUSED)
    newer = await store.update(paused, revision)
    assert newer > revision
    with pytest.raises(WrongRevision):
        await store.update(NIGHTLY, revision)
    assert await store.get("s1") == (paused, newer)
    assert await store.find(NIGHTLY.name) == (paused, newer)


async def test_two_schedules_have_no_name_in_common(store: ScheduleStore):
    await store.create(NIGHTLY)
    with pytest.raises(ScheduleNameTaken, match=r"billing\.close_day/cron"):
        await store.create(replace(NIGHTLY, schedule_id="s2"))
    assert [stored.schedule.schedule_id for stored in await store.all()] == ["s1"]


async def test_a_tombstone_stays_by_id_and_gives_its_name_up(store: ScheduleStore):
    revision = await store.create(NIGHTLY)
    gone = replace(NIGHTLY, state=ScheduleState.DELETED)
    await store.update(gone, revision, ttl=timedelta(days=8))
    assert await store.find(NIGHTLY.name) is None
    stored = await store.get("s1")
    assert stored is not None
    assert stored.schedule == gone
    successor = replace(NIGHTLY, schedule_id="s2")
    await store.create(successor)
    found = await store.find(NIGHTLY.name)
    assert found is not None
    assert found.schedule == successor


async def test_a_tombstone_goes_by_itself(store: ScheduleStore, world: World):
    revision = await store.create(NIGHTLY)
    await store.update(replace(NIGHTLY, state=ScheduleState.DELETED), revision, ttl=timedelta(seconds=1))

    async def gone() -> bool:
        return await store.get("s1") is None

    await eventually(world, gone)
    await store.create(NIGHTLY)  # nothing is in its way


async def test_a_removed_schedule_leaves_no_name(store: ScheduleStore):
    revision = await store.create(NIGHTLY)
    newer = await store.update(replace(NIGHTLY, state=ScheduleState.PAUSED), revision)
    assert not await store.delete("s1", revision)
    assert await store.delete("s1", newer)
    assert not await store.delete("s1", newer)
    assert await store.get("s1") is None
    assert await store.find(NIGHTLY.name) is None
    await store.create(replace(NIGHTLY, schedule_id="s2"))


async def test_all_are_listed_by_name(store: ScheduleStore):
    made = [replace(NIGHTLY, schedule_id=f"s{n}", name=f"billing.j{9 - n}/cron") for n in range(10)]
    await asyncio.gather(*(store.create(each) for each in made))
    assert [stored.schedule for stored in await store.all()] == made[::-1]


@only_nats
async def test_a_name_that_leads_nowhere_is_free(store: ScheduleStore, world: World):
    assert isinstance(world, NatsWorld)
    from jetjobs._core import names

    bucket = names.schedules_bucket(world.project)
    await world.publish(names.bucket_subject(bucket, names.schedule_name_key(NIGHTLY.name)), b"never-finished")
    assert await store.find(NIGHTLY.name) is None
    revision = await store.create(NIGHTLY)
    assert await store.find(NIGHTLY.name) == (NIGHTLY, revision)


@only_nats
async def test_what_nobody_can_read_is_left_out_of_lists(store: ScheduleStore, world: World):
    assert isinstance(world, NatsWorld)
    from jetjobs._core import names
    from jetjobs.errors import PayloadInvalidError

    bucket = names.schedules_bucket(world.project)
    await world.publish(names.bucket_subject(bucket, names.schedule_key("odd")), b"\xc1")
    await store.create(NIGHTLY)
    assert [stored.schedule.schedule_id for stored in await store.all()] == ["s1"]
    with pytest.raises(PayloadInvalidError):
        await store.get("odd")


@only_nats
async def test_a_record_deleted_by_another_tool_can_be_made_again(store: ScheduleStore, world: World):
    assert isinstance(world, NatsWorld)
    import nats

    from jetjobs._core import names

    await store.create(NIGHTLY)
    client = await nats.connect(world.url)
    bucket = await client.jetstream().key_value(names.schedules_bucket(world.project))
    await bucket.delete(names.schedule_key("s1"))
    await bucket.delete(names.schedule_name_key(NIGHTLY.name))
    await client.close()
    assert await store.get("s1") is None
    revision = await store.create(NIGHTLY)
    assert await store.get("s1") == (NIGHTLY, revision)
    assert await store.find(NIGHTLY.name) == (NIGHTLY, revision)
