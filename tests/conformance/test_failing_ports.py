from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus
from jetjobs._ports import Backend, Delivery
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, StorageFull
from jetjobs.testing import FailingBackend, MemoryCluster, memory_backend

JOB = JobAddress("m", "j")
RUN = RunKey("m", "j", "a")
RECORD = RunRecord("a", "m", "j", RunStatus.RUNNING)


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster(ack_wait=timedelta(seconds=1))


@pytest.fixture
def failing(cluster: MemoryCluster) -> FailingBackend:
    return FailingBackend(memory_backend(cluster))


async def test_without_failures_it_is_the_backend_and_counts(failing: FailingBackend):
    backend: Backend = failing
    revision = await backend.runs.create(RECORD)
    await backend.runs.update(RECORD, revision)
    assert [stored.record async for stored in backend.runs.scan()] == [RECORD]
    assert backend.broker.project == "test"
    assert backend.broker.connected_since is not None
    assert await backend.payloads.get(await backend.payloads.put("a", "in", "x", b"1")) == b"1"
    assert backend.broker.now().tzinfo is not None
    assert failing.calls == {
        "runs.create": 1,
        "runs.update": 1,
        "runs.scan": 1,
        "payloads.put": 1,
        "payloads.get": 1,
    }


async def test_before_leaves_no_effect(failing: FailingBackend):
    failure = failing.fail("runs.create", when="before", times=2)
    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            await failing.runs.create(RECORD)
    assert await failing.runs.get(RUN) is None
    await failing.runs.create(RECORD)
    assert (failure.hits, failing.calls["runs.create"]) == (2, 3)


async def test_after_leaves_the_effect_and_no_answer(failing: FailingBackend):
    failing.fail("runs.create", when="after")
    with pytest.raises(AnswerUnknown):
        await failing.runs.create(RECORD)
    assert await failing.runs.get(RUN) is not None


async def test_calls_before_the_nth_pass(failing: FailingBackend):
    failing.fail("runs.get", skip=2)
    assert [await failing.runs.get(RUN) for _ in range(2)] == [None, None]
    with pytest.raises(BrokerUnavailable):
        await failing.runs.get(RUN)
    assert await failing.runs.get(RUN) is None


async def test_until_released(failing: FailingBackend):
    failure = failing.fail("broker.last", times=None, error=StorageFull("full"))
    for _ in range(3):
        with pytest.raises(StorageFull):
            await failing.broker.last("jetjobs.test.>")
    failure.release()
    assert await failing.broker.last("jetjobs.test.>") is None


async def test_hanging_calls_go_on_when_released(failing: FailingBackend):
    failure = failing.fail("runs.create", when="hang")
    creating = asyncio.ensure_future(failing.runs.create(RECORD))
    await asyncio.wait_for(failure.reached.wait(), 5)
    assert await failing.runs.get(RUN) is None
    assert not creating.done()
    failure.release()
    assert await asyncio.wait_for(creating, 5) > 0


async def test_a_scan_may_fail_at_its_begin_or_at_its_end(failing: FailingBackend):
    await failing.runs.create(RECORD)
    failing.fail("runs.scan", when="before")
    failing.fail("runs.scan", when="after")
    seen: list[RunRecord] = []  # a list is made whole or not at all
    for _ in range(2):
        with pytest.raises((BrokerUnavailable, AnswerUnknown)):
            seen.extend([stored.record async for stored in failing.runs.scan()])
    assert seen == []
    assert [stored.record async for stored in failing.runs.scan()] == [RECORD]


async def test_an_ack_may_be_lost(failing: FailingBackend, cluster: MemoryCluster):
    taken: list[Delivery] = []
    await failing.broker.ensure_consumer(JOB, 1)
    (await failing.broker.consume(JOB, taken.append)).allow(5)
    subject = names.trigger_subject("test", RUN)
    await failing.broker.store(Outgoing(subject))
    await cluster.clock.settle()
    failing.fail("delivery.ack")
    taken[0].ack()
    assert await failing.broker.last(subject) is not None
    await cluster.clock.advance(1.1)
    assert [delivery.message.num_delivered for delivery in taken] == [1, 2]
    failing.fail("delivery.renew", when="after")
    with pytest.raises(AnswerUnknown):
        await taken[1].renew()
    taken[1].ack()
    assert await failing.broker.last(subject) is None
    assert failing.calls["delivery.ack"] == 2


async def test_listening_for_an_end_and_telling_it_pass(failing: FailingBackend):
    async with failing.broker.ended(RUN) as wait:
        failing.broker.announce_end(RECORD)
        assert await asyncio.wait_for(wait(timedelta(seconds=5)), 5)
    failing.fail("broker.announce_end")
    failing.broker.announce_end(RECORD)
    assert failing.calls["broker.announce_end"] == 2
