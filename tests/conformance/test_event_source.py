"""Events by core NATS and by streams: the same from a broker in memory and from a real one."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import pytest

from jetjobs._core.events import Event
from jetjobs._ports import Backend, EventSource
from jetjobs.errors import BrokerError
from tests.support.worlds import ACK_WAIT, MemoryWorld, NatsWorld, Takings, World, eventually


class Outside:
    """Another service: subjects and a stream that no other test has."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.prefix = f"ev{secrets.token_hex(6)}"
        self.stream = self.prefix.upper()

    async def add_stream(self) -> None:
        if isinstance(self.world, MemoryWorld):
            self.world.cluster.events.add_stream(self.stream, f"{self.prefix}.>")
            return
        import nats

        assert isinstance(self.world, NatsWorld)
        client = await nats.connect(self.world.url)
        await client.jetstream().add_stream(name=self.stream, subjects=[f"{self.prefix}.>"])
        await client.close()

    async def remove_stream(self) -> None:
        if isinstance(self.world, MemoryWorld):
            self.world.cluster.events.remove_stream(self.stream)
            return
        import nats

        assert isinstance(self.world, NatsWorld)
        client = await nats.connect(self.world.url)
        await client.jetstream().delete_stream(self.stream)
        await client.close()

    async def publish(self, tail: str, *bodies: bytes, headers: Mapping[str, str] | None = None) -> None:
        subject = f"{self.prefix}.{tail}"
        if isinstance(self.world, MemoryWorld):
            for body in bodies:
                self.world.cluster.events.publish(subject, body, headers or {})
            return
        import nats

        assert isinstance(self.world, NatsWorld)
        client = await nats.connect(self.world.url)
        for body in bodies:
            await client.publish(subject, body, headers=dict(headers) if headers else None)
        await client.flush()
        await client.close()


class Heard(list[Event]):
    """Events heard, in order."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def reach(self, count: int) -> list[bytes]:
        async def enough() -> bool:
            return len(self) >= count

        await eventually(self.world, enough)
        await self.world.rest()
        assert len(self) == count
        return [event.data for event in self]


@pytest.fixture
def outside(world: World) -> Outside:
    return Outside(world)


@pytest.fixture
def events(backend: Backend) -> EventSource:
    return backend.events


class TestSubscribing:
    async def test_an_event_comes_as_published(self, world: World, events: EventSource, outside: Outside):
        heard = Heard(world)
        await events.subscribe(f"{outside.prefix}.*", "g", heard.append)
        await outside.publish("paid", b"\0body", headers={"Nats-Msg-Id": "1"})
        await outside.publish("paid.late", b"other")
        await heard.reach(1)
        (event,) = heard
        assert (event.subject, event.data, event.place) == (f"{outside.prefix}.paid", b"\0body", None)
        assert event.headers["Nats-Msg-Id"] == "1"

    async def test_one_of_a_group_hears_it_and_every_group_does(
        self, world: World, events: EventSource, outside: Outside
    ):
        second = (await world.connect()).events
        one, other, alone = Heard(world), Heard(world), Heard(world)
        await events.subscribe(f"{outside.prefix}.>", "shared", one.append)
        await second.subscribe(f"{outside.prefix}.>", "shared", other.append)
        await second.subscribe(f"{outside.prefix}.>", "alone", alone.append)
        bodies = [b"%d" % number for number in range(40)]
        await outside.publish("paid", *bodies)
        assert await alone.reach(40) == bodies
        assert sorted(event.data for event in one + other) == sorted(bodies)
        assert one
        assert other

    async def test_who_stopped_hears_nothing_and_leaves_it_to_the_others(
        self, world: World, events: EventSource, outside: Outside
    ):
        stopped, left = Heard(world), Heard(world)
        first = await events.subscribe(f"{outside.prefix}.>", "g", stopped.append)
        await (await world.connect()).events.subscribe(f"{outside.prefix}.>", "g", left.append)
        await first.stop()
        await first.stop()
        await outside.publish("paid", b"1", b"2", b"3")
        await left.reach(3)
        assert not stopped

    async def test_nothing_is_wrong_while_it_hears_and_once_it_stopped(
        self, world: World, events: EventSource, outside: Outside
    ):
        subscription = await events.subscribe(f"{outside.prefix}.*", "g", Heard(world).append)
        assert subscription.problem is None
        await subscription.stop()
        assert subscription.problem is None


class TestConsuming:
    async def test_a_stream_that_went_is_a_problem_until_it_is_back(
        self, world: World, events: EventSource, outside: Outside
    ):
        await outside.add_stream()
        taken = Takings(world)
        consumption = await events.consume(outside.stream, f"{outside.prefix}.paid", "d1", taken)
        consumption.allow(2)
        assert consumption.problem is None
        await outside.remove_stream()

        async def is_told() -> bool:
            return outside.stream in str(consumption.problem)

        async def is_well() -> bool:
            return consumption.problem is None

        await eventually(world, is_told, 15)
        await outside.add_stream()
        await eventually(world, is_well, 15)
        await outside.publish("paid", b"later")
        await taken.reach(1)

    async def test_a_stream_that_is_not_there_is_named(self, events: EventSource, outside: Outside, world: World):
        with pytest.raises(BrokerError, match=outside.stream):
            await events.consume(outside.stream, f"{outside.prefix}.paid", "d", Takings(world))

    async def test_one_that_is_made_later_owes_what_came_since_the_first_call(
        self, events: EventSource, outside: Outside, world: World
    ):
        taken = Takings(world)
        with pytest.raises(BrokerError):
            await events.consume(outside.stream, f"{outside.prefix}.paid", "d", taken)
        await outside.add_stream()
        await outside.publish("paid", b"1")
        await world.elapse(0.5)
        (await events.consume(outside.stream, f"{outside.prefix}.paid", "d", taken)).allow(5)
        await outside.publish("paid", b"2")
        await taken.reach(2)
        assert [delivery.message.sequence for delivery in taken.deliveries] == [1, 2]

    async def test_it_takes_what_is_stored_from_now_on_and_as_allowed(
        self, events: EventSource, outside: Outside, world: World
    ):
        await outside.add_stream()
        await outside.publish("paid", b"before")
        await world.elapse(0.5)
        taken = Takings(world)
        share = await events.consume(outside.stream, f"{outside.prefix}.paid", "d", taken)
        await outside.publish("paid", b"1", b"2", b"3", headers={"Nats-Msg-Id": ""})
        await outside.publish("refunded", b"other")
        await taken.reach(0)
        share.allow(2)
        await taken.reach(2)
        share.allow(2)
        await taken.reach(3)
        assert taken.bodies == [b"1", b"2", b"3"]
        messages = [delivery.message for delivery in taken.deliveries]
        assert [message.sequence for message in messages] == [2, 3, 4]
        assert messages[0].subject == f"{outside.prefix}.paid"
        await share.stop()

    async def test_what_is_not_acked_comes_again_with_the_same_place(
        self, events: EventSource, outside: Outside, world: World
    ):
        await outside.add_stream()
        taken = Takings(world)
        share = await events.consume(outside.stream, f"{outside.prefix}.>", "d", taken)
        share.allow(10)
        await outside.publish("paid", b"1", b"2")
        first, _ = await taken.reach(2)
        first.ack()
        await world.elapse(ACK_WAIT.total_seconds() + 0.2)
        _, second, again = await taken.reach(3)
        assert (again.message.sequence, again.message.stored_at) == (second.message.sequence, second.message.stored_at)
        assert (again.message.data, again.message.num_delivered) == (b"2", 2)
        again.ack()
        await world.elapse(ACK_WAIT.total_seconds() + 0.2)
        await taken.reach(3)
        await share.stop()

    async def test_a_durable_outlives_its_hosts_and_is_shared(
        self, events: EventSource, outside: Outside, world: World
    ):
        await outside.add_stream()
        share = await events.consume(outside.stream, f"{outside.prefix}.>", "d", Takings(world))
        await share.stop()
        bodies = [b"%d" % number for number in range(20)]
        await outside.publish("paid", *bodies)
        one, other = Takings(world), Takings(world)
        shares = [
            await (await world.connect()).events.consume(outside.stream, f"{outside.prefix}.>", "d", taken)
            for taken in (one, other)
        ]
        for each in shares:
            each.allow(20)

        async def all_there() -> bool:
            return len(one) + len(other) >= 20

        await eventually(world, all_there)
        await world.rest()
        assert sorted(one.bodies + other.bodies) == sorted(bodies)
        for each in shares:
            await each.stop()

    async def test_two_durables_get_everything_each(self, events: EventSource, outside: Outside, world: World):
        await outside.add_stream()
        takings = [Takings(world), Takings(world)]
        for name, taken in zip("de", takings, strict=True):
            (await events.consume(outside.stream, f"{outside.prefix}.>", name, taken)).allow(9)
        await outside.publish("paid", b"1", b"2")
        for taken in takings:
            for delivery in await taken.reach(2):
                delivery.ack()
        await world.rest()
        assert [taken.bodies for taken in takings] == [[b"1", b"2"]] * 2
