"""Delayed runs, and many triggers at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from jetjobs._core.models import (
    RunStatus,
)
from jetjobs.client import JobRun, TriggerError, TriggerRequest
from jetjobs.errors import (
    ClientError,
    ConfigError,
    DuplicateRun,
    InvalidNameError,
    PayloadError,
    RunNotFound,
    StorageFull,
    UnknownJobError,
)
from jetjobs.outcomes import Discard, JobInterrupted
from jetjobs.testing.failing import When
from tests.support.client_world import SEND, World


class TestDelayed:
    async def test_it_is_scheduled_and_then_queued(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1, delay="1h", start_within="1m")
        assert await run.status() is RunStatus.SCHEDULED
        record = await run.record()
        due = world.cluster.now() + timedelta(hours=1)
        assert (record.scheduled_for, record.start_deadline) == (due, due + timedelta(minutes=1))
        assert (record.trigger.kind, record.payload) == ("delayed", 1)
        assert not await world.queued()
        await world.cluster.clock.advance(3601)
        assert await run.status() is RunStatus.QUEUED
        assert (await world.trigger_of(run.key)).info.kind == "delayed"

    async def test_a_past_instant_is_queued_at_once(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1, at=world.cluster.now() - timedelta(days=1))
        assert await run.status() is RunStatus.QUEUED

    async def test_it_can_be_moved_and_all_that_counts_from_it_moves_along(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(
            {"a": 1}, delay="1h", start_within="1m", idempotency_key="k", expires_in="1d"
        )
        before = await run.record()
        new = world.cluster.now() + timedelta(minutes=10)
        await run.reschedule(new)
        record = await run.record()
        assert (record.scheduled_for, record.start_deadline) == (new, new + timedelta(minutes=1))
        assert (record.key, record.payload, record.expires_at) == ("k", {"a": 1}, new + timedelta(days=1))
        assert record.trigger.kind == before.trigger.kind
        await world.cluster.clock.advance(601)
        assert await run.status() is RunStatus.QUEUED
        assert len(world.subjects()) == 1

    async def test_it_cannot_be_moved_within_a_second_or_later(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1, delay="10s")
        await world.cluster.clock.advance(9.1)
        with pytest.raises(ClientError, match="less than 1 s"):
            await run.reschedule(world.cluster.now() + timedelta(hours=1))
        await world.cluster.clock.advance(2)
        with pytest.raises(ClientError, match="QUEUED, not SCHEDULED"):
            await run.reschedule(world.cluster.now() + timedelta(hours=1))

    async def test_a_lost_answer_moves_it_once(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1, delay="1h")
        world.mine.fail("broker.store", when="after")
        new = world.cluster.now() + timedelta(hours=2)
        await run.reschedule(new)
        assert (await run.record()).scheduled_for == new

    async def test_an_unknown_run_cannot_be_moved(self, world: World):
        with pytest.raises(RunNotFound):
            await world.client.run("billing", "send", "nope").reschedule(world.cluster.now())


class TestMany:
    async def test_answers_come_in_order_and_bad_ones_spoil_nothing(self, world: World):
        requests = [
            TriggerRequest("billing.send", 0),
            TriggerRequest(("billing", "nope"), 1),
            TriggerRequest(("billing", "send"), object()),
            TriggerRequest("*", 3),
            TriggerRequest("billing.send", 4, delay="soon"),
            TriggerRequest("billing.send", 5, idempotency_key="k", on_duplicate="raise"),
            TriggerRequest("billing.send", 5, idempotency_key="k", on_duplicate="raise"),
            TriggerRequest("billing.send", 7),
        ]
        results = await world.client.trigger_many(requests)
        kinds = [type(result.error) if isinstance(result, TriggerError) else JobRun for result in results]
        assert kinds[:5] == [JobRun, UnknownJobError, PayloadError, InvalidNameError, ConfigError]
        assert sorted(kinds[5:7], key=repr) == sorted([JobRun, DuplicateRun], key=repr)
        assert kinds[7] is JobRun
        assert len(world.subjects()) == 3

    async def test_what_is_no_request_is_told_in_its_place(self, world: World):
        wrong: Any = [(SEND, 1), "billing.send"]
        told = await world.client.trigger_many([wrong[0], TriggerRequest("billing.send", 2), wrong[1]])
        assert [type(answer) for answer in told] == [TriggerError, JobRun, TriggerError]
        assert isinstance(told[0], TriggerError)
        assert "takes TriggerRequest(job, payload, …), not tuple" in str(told[0].error)

    @pytest.mark.parametrize("job", [None, 5, ["billing", "send"], ("a", "b", "c"), ("a",), ("a", ["b"]), "nodot", {}])
    async def test_what_names_no_job_spoils_no_other(self, world: World, job: Any):
        told, run = await world.client.trigger_many([TriggerRequest(job), TriggerRequest("billing.send", 1)])
        assert isinstance(told, TriggerError)
        assert isinstance(told.error, InvalidNameError)
        assert isinstance(run, JobRun)

    @pytest.mark.parametrize("error", [LookupError("no more rows"), Discard("no more rows"), JobInterrupted("cancel")])
    async def test_what_the_iterable_raises_comes_as_it_is(self, world: World, error: BaseException):
        def broken() -> Iterator[TriggerRequest]:
            yield TriggerRequest("billing.send", 1)
            raise error

        with pytest.raises(type(error)) as raised:
            await world.client.trigger_many(broken())
        assert raised.value is error
        assert len(world.subjects()) == 1

    async def test_a_thousand_from_an_iterator_each_once(self, world: World):
        results = await world.client.trigger_many(TriggerRequest("billing.send", n) for n in range(1000))
        assert len(world.subjects()) == 1000
        for n in (0, 499, 999):
            result = results[n]
            assert isinstance(result, JobRun)
            body = (await world.trigger_of(result.key)).body
            assert body is not None
            assert body.value == n

    @pytest.mark.parametrize("when,error", [("after", None), ("before", None), ("before", StorageFull("no room"))])
    async def test_a_batch_that_fails_is_sent_one_by_one(self, world: World, when: When, error: Exception | None):
        failed = world.mine.fail("broker.store_together", when=when, error=error)
        requests = [TriggerRequest("billing.send", n) for n in range(300)]
        results = await world.client.trigger_many([*requests, TriggerRequest("billing.send", 1, idempotency_key="k")])
        assert failed.hits == 1
        assert len(world.subjects()) == 301
        assert all(isinstance(result, JobRun) and not result.duplicate for result in results)
        assert world.mine.calls["broker.store"] == 301

    async def test_few_take_no_batch(self, world: World):
        results = await world.client.trigger_many(TriggerRequest("billing.send", n) for n in range(20))
        assert len(results) == len(world.subjects()) == 20
        assert world.mine.calls["broker.store_together"] == 0

    async def test_none_gives_none(self, world: World):
        assert await world.client.trigger_many([]) == []

    async def test_a_broker_that_is_away_ends_it_once_for_all(self, world: World):
        await world.client.get_job(str(SEND)).trigger(1)
        world.cluster.stop()
        began = time.monotonic()
        results = await world.client.trigger_many([TriggerRequest("billing.send", n) for n in range(2000)], timeout=0.4)
        assert time.monotonic() - began < 2
        assert len(results) == 2000
        assert all(isinstance(result, TriggerError) for result in results)
