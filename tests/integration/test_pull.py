"""The continuous pull: never more than was allowed, whatever the server, the consumer or the network does."""

import asyncio
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest

from jetjobs._core import names
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._nats import pull as pull_module
from jetjobs._nats.broker import NatsBroker
from jetjobs._nats.connection import Connection, connect
from jetjobs._nats.delivery import AckOutbox, NatsDelivery
from jetjobs._nats.faults import NotFound
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.provision import ProvisionSettings
from jetjobs._nats.writer import PipelinedWriter
from jetjobs._ports import Consumption, Delivery
from jetjobs.errors import AnswerUnknown, BrokerUnavailable
from tests.support.cluster import RealCluster
from tests.support.links import open_link, until, until_it
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration

JOB = JobAddress("mod", "job")


class Host:
    """A broker over a connection of its own, and what came."""

    def __init__(self, link: Link, broker: NatsBroker) -> None:
        self.link = link
        self.broker = broker
        self.deliveries: list[Delivery] = []
        self.consumption: Consumption | None = None

    @property
    def got(self) -> list[str]:
        return [delivery.message.subject.rpartition(".")[2] for delivery in self.deliveries]

    @property
    def consumer(self) -> str:
        return f"{names.stream(self.broker.project)}.{names.consumer(JOB)}"

    async def consume(self, slots: int, on_delivery: Callable[[Delivery], None] | None = None) -> Consumption:
        self.consumption = await self.broker.consume(JOB, on_delivery or self.deliveries.append)
        self.consumption.allow(slots)
        return self.consumption

    async def trigger(self, count: int) -> list[str]:
        ids = [secrets.token_hex(8) for _ in range(count)]
        subjects = [names.trigger_subject(self.broker.project, RunKey(*JOB, id_)) for id_ in ids]
        await asyncio.gather(*(self.broker.store(Outgoing(subject)) for subject in subjects))
        return ids

    async def come(self, count: int, within: float = 10.0) -> list[Delivery]:
        """Wait until so many have come; then see that no more do."""
        await until(lambda: len(self.deliveries) >= count, within)
        await self.settle()
        assert len(self.deliveries) == count, f"{len(self.deliveries)} deliveries"
        return self.deliveries

    async def settle(self) -> None:
        """Everything under way has arrived: asked three times over, the consumer says the same."""
        said: list[object] = []
        while len(said) < 3 or len({str(one) for one in said[-3:]}) > 1:
            answer = await self.link.api(f"CONSUMER.INFO.{self.consumer}")
            said.append((answer["delivered"], answer["num_ack_pending"], answer["num_pending"]))
            await asyncio.sleep(0.02)

    async def info(self) -> dict[str, Any]:
        return await self.link.api(f"CONSUMER.INFO.{self.consumer}")


class OpenHost(Protocol):
    """Opens a host over a connection of its own; all are closed at the end."""

    async def __call__(self, url: str, *, limit: int = 100, ack_wait: float = 30, replicas: int = 1) -> Host: ...


@pytest.fixture
async def hosts(project: str) -> AsyncIterator[OpenHost]:
    opened: list[NatsBroker] = []

    async def open_host(url: str, *, limit: int = 100, ack_wait: float = 30, replicas: int = 1) -> Host:
        link = await open_link(url)
        broker = NatsBroker(link, project, ProvisionSettings(ack_wait=timedelta(seconds=ack_wait), replicas=replicas))
        opened.append(broker)
        await broker.ensure_project()
        await broker.ensure_consumer(JOB, limit)
        return Host(link, broker)

    yield open_host
    for broker in opened:
        await broker.close()


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
        await asyncio.wait_for(finished.wait(), 20)
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
        await asyncio.wait_for(ended.wait(), 20)
        assert 2 <= most <= 4


async def state_on_disk(server: RealServer) -> None:
    """Wait until the consumer's state was written and stays as it is: a crash before that forgets deliveries."""

    def quiet() -> bool:
        written = [path.stat().st_mtime for path in server.store.rglob("o.dat")]
        return bool(written) and time.time() - max(written) > 0.4

    await until(quiet)


class TestLoss:
    async def test_crash_of_the_server(self, own_server: RealServer, hosts: OpenHost):
        host = await hosts(own_server.url)
        consumption = await host.consume(4)
        before = await host.trigger(2)
        await host.come(2)
        await state_on_disk(own_server)
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: not host.link.connection.is_connected)
        await asyncio.to_thread(own_server.start)
        after = await host.trigger(4)
        await host.come(4)  # the two slots left
        assert sorted(host.got) == sorted(before + after[:2])
        for delivery in host.deliveries:
            delivery.ack()  # of before and after the crash
        consumption.allow(4)
        await host.come(6)

    async def test_connection_lost_while_the_server_runs(self, hosts: OpenHost, nats_url: str):
        # The server still has the old pulls; they must bring nothing beside the new ones.
        host = await hosts(nats_url)
        await host.consume(4)
        await host.settle()
        for _ in range(3):
            back = asyncio.Event()
            host.link.connection.on_reconnect(back.set)
            await host.link.connection.client.force_reconnect()
            await asyncio.wait_for(back.wait(), 10)
            await until(lambda: host.broker._pull._sub is not None)
        await host.trigger(10)
        await host.come(4)
        info = await host.info()
        assert (info["num_ack_pending"], info["num_redelivered"]) == (4, 0)

    async def test_allowed_while_disconnected(self, own_server: RealServer, hosts: OpenHost):
        host = await hosts(own_server.url)
        await host.trigger(5)
        consumption = await host.consume(0)
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: not host.link.connection.is_connected)
        consumption.allow(3)
        await asyncio.to_thread(own_server.start)
        await host.come(3)

    async def test_acks_of_a_lost_connection_leave_on_the_next_and_naks_do_not(
        self, own_server: RealServer, hosts: OpenHost
    ):
        host = await hosts(own_server.url)
        await host.consume(2)
        await host.trigger(2)
        acked, naked = await host.come(2)
        await state_on_disk(own_server)
        await asyncio.to_thread(own_server.sigterm)
        await until(lambda: not host.link.connection.is_connected)
        acked.ack()
        naked.nak()
        assert host.consumption is not None
        host.consumption.allow(2)
        await asyncio.to_thread(own_server.start)
        await host.link.connection.wait_connected(10)

        async def one_is_left() -> bool:
            return (await host.info())["num_ack_pending"] == 1

        await until_it(one_is_left)
        await host.come(2)

    async def test_deleted_consumer_is_made_again(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        await host.consume(2)
        await host.settle()
        await host.link.api(f"CONSUMER.DELETE.{host.consumer}")
        await host.trigger(3)
        await host.come(2)

    async def test_consumer_deleted_while_all_slots_are_at_work(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        consumption = await host.consume(1)
        await host.trigger(1)
        (delivery,) = await host.come(1)
        await host.link.api(f"CONSUMER.DELETE.{host.consumer}")
        delivery.ack()
        consumption.allow(1)
        await host.come(2)  # the new consumer delivers the message anew: its ack went nowhere

    async def test_deleted_stream_is_made_again(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        await host.consume(2)
        await host.settle()
        await host.link.api(f"STREAM.DELETE.{names.stream(host.broker.project)}")

        async def made_again() -> bool:
            try:
                await host.info()
            except NotFound:
                return False
            return True

        await until_it(made_again)
        await host.trigger(3)
        await host.come(2)

    async def test_silence_makes_it_look(self, hosts: OpenHost, nats_url: str, monkeypatch: pytest.MonkeyPatch):
        # A pull the server has forgotten without a word: what a heartbeat is for.
        monkeypatch.setattr(pull_module, "HEARTBEAT", 0.2)
        host = await hosts(nats_url)
        share = await host.broker.consume(JOB, host.deliveries.append)
        real, share.next_subject = share.next_subject, "nobody.is.here"
        await host.link.connection.client.subscribe("nobody.is.here")
        share.allow(2)
        await asyncio.sleep(0)
        await until(lambda: share.requested == 2)
        share.next_subject = real
        await host.trigger(3)
        await host.come(2)

    async def test_uncalled_delivery_goes_back(self, hosts: OpenHost, nats_url: str):
        host = await hosts(nats_url)
        await host.consume(0)
        pull = host.broker._pull
        await host.trigger(1)
        # A pull that nobody accounts for, as one of before a reset would be.
        host.link.connection.post(f"$JS.API.CONSUMER.MSG.NEXT.{host.consumer}", b'{"batch":1}', f"{pull._inbox}.1.0")
        other = await hosts(nats_url)
        await other.consume(1)
        (delivery,) = await other.come(1)
        assert host.deliveries == []
        assert delivery.message.num_delivered <= 2


class TestCluster:
    async def test_the_leader_dies(self, hosts: OpenHost, tmp_path: Path, project: str):
        cluster = RealCluster(tmp_path)
        try:
            await asyncio.to_thread(cluster.start)
            async with asyncio.timeout(20):
                await cluster.ready()
            urls = ",".join(cluster.urls)
            several = await asyncio.gather(*(hosts(urls, replicas=3) for _ in range(5)))
            host = several[0]
            await host.consume(4)
            first = await host.trigger(2)
            await host.come(2)
            leader = await cluster.leader_of(names.stream(project))
            assert leader is not None
            await asyncio.to_thread(leader.kill9)
            later: list[str] = []

            async def stored() -> bool:
                try:
                    later.extend(await host.trigger(1))
                except (AnswerUnknown, BrokerUnavailable):
                    return False
                return True

            await until_it(stored, within=30)
            await until(lambda: {*first, *later} <= {*host.got}, within=30)
        finally:
            cluster.remove()


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
        host = await hosts(nats_url, ack_wait=0.6)
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
