from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from jetjobs._core import names, signal_subjects
from jetjobs._core.controls import JobControl, override, switch
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._ports import Backend, Catalog, DrainAnswer
from jetjobs.errors import AnswerUnknown, WrongRevision
from tests.support.worlds import NatsWorld, Takings, World, eventually, only_nats

SEND = JobAddress("billing.invoices", "send")


@pytest.fixture
def catalog(backend: Backend) -> Catalog:
    return backend.catalog


class TestOrders:
    async def test_are_kept_beside_the_descriptor(self, catalog: Catalog, backend: Backend):
        assert await catalog.control(SEND) is None
        now = backend.broker.now()
        paused = switch(JobControl(*SEND), paused=True, actor="ops", now=now)
        revision = await catalog.set_control(paused, 0)
        await catalog.describe(JobDescriptor(*SEND, digest="d1"))
        await catalog.describe(JobDescriptor(*SEND, digest="d2"))
        stored = await catalog.control(SEND)
        assert stored is not None
        assert (stored.control.paused, stored.control.switched_by, stored.revision) == (True, "ops", revision)
        limited = override(stored.control, 3, actor="ops", now=now)
        again = await catalog.set_control(limited, revision)
        assert again > revision
        found = await catalog.control(SEND)
        assert found is not None
        assert (found.control.max_concurrency, found.control.paused, found.revision) == (3, True, again)
        assert [each.digest for each in await catalog.jobs()] == ["d2"]

    async def test_of_two_writers_one_loses(self, catalog: Catalog, world: World):
        others = [catalog, (await world.connect()).catalog]
        revision = await catalog.set_control(JobControl(*SEND), 0)
        with pytest.raises(WrongRevision):
            await catalog.set_control(JobControl(*SEND, paused=True), 0)
        tries = [each.set_control(JobControl(*SEND, max_concurrency=n + 1), revision) for n, each in enumerate(others)]
        ended = await asyncio.gather(*tries, return_exceptions=True)
        assert [type(each) for each in ended if isinstance(each, BaseException)] == [WrongRevision]

    @only_nats
    async def test_those_deleted_by_another_tool_can_be_given_again(self, catalog: Catalog, world: World):
        assert isinstance(world, NatsWorld)
        import nats

        seen = await catalog.set_control(JobControl(*SEND, paused=True), 0)
        client = await nats.connect(world.url)
        bucket = await client.jetstream().key_value(names.jobs_bucket(world.project))
        await bucket.delete(names.control_key(SEND))
        await client.close()
        assert (await catalog.control(SEND), await catalog.controls()) == (None, [])
        with pytest.raises(WrongRevision):
            await catalog.set_control(JobControl(*SEND), seen)
        again = JobControl(*SEND, max_concurrency=2)
        revision = await catalog.set_control(again, 0)
        assert await catalog.control(SEND) == (again, revision)
        with pytest.raises(WrongRevision):
            await catalog.set_control(JobControl(*SEND), 0)

    async def test_all_of_them_by_module_and_job(self, catalog: Catalog):
        addresses = [("control", "x"), ("a.b", "x"), ("a", "z"), ("a", "y")]
        for module, job in addresses:
            await catalog.set_control(JobControl(module, job, paused=job == "x"), 0)
            await catalog.describe(JobDescriptor(module, job, digest="d"))
        found = await catalog.controls()
        assert [tuple(each.control.address) for each in found] == sorted(addresses)
        assert [each.control.paused for each in found] == [False, False, True, True]
        assert len(await catalog.jobs()) == len(addresses)

    @pytest.mark.integration
    async def test_what_nobody_can_read_counts_as_nothing_and_is_replaced(self, nats_url: str, project: str):
        world = NatsWorld(project, nats_url)
        backend = await world.connect()
        await backend.broker.ensure_project()
        subject = names.bucket_subject(names.jobs_bucket(project), names.control_key(SEND))
        await world.publish(subject, b"\xc1")
        assert await backend.catalog.controls() == []
        found = await backend.catalog.control(SEND)
        assert found is not None
        assert found.control == JobControl(*SEND)
        await backend.catalog.set_control(replace(found.control, paused=True), found.revision)
        assert [each.control.paused for each in await backend.catalog.controls()] == [True]
        await world.close()


class TestPausedConsumer:
    @pytest.fixture
    def taken(self, world: World) -> Takings:
        return Takings(world)

    async def store(self, backend: Backend, *run_ids: str) -> None:
        for run_id in run_ids:
            subject = names.trigger_subject(backend.broker.project, RunKey(*SEND, run_id))
            await backend.broker.store(Outgoing(subject, {}, run_id.encode()), expected=0)

    async def test_it_hands_out_nothing_until_it_goes_on(self, backend: Backend, world: World, taken: Takings):
        broker = backend.broker
        await broker.ensure_consumer(SEND, 2)
        (await broker.consume(SEND, taken)).allow(5)
        await self.store(backend, "a")
        (first,) = await taken.reach(1)
        await broker.ensure_consumer(SEND, 2, paused=True)
        await self.store(backend, "b", "c", "d")
        await first.renew()
        first.ack()
        await taken.reach(1)
        other = await world.connect()
        await other.broker.ensure_consumer(SEND, 2, paused=False, update=False)
        theirs = Takings(world)
        (await other.broker.consume(SEND, theirs)).allow(5)
        await taken.reach(1)
        assert len(theirs) == 0, "nor to one that comes later"
        await other.broker.ensure_consumer(SEND, 2)

        async def two_out() -> bool:
            return len(taken) + len(theirs) == 3

        await eventually(world, two_out, within=2)  # at once, and not with the next heartbeat of a pull

    async def test_a_redelivery_waits_too(self, backend: Backend, world: World, taken: Takings):
        broker = backend.broker
        await broker.ensure_consumer(SEND, 1)
        (await broker.consume(SEND, taken)).allow(5)
        await self.store(backend, "a")
        await taken.reach(1)
        await broker.ensure_consumer(SEND, 1, paused=True)
        await world.elapse(2.2)  # two ack waits
        await taken.reach(1)
        await broker.ensure_consumer(SEND, 1)
        await taken.reach(2)
        assert taken.seen == [(b"a", 1), (b"a", 2)]

    async def test_it_can_be_made_so(self, backend: Backend, taken: Takings):
        await self.store(backend, "a", "b")
        await backend.broker.ensure_consumer(SEND, 1, paused=True)
        (await backend.broker.consume(SEND, taken)).allow(1)
        await taken.reach(0)
        await backend.broker.ensure_consumer(SEND, 3, paused=True)
        await taken.reach(0)
        await backend.broker.ensure_consumer(SEND, 3)
        await taken.reach(1)


class TestDoorbell:
    async def test_all_hosts_hear_which_job_it_is(self, backend: Backend, world: World):
        other = await world.connect()
        heard: list[tuple[str, JobAddress]] = []
        await backend.broker.hear_controls(lambda job: heard.append(("mine", job)))
        await other.broker.hear_controls(lambda job: heard.append(("theirs", job)))
        await world.rest()
        await other.broker.ring_control(SEND)

        async def both() -> bool:
            return len(heard) == 2

        await eventually(world, both)
        assert sorted(heard) == [("mine", SEND), ("theirs", SEND)]


class TestDrain:
    async def test_a_host_is_asked_and_answers(self, backend: Backend, world: World):
        other, asked = await world.connect(), list[str | None]()

        def drain(actor: str | None) -> DrainAnswer:
            asked.append(actor)
            return DrainAnswer(running=3, closes=len(asked) == 1, again=len(asked) > 1)

        await other.broker.answer_drains("box.example:1", drain)
        await world.rest()
        assert await backend.broker.ask_drain("box.example:1", "ops") == DrainAnswer(3, closes=True)
        assert await backend.broker.ask_drain("box.example:1", None) == DrainAnswer(3, closes=False, again=True)
        assert asked == ["ops", None]
        await other.close()

        async def gone() -> bool:
            try:
                return await backend.broker.ask_drain("box.example:1", "ops") is None
            except AnswerUnknown:
                return False  # the server sent it on before it knew

        await eventually(world, gone)

    async def test_nobody_of_that_id(self, backend: Backend):
        assert await backend.broker.ask_drain("nobody", "ops") is None

    @pytest.mark.integration
    async def test_nonsense_either_way(self, nats_url: str, project: str):
        import nats
        from nats.aio.msg import Msg

        world = NatsWorld(project, nats_url)
        backend = await world.connect()
        await backend.broker.ensure_project()
        asked: list[str | None] = []
        client = await nats.connect(nats_url)
        subject = signal_subjects.drain_subject(project, "h1")

        def drain(actor: str | None) -> DrainAnswer:
            asked.append(actor)
            return DrainAnswer(0, closes=False)

        await backend.broker.answer_drains("h1", drain)
        await world.rest()
        for data in (b"", b"[]", b"\xff", b'{"actor":7}'):
            assert (await client.request(subject, data, timeout=5)).data
        await client.publish(subject, b"{}", reply="jetjobs.elsewhere")
        await client.flush()
        await world.rest()
        assert asked == [None] * 4, "only an inbox is answered"

        async def nonsense(message: Msg) -> None:
            await message.respond(b'{"running":"x"}')

        await client.subscribe(signal_subjects.drain_subject(project, "h2"), cb=nonsense)
        await client.flush()
        with pytest.raises(AnswerUnknown, match="h2"):
            await backend.broker.ask_drain("h2", "ops")
        await client.close()
        await world.close()
