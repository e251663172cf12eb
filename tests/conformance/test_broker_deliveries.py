from __future__ import annotations

from datetime import timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._ports import Backend, Broker, Consumption
from jetjobs.errors import BrokerError
from tests.support.worlds import ACK_WAIT, Takings, World, eventually

SEND = JobAddress("billing.invoices", "send")


@pytest.fixture
def broker(backend: Backend) -> Broker:
    return backend.broker


@pytest.fixture
def taken(world: World) -> Takings:
    return Takings(world)


async def store(broker: Broker, *bodies: bytes, job: JobAddress = SEND) -> list[int]:
    return [
        await broker.store(Outgoing(names.trigger_subject(broker.project, RunKey(*job, body.decode())), {}, body))
        for body in bodies
    ]


async def consume(broker: Broker, taken: Takings, *, limit: int, allow: int, job: JobAddress = SEND) -> Consumption:
    await broker.ensure_consumer(job, limit)
    consumption = await broker.consume(job, taken)
    if allow:
        consumption.allow(allow)
    return consumption


class TestAllowing:
    async def test_nothing_comes_before_it_is_allowed(self, broker: Broker, taken: Takings):
        consumption = await consume(broker, taken, limit=10, allow=0)
        await store(broker, b"a", b"b")
        await taken.reach(0)
        consumption.allow(1)
        await taken.reach(1)

    async def test_a_delivery_carries_the_message_as_stored(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=10, allow=1)
        subject = names.trigger_subject(broker.project, RunKey(*SEND, "r1"))
        sequence = await broker.store(Outgoing(subject, {"Jetjobs-Turn": "3"}, b"\0body"))
        (delivery,) = await taken.reach(1)
        stored = await broker.last(subject)
        assert stored is not None
        message = delivery.message
        assert (message.subject, message.data, message.sequence) == (subject, b"\0body", sequence)
        assert message.headers["Jetjobs-Turn"] == "3"
        assert message.stored_at == stored.stored_at
        assert message.num_delivered == 1

    async def test_never_more_than_allowed_and_the_rest_when_allowed(self, broker: Broker, taken: Takings):
        consumption = await consume(broker, taken, limit=10, allow=2)
        await store(broker, b"a", b"b", b"c", b"d", b"e", b"f")
        await taken.reach(2)
        consumption.allow(1)
        consumption.allow(2)
        await taken.reach(5)
        for delivery in taken.deliveries:
            delivery.ack()
        await taken.reach(5)
        consumption.allow(7)
        await taken.reach(6)
        assert taken.bodies == [b"a", b"b", b"c", b"d", b"e", b"f"]

    async def test_what_was_allowed_before_waits_for_messages(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=10, allow=3)
        await taken.reach(0)
        await store(broker, b"a", b"b")
        await taken.reach(2)

    async def test_stopped_consumptions_take_nothing(self, broker: Broker, world: World, taken: Takings):
        consumption = await consume(broker, taken, limit=10, allow=5)
        await store(broker, b"a")
        await taken.reach(1)
        await consumption.stop()
        await consumption.stop()
        await store(broker, b"b")
        other = Takings(world)
        await consume((await world.connect()).broker, other, limit=10, allow=5)
        await other.reach(1)
        assert (other.bodies, taken.bodies) == ([b"b"], [b"a"])

    async def test_one_connection_consumes_a_job_once_at_a_time(self, broker: Broker, world: World, taken: Takings):
        first = await consume(broker, taken, limit=10, allow=1)
        with pytest.raises(BrokerError, match="already consumed over this connection"):
            await broker.consume(SEND, Takings(world))
        await first.stop()
        again = await broker.consume(SEND, taken)
        again.allow(1)
        await store(broker, b"a")
        await taken.reach(1)

    async def test_ticks_come_like_runs(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=10, allow=5)
        subject = names.tick_subject(broker.project, SEND, "s1")
        await broker.store(Outgoing(subject, {}, b"tick"))
        await store(broker, b"run")
        await taken.reach(2)
        assert taken.bodies == [b"tick", b"run"]

    async def test_each_job_gets_its_own(self, broker: Broker, world: World):
        jobs = [JobAddress("a.b", "c"), JobAddress("a", "b"), JobAddress("a", "B")]
        takings = [Takings(world) for _ in jobs]
        for job, taken in zip(jobs, takings, strict=True):
            await consume(broker, taken, limit=5, allow=5, job=job)
        for job in jobs:
            await store(broker, str(job).replace(".", "_").encode(), job=job)
        for taken in takings:
            await taken.reach(1)
        assert [taken.bodies for taken in takings] == [[b"a_b_c"], [b"a_b"], [b"a_B"]]


class TestTheLimit:
    async def test_it_holds_over_two_hosts_and_ends_with_every_message(self, broker: Broker, world: World):
        mine, theirs = Takings(world), Takings(world)
        await store(broker, *(b"r%d" % n for n in range(10)))
        await consume(broker, mine, limit=3, allow=10)
        await consume((await world.connect()).broker, theirs, limit=3, allow=10)
        acked = 0
        while acked < 10:
            out = min(3, 10 - acked)

            async def all_out(expected: int = acked + out) -> bool:
                return len(mine) + len(theirs) >= expected

            await eventually(world, all_out)
            await world.rest()
            assert len(mine) + len(theirs) == acked + out
            deliveries = sorted(mine.deliveries + theirs.deliveries, key=lambda delivery: delivery.message.sequence)
            deliveries[acked].ack()
            acked += 1
        assert sorted(mine.bodies + theirs.bodies) == [b"r%d" % n for n in range(10)]

    async def test_raising_it_hands_out_more_unless_told_not_to(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=1, allow=5)
        await store(broker, b"a", b"b", b"c")
        await taken.reach(1)
        await broker.ensure_consumer(SEND, 3, update=False)
        await taken.reach(1)
        await broker.ensure_consumer(SEND, 2)
        await taken.reach(2)

    async def test_what_is_purged_in_flight_frees_its_slot(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=1, allow=5)
        first, _ = await store(broker, b"a", b"b")
        (delivery,) = await taken.reach(1)
        await broker.purge(names.trigger_subject(broker.project, RunKey(*SEND, "a")), up_to=first)
        await taken.reach(2)
        delivery.ack()
        await taken.reach(2)


class TestAnswers:
    async def test_an_ack_retires_the_message(self, broker: Broker, world: World, taken: Takings):
        await consume(broker, taken, limit=1, allow=5)
        await store(broker, b"a", b"b")
        (await taken.reach(1))[0].ack()
        await taken.reach(2)

        async def gone() -> bool:
            return await broker.last(names.trigger_subject(broker.project, RunKey(*SEND, "a"))) is None

        await eventually(world, gone)
        assert await broker.last(names.trigger_subject(broker.project, RunKey(*SEND, "b"))) is not None

    async def test_a_term_retires_it_too(self, broker: Broker, world: World, taken: Takings):
        await consume(broker, taken, limit=1, allow=5)
        await store(broker, b"a", b"b")
        (await taken.reach(1))[0].term("can't be understood: é" * 40)
        await taken.reach(2)

        async def gone() -> bool:
            return await broker.last(names.trigger_subject(broker.project, RunKey(*SEND, "a"))) is None

        await eventually(world, gone)

    async def test_without_an_answer_it_comes_again_before_fresh_ones_in_order(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=2, allow=4)
        await store(broker, b"a", b"b", b"c")
        deliveries = await taken.reach(2)
        assert [delivery.message.num_delivered for delivery in deliveries] == [1, 1]
        await taken.reach(4)
        assert taken.seen[2:] == [(b"a", 2), (b"b", 2)]

    async def test_it_comes_again_to_whoever_takes(self, broker: Broker, world: World, taken: Takings):
        consumption = await consume(broker, taken, limit=1, allow=1)
        await store(broker, b"a")
        await taken.reach(1)
        await consumption.stop()
        other = Takings(world)
        await consume((await world.connect()).broker, other, limit=1, allow=1)
        await other.reach(1)
        assert other.seen == [(b"a", 2)]

    async def test_a_nak_brings_it_back_at_once(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=1, allow=2)
        await store(broker, b"a", b"b")
        stored = broker.now()
        (await taken.reach(1))[0].nak()
        await taken.reach(2)
        assert taken.seen == [(b"a", 1), (b"a", 2)]
        assert broker.now() - stored < ACK_WAIT

    async def test_a_nak_with_a_delay_keeps_its_slot_meanwhile(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=1, allow=5)
        await store(broker, b"a", b"b")
        (await taken.reach(1))[0].nak(timedelta(seconds=0.5))
        asked = broker.now()
        (_, again) = await taken.reach(2)
        assert taken.seen == [(b"a", 1), (b"a", 2)]
        assert broker.now() - asked >= timedelta(seconds=0.4)
        again.ack()
        await taken.reach(3)
        assert taken.seen[2] == (b"b", 1)

    async def test_an_ack_from_an_old_delivery_removes_it_under_the_new_one(
        self, broker: Broker, world: World, taken: Takings
    ):
        await consume(broker, taken, limit=1, allow=2)
        await store(broker, b"a")
        (old, _) = await taken.reach(2)
        old.ack()

        async def gone() -> bool:
            return await broker.last(names.trigger_subject(broker.project, RunKey(*SEND, "a"))) is None

        await eventually(world, gone)


class TestRenewal:
    async def test_it_extends_the_wait_by_a_whole_one(self, broker: Broker, world: World, taken: Takings):
        await consume(broker, taken, limit=1, allow=5)
        await store(broker, b"a")
        (delivery,) = await taken.reach(1)
        for _ in range(3):
            await world.elapse(0.5)
            await delivery.renew()
        await taken.reach(1)
        await taken.reach(2)
        assert taken.seen == [(b"a", 1), (b"a", 2)]

    async def test_it_is_answered_for_an_old_delivery_and_after_an_ack(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=1, allow=2)
        await store(broker, b"a")
        (old, new) = await taken.reach(2)
        await old.renew()
        await new.renew()
        new.ack()
        await new.renew()


class TestGivenUp:
    async def test_what_waits_or_is_in_flight_is_not(self, broker: Broker, taken: Takings):
        await consume(broker, taken, limit=10, allow=1)
        first, second = await store(broker, b"a", b"b")
        (delivery,) = await taken.reach(1)
        assert delivery.message.sequence == first
        await broker.mend_consumer(SEND)  # nobody edited it
        assert [await broker.given_up(SEND, sequence) for sequence in (first, second)] == [False, False]

    async def test_a_redelivery_still_to_come_is_not(self, broker: Broker, world: World, taken: Takings):
        await consume(broker, taken, limit=10, allow=1)
        (sequence,) = await store(broker, b"a")
        await taken.reach(1)
        await world.elapse(ACK_WAIT.total_seconds() * 1.5)
        assert not await broker.given_up(SEND, sequence)

    async def test_without_a_consumer_everything_is_before_it(self, broker: Broker):
        (sequence,) = await store(broker, b"a")
        await broker.mend_consumer(SEND)
        assert not await broker.given_up(SEND, sequence)
