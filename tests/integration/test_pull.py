"""The continuous pull: never more than was allowed, whatever the server, the consumer or the network does."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._nats import pull as pull_module
from jetjobs._nats.connection import Connection, connect
from jetjobs._nats.delivery import AckOutbox, NatsDelivery
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.writer import PipelinedWriter
from jetjobs._ports import Delivery
from tests.support.links import until, until_it
from tests.support.pulling import JOB, Host, OpenHost, opened_hosts

pytestmark = pytest.mark.integration


@pytest.fixture
async def hosts(project: str) -> AsyncIterator[OpenHost]:
    async with opened_hosts(project) as made:
        yield made


class Spy:
    """Counts the pulls that anybody sends for the job."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []

    async def watch(self, host: Host) -> None:
        self.connection: Connection = await connect(
            f"nats://127.0.0.1:{host.link.connection.client.servers[0].port}", name="spy"
        )
        await self.connection.listen(f"$JS.API.CONSUMER.MSG.NEXT.{host.consumer}", self.heard)
        await self.connection.client.flush()

    def heard(self, message: Inbound) -> None:
        self.requests.append(message.data)


class TestCredit:
    async def test_none_without_being_allowed(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        await host.trigger(3)
        consumption = await host.consume(0)
        await host.settle()
        assert host.deliveries == []
        consumption.allow(2)
        await host.come(2)
        consumption.allow(5)
        await host.come(3)

    async def test_in_hand_and_requested_never_exceed_the_slots(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        dice = random.Random(7)
        slots, held, most, done = 10, set[Delivery](), 0, 0
        finished = asyncio.Event()
        loop = asyncio.get_running_loop()

        def took(delivery: Delivery) -> None:
            nonlocal most
            held.add(delivery)
            most = max(most, len(held))
            loop.call_later(dice.uniform(0, 0.01), end, delivery)

        def end(delivery: Delivery) -> None:
            nonlocal done
            held.discard(delivery)
            delivery.ack()
            done += 1
            assert consumption is not None
            consumption.allow(1)
            if done == 1000:
                finished.set()

        consumption = await host.consume(slots, took)
        await host.trigger(1000)
        await asyncio.wait_for(finished.wait(), 45)
        assert 1 < most <= slots

        async def all_retired() -> bool:
            info = await host.info()
            return info["num_ack_pending"] == 0 and info["num_pending"] == 0

        await until_it(all_retired)
        assert done == 1000

    async def test_a_hundred_slots_cost_few_requests(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        spy = Spy()
        await spy.watch(host)
        consumption = await host.consume(0)
        for _ in range(100):
            consumption.allow(1)
        await host.trigger(100)
        for delivery in list(await host.come(100)):
            delivery.ack()
            consumption.allow(1)
        await host.trigger(100)
        await host.come(200)
        assert len(spy.requests) <= 4
        await spy.connection.close()

    async def test_credit_survives_pulls_that_expire(
        self, hosts: OpenHost, nats_url: str, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(pull_module, "EXPIRES", 10.5)  # less the spread of up to 9 s
        monkeypatch.setattr(pull_module, "HEARTBEAT", 0.2)
        host = await hosts(nats_url)
        host.broker._pull._pulls = 8  # the next ones run for 1.5 s
        spy = Spy()
        await spy.watch(host)
        await host.consume(3)
        await until(lambda: len(spy.requests) >= 2)
        await host.trigger(5)
        await host.come(3)
        await spy.connection.close()

    async def test_limit_over_three_hosts(self, hosts: OpenHost, nats_url: str):
        three = [await hosts(nats_url, limit=4) for _ in range(3)]
        live: set[int] = set()
        most, ended = 0, asyncio.Event()
        done: set[int] = set()
        loop = asyncio.get_running_loop()

        def taker(host: Host) -> Callable[[Delivery], None]:
            def took(delivery: Delivery) -> None:
                nonlocal most
                live.add(delivery.message.sequence)
                most = max(most, len(live))
                loop.call_later(0.002, end, delivery)

            def end(delivery: Delivery) -> None:
                live.discard(delivery.message.sequence)
                done.add(delivery.message.sequence)
                delivery.ack()
                assert host.consumption is not None
                host.consumption.allow(1)
                if len(done) == 300:
                    ended.set()

            return took

        for host in three:
            await host.consume(4, taker(host))
        await three[0].trigger(300)
        await asyncio.wait_for(ended.wait(), 45)
        assert 2 <= most <= 4


class TestStop:
    async def test_what_comes_after_goes_to_others(self, hosts: OpenHost, nats_url: str):
        one, two = await hosts(nats_url), await hosts(nats_url)
        stopping = await one.consume(5)
        await one.settle()
        await stopping.stop()
        await stopping.stop()
        ids = await one.trigger(5)
        await two.consume(5)
        await two.come(5)
        assert sorted(two.got) == sorted(ids)
        assert one.deliveries == []
        assert all(delivery.message.num_delivered == 1 for delivery in two.deliveries)

    async def test_one_of_two_jobs(self, hosts: OpenHost, nats_url: str):
        one, two = await hosts(nats_url), await hosts(nats_url)
        other_job = JobAddress("mod", "other")
        await one.broker.ensure_consumer(other_job, 1)
        others: list[Delivery] = []
        (await one.broker.consume(other_job, others.append)).allow(1)
        stopping = await one.consume(2)
        await one.settle()
        await stopping.stop()
        await one.trigger(3)
        await two.consume(3)
        await two.come(3)
        await one.broker.store(Outgoing(names.trigger_subject(one.broker.project, RunKey(*other_job, "x"))))
        await until(lambda: others)
        assert one.deliveries == []


class TestDelivery:
    async def test_nak_term_and_renew(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url, ack_wait=1)
        consumption = await host.consume(3)
        await host.trigger(3)
        first, second, third = await host.come(3)
        first.nak()
        second.term("not\r\nunderstood é" + "x" * 500)
        third.nak(timedelta(milliseconds=300))
        consumption.allow(2)
        await host.come(5)
        assert host.got[3:] == [host.got[0], host.got[2]]
        assert [delivery.message.num_delivered for delivery in host.deliveries] == [1, 1, 1, 2, 2]
        assert await host.broker.message(second.message.sequence) is None

    async def test_renewed_stays_and_forgotten_comes_again(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url, ack_wait=2)
        await host.consume(3)
        await host.trigger(2)
        kept, _ = await host.come(2)
        while len(host.deliveries) < 3:
            await kept.renew()
            await asyncio.sleep(0.1)
        assert host.got[2] == host.got[1]

    async def test_facts_of_the_message(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        await host.consume(1)
        subject = names.trigger_subject(host.broker.project, RunKey(*JOB, "x"))
        sequence = await host.broker.store(Outgoing(subject, {"A": "b"}, b"body"))
        (delivery,) = await host.come(1)
        message = delivery.message
        stored = await host.broker.last(subject)
        assert stored is not None
        assert (message.subject, dict(message.headers), message.data) == (subject, {"A": "b"}, b"body")
        assert (message.sequence, message.num_delivered) == (sequence, 1)
        assert message.stored_at == stored.stored_at
        assert message.stored_at.tzinfo is UTC


@pytest.mark.parametrize(
    "reply",
    [
        "$JS.ACK.STREAM.con.3.17.5.1700000000123456789.0",
        "$JS.ACK._.acchash.STREAM.con.3.17.5.1700000000123456789.0",
        "$JS.ACK.hub.acchash.STREAM.con.3.17.5.1700000000123456789.0.rnd",
    ],
)
async def test_every_form_of_ack_subject(reply: str, nats_url: str):
    connection = await connect(nats_url, name="test")
    raw = Inbound("s", reply, b"", None)
    delivery = NatsDelivery(raw, reply.split("."), AckOutbox(connection), PipelinedWriter(connection))
    assert delivery.message.sequence == 17
    assert delivery.message.num_delivered == 3
    assert delivery.message.stored_at == datetime(2023, 11, 14, 22, 13, 20, 123456, tzinfo=UTC)
    await connection.close()
