"""What a client orders for jobs, over ports in memory that can fail."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.models import JobAddress
from jetjobs._ports import DrainAnswer
from jetjobs.cli.jobs import limit_text
from jetjobs.cli.orders import orders_text
from jetjobs.cli.shapes import job_document
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, ConfigError, HostNotFound, UnknownJobError
from tests.support.client_world import SEND, World


@pytest.fixture
async def world() -> World:
    made = World()
    await made.describe()
    return made


class TestPauseAndResume:
    async def test_it_shows_who_and_when(self, world: World):
        async with world.client:
            before = await world.client.jobs.get(*SEND)
            assert (before.paused, before.control) == (False, None)
            paused = await world.client.jobs.pause(*SEND, actor="ops")
            assert paused.paused
            assert paused.control is not None
            assert paused.control.switched_by == "ops"
            assert paused.control.switched_at is not None
            assert await world.client.jobs.get("billing.send") == paused
            assert [job.paused for job in await world.client.jobs.list()] == [True]
            again = await world.client.jobs.pause("billing.send", actor="another")
            assert again == paused, "who paused it stays"
            resumed = await world.client.jobs.resume(*SEND, actor="boss")
            assert resumed.control is not None
            assert (resumed.paused, resumed.control.switched_by) == (False, "boss")

    async def test_what_is_ordered_for_a_job_shows_under_its_old_names_too(self, world: World):
        """It holds there: whoever asks by the old name must not be told that nothing is in the way."""
        old = JobAddress("billing", "post")
        await world.host.catalog.describe(JobDescriptor(*old, max_concurrency=8, digest="o", now_called="send"))
        async with world.client:
            await world.client.jobs.override(*SEND, max_concurrency=2, actor="ops")
            await world.client.jobs.pause(*SEND, actor="ops")
            for shown in (await world.client.jobs.get(*old), (await world.client.jobs.list())[0]):
                assert (shown.address, shown.paused, shown.limit, shown.control) == (old, True, 2, None)
                assert "paused (as billing.send, ops, " in orders_text(shown)
                assert "limit 2 (instead of 8, as billing.send, ops, " in orders_text(shown)
                assert limit_text(shown) == "2 (not 8)"
                document = job_document(shown, 1)
                assert (document["paused"], document["switched_by"]) == (True, "ops")
                assert (document["limit"], document["limited_by"]) == (2, "ops")
            resumed = await world.client.jobs.resume(*old)
            assert resumed.paused, "under its present name it is paused still"
            assert (await world.client.get_job(*old).trigger()).paused
            await world.client.jobs.resume(*SEND)
            again = await world.client.jobs.get(*old)
            assert (again.paused, again.limit) == (False, 2)
            await world.client.jobs.pause(*old, actor="me")
            assert "paused (me, " in orders_text(await world.client.jobs.get(*old))
            assert not (await world.client.jobs.get(*SEND)).paused, "an old name's pause is its own"

    async def test_resuming_what_nobody_paused_writes_nothing(self, world: World):
        async with world.client:
            assert (await world.client.jobs.resume(*SEND)).control is None
            assert world.mine.calls["catalog.set_control"] == 0

    async def test_an_unknown_job_has_close_names(self, world: World):
        async with world.client:
            with pytest.raises(UnknownJobError) as caught:
                await world.client.jobs.pause("billing", "sendd")
            assert caught.value.close_names == ("billing.send",)

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_lost_answer_is_no_matter(self, world: World, when: str):
        async with world.client:
            world.mine.fail("catalog.set_control", when=when)  # pyright: ignore[reportArgumentType]
            assert (await world.client.jobs.pause(*SEND, actor="ops")).paused
            assert (await world.client.jobs.get(*SEND)).paused

    @pytest.mark.parametrize("error", [BrokerUnavailable, AnswerUnknown])
    async def test_what_is_never_confirmed_is_told(self, world: World, error: type[Exception]):
        async with world.client:
            world.mine.fail("catalog.set_control", times=None, error=error("lost"))
            with pytest.raises(error, match=r"billing\.send"):
                await world.client.jobs.pause(*SEND, timeout=0.3)

    async def test_a_bell_nobody_hears_is_no_matter(self, world: World):
        async with world.client:
            world.mine.fail("broker.ring_control")
            assert (await world.client.jobs.pause(*SEND)).paused

    async def test_two_at_once_both_count(self, world: World):
        async with world.client:
            jobs = world.client.jobs
            await asyncio.gather(jobs.pause(*SEND, actor="a"), jobs.override(*SEND, max_concurrency=3, actor="b"))
            found = await jobs.get(*SEND)
            assert (found.paused, found.limit, found.max_concurrency) == (True, 3, 1)


class TestOverride:
    async def test_a_limit_comes_and_goes(self, world: World):
        async with world.client:
            jobs = world.client.jobs
            assert (await jobs.override(*SEND, max_concurrency=5, actor="ops")).limit == 5
            ended = await jobs.override(*SEND, max_concurrency=None, actor="boss")
            assert ended.limit == ended.max_concurrency == 1
            assert ended.control is not None
            assert ended.control.limited_by == "boss"

    @pytest.mark.parametrize("limit", [0, -1, 1.5, "4"])
    async def test_no_limit(self, world: World, limit: object):
        async with world.client:
            with pytest.raises(ConfigError, match="max_concurrency"):
                await world.client.jobs.override(*SEND, max_concurrency=limit)  # pyright: ignore[reportArgumentType]


class TestTriggers:
    async def test_a_trigger_of_a_paused_job_is_stored_and_says_so(self, world: World):
        async with world.client:
            handle = world.client.get_job(*SEND)
            assert not (await handle.trigger()).paused
            await world.client.jobs.pause(*SEND)
            run = await handle.trigger()
            keyed = await handle.trigger(idempotency_key="k")
            assert (run.paused, keyed.paused) == (True, True)
            assert await run.status() == "QUEUED"
            await world.client.jobs.resume(*SEND)
            assert not (await handle.trigger()).paused

    async def test_what_others_paused_is_seen(self, world: World):
        async with world.client, world.another() as other:
            await other.jobs.pause(*SEND)
            assert (await world.client.get_job(*SEND).trigger()).paused

    async def test_who_may_not_look_triggers_all_the_same(self, world: World):
        async with world.client:
            world.mine.fail("catalog.controls", times=None, error=BrokerUnavailable("away"))
            run = await world.client.get_job(*SEND).trigger(timeout=1)
            assert not run.paused


async def test_a_drain_waits_an_outage_out_and_no_silent_host(world: World):
    answer = DrainAnswer(running=0, closes=True, again=False)
    await world.host.broker.answer_drains("h1", lambda _: answer)
    async with world.client:
        world.mine.fail("broker.ask_drain", times=2)
        assert await world.client.hosts.drain("h1") == answer
        silent = world.mine.fail("broker.ask_drain", times=None, error=AnswerUnknown("no word"))
        with pytest.raises(AnswerUnknown):
            await world.client.hosts.drain("h1")
        assert silent.hits == 1
        silent.release()
        world.mine.fail("broker.ask_drain", times=None)
        with pytest.raises(BrokerUnavailable):
            await world.client.hosts.drain("h1", timeout=0.3)


async def test_a_host_that_isnt_there(world: World):
    async with world.client:
        with pytest.raises(HostNotFound, match="'nobody'"):
            await world.client.hosts.drain("nobody")
