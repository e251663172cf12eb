"""Pulls that get lost: with the connection, the consumer, the server or its leader."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jetjobs._core import names
from jetjobs._nats import pull as pull_module
from jetjobs._nats.faults import NotFound
from jetjobs.errors import AnswerUnknown, BrokerUnavailable
from tests.support.cluster import RealCluster
from tests.support.links import until, until_it
from tests.support.pulling import JOB, OpenHost, opened_hosts
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


@pytest.fixture
async def hosts(project: str) -> AsyncIterator[OpenHost]:
    async with opened_hosts(project) as made:
        yield made


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
            await asyncio.wait_for(back.wait(), 45)
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
            async with asyncio.timeout(45):
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
