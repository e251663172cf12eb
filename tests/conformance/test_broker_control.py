from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._ports import Backend, Broker
from tests.support.worlds import World, eventually

# A listener is in force after its connection's next round trip, which `world.rest` makes.

RUN = RunKey("billing.invoices", "send", "r1")
OTHER = RunKey("billing", "send", "r1")
ENDED = RunRecord("r1", "billing.invoices", "send", RunStatus.SUCCEEDED)
LONG = timedelta(seconds=30)


@pytest.fixture
def broker(backend: Backend) -> Broker:
    return backend.broker


@pytest.fixture
async def other(world: World, backend: Backend) -> Backend:
    return await world.connect()


class TestAsking:
    async def test_nobody_there_is_a_no(self, broker: Broker):
        assert not await broker.ask_owner("nobody", RUN, "c1")

    async def test_the_owner_answers_by_run_and_claim(self, broker: Broker, other: Backend, world: World):
        asked: list[tuple[RunKey, str | None]] = []

        def holds(run: RunKey, claim: str | None) -> bool:
            asked.append((run, claim))
            return run == RUN and claim in {"c1", None}

        await other.broker.answer_asks("box.example:1", holds)
        await world.rest()
        assert await broker.ask_owner("box.example:1", RUN, "c1")
        assert await broker.ask_owner("box.example:1", RUN, None)
        assert not await broker.ask_owner("box.example:1", RUN, "c2")
        assert not await broker.ask_owner("box.example:1", OTHER, "c1")
        assert not await broker.ask_owner("box.example:2", RUN, "c1")
        assert asked == [(RUN, "c1"), (RUN, None), (RUN, "c2"), (OTHER, "c1")]

    async def test_one_that_has_left_answers_no_more(self, broker: Broker, other: Backend, world: World):
        await other.broker.answer_asks("h2", lambda _run, _claim: True)
        await world.rest()
        assert await broker.ask_owner("h2", RUN, "c1")
        await other.close()
        assert not await broker.ask_owner("h2", RUN, "c1")


class TestDoorbell:
    async def test_all_hosts_hear_it(self, broker: Broker, other: Backend, world: World):
        heard: list[tuple[str, RunKey]] = []
        await broker.hear_cancels(lambda run: heard.append(("mine", run)))
        await other.broker.hear_cancels(lambda run: heard.append(("theirs", run)))
        await world.rest()
        await broker.ring_cancel(RUN)
        await other.broker.ring_cancel(OTHER)

        async def both_twice() -> bool:
            return len(heard) >= 4

        await eventually(world, both_twice)
        await world.rest()
        assert sorted(heard) == sorted([("mine", RUN), ("theirs", RUN), ("mine", OTHER), ("theirs", OTHER)])

    async def test_without_anybody_to_hear_it_it_is_harmless(self, broker: Broker):
        await broker.ring_cancel(RUN)


class TestEnds:
    async def test_a_listener_hears_of_its_run(self, broker: Broker, other: Backend, world: World):
        async with broker.ended(RUN) as wait:
            waiting = asyncio.ensure_future(wait(LONG))
            await world.rest()
            other.broker.announce_end(ENDED)
            assert await asyncio.wait_for(waiting, 10)

    async def test_an_end_before_the_wait_is_not_missed(self, broker: Broker, other: Backend, world: World):
        async with broker.ended(RUN) as wait:
            await world.rest()
            other.broker.announce_end(ENDED)
            assert await asyncio.wait_for(wait(LONG), 10)
            assert await asyncio.wait_for(wait(LONG), 10)

    async def test_another_run_s_end_is_no_news(self, broker: Broker, other: Backend, world: World):
        async with broker.ended(OTHER) as wait:
            other.broker.announce_end(ENDED)
            await world.rest()
            waiting = asyncio.ensure_future(wait(timedelta(seconds=0.3)))

            async def over() -> bool:
                return waiting.done()

            await eventually(world, over)
            assert waiting.result() is False

    async def test_several_listeners_hear_the_same_end(self, broker: Broker, other: Backend, world: World):
        async with broker.ended(RUN) as first, other.broker.ended(RUN) as second:
            await world.rest()
            broker.announce_end(ENDED)
            assert await asyncio.wait_for(asyncio.gather(first(LONG), second(LONG)), 10) == [True, True]
