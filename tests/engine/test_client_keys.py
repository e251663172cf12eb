"""Idempotency keys, and what becomes of answers that are lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from jetjobs._core import codec
from jetjobs._core.lifecycle import Event
from jetjobs._core.models import (
    JobAddress,
)
from jetjobs.errors import (
    AnswerUnknown,
    BrokerUnavailable,
    DuplicateRun,
    TriggerUnconfirmed,
)
from tests.support.client_world import World


class TestKeys:
    async def test_many_callers_at_once_make_one_run(self, world: World):
        clients = [world.another() for _ in range(20)]
        for client in clients:
            await client.connect()
        jobs = [client.get_job("billing", "send") for client in clients]
        runs = await asyncio.gather(*(job.trigger({"id": 7}, idempotency_key="inv-7") for job in jobs))
        assert len({run.run_id for run in runs}) == 1
        assert [run.duplicate for run in runs].count(False) == 1
        assert not any(run.payload_differs for run in runs)
        assert len(world.subjects()) == 1

    @pytest.mark.parametrize("where", ["queued", "running", "finished", "scheduled"])
    async def test_another_payload_is_told_wherever_the_run_is(self, world: World, where: str):
        job = world.client.get_job("billing", "send")
        first = await job.trigger({"a": 1, "b": 2}, idempotency_key="k", delay="1h" if where == "scheduled" else None)
        if where in {"running", "finished"}:
            await world.start(first.key, payload_digest=codec.digest({"a": 1, "b": 2}))
        if where == "finished":
            await world.write(first.key, Event.SUCCEED)
        same = await job.trigger({"b": 2, "a": 1}, idempotency_key="k")
        other = await job.trigger({"a": 2}, idempotency_key="k")
        assert (same.run_id, same.duplicate, same.payload_differs) == (first.run_id, True, False)
        assert (other.run_id, other.duplicate, other.payload_differs) == (first.run_id, True, True)
        assert len(world.subjects()) == 1

    async def test_large_payloads_are_compared_too(self, world: World):
        job = world.client.get_job("billing", "send")
        await job.trigger("x" * 50_000, idempotency_key="k")
        assert not (await job.trigger("x" * 50_000, idempotency_key="k")).payload_differs
        assert (await job.trigger("x" * 49_999 + "y", idempotency_key="k")).payload_differs

    async def test_a_queued_run_is_a_duplicate_of_a_delayed_call(self, world: World):
        job = world.client.get_job("billing", "send")
        first = await job.trigger(1, idempotency_key="k")
        second = await job.trigger(1, idempotency_key="k", delay="1h")
        assert (second.run_id, second.duplicate) == (first.run_id, True)
        assert len(world.subjects()) == 1

    async def test_equal_keys_of_two_jobs_stay_apart(self, world: World):
        for module, job in (("a.b", "c"), ("a", "b_c"), ("a", "c"), ("b", "c")):
            await world.describe(JobAddress(module, job))
        runs = [
            await world.client.get_job(module, job).trigger(1, idempotency_key="k")
            for module, job in (("a.b", "c"), ("a", "b_c"), ("a", "c"), ("b", "c"))
        ]
        assert len({run.run_id for run in runs}) == 4
        assert not any(run.duplicate for run in runs)

    async def test_raise_names_the_run(self, world: World):
        job = world.client.get_job("billing", "send")
        first = await job.trigger(1, idempotency_key="k", on_duplicate="raise")
        with pytest.raises(DuplicateRun) as caught:
            await job.trigger(1, idempotency_key="k", on_duplicate="raise")
        assert caught.value.run_id == first.run_id

    async def test_a_failed_run_is_retried_under_a_new_id_and_only_then(self, world: World):
        job = world.client.get_job("billing", "send")
        first = await job.trigger(1, idempotency_key="k")
        assert (await job.trigger(1, idempotency_key="k", on_duplicate="retry_failed")).run_id == first.run_id
        await world.finish(first.key, Event.FAIL)
        second = await job.trigger(1, idempotency_key="k", on_duplicate="retry_failed")
        again = await job.trigger(1, idempotency_key="k", on_duplicate="retry_failed")
        assert second.run_id.startswith("r-")
        assert (again.run_id, again.duplicate) == (second.run_id, True)
        trigger = await world.trigger_of(second.key)
        assert (trigger.info.kind, trigger.info.retry_of) == ("retry", first.run_id)
        await world.finish(second.key, Event.TIME_OUT)
        third = await job.trigger(1, idempotency_key="k", on_duplicate="retry_failed")
        assert third.run_id not in {first.run_id, second.run_id}
        await world.finish(third.key)
        assert (await job.trigger(1, idempotency_key="k", on_duplicate="retry_failed")).run_id == third.run_id


class TestLostAnswers:
    async def test_a_trigger_that_was_not_sent_is_sent_again(self, world: World):
        world.mine.fail("broker.store", times=2)
        await world.client.get_job("billing", "send").trigger(1)
        assert len(world.subjects()) == 1

    @pytest.mark.parametrize(
        "options", [{}, {"idempotency_key": "k"}, {"idempotency_key": "k", "on_duplicate": "raise"}]
    )
    async def test_a_stored_trigger_whose_answer_was_lost_is_one_run_and_no_duplicate(
        self, world: World, options: dict[str, Any]
    ):
        world.mine.fail("broker.store", when="after", times=2)
        run = await world.client.get_job("billing", "send").trigger(1, **options)
        assert not run.duplicate
        assert len(world.subjects()) == 1

    async def test_somebody_elses_run_is_told_from_an_own_unanswered_one(self, world: World):
        lost = world.mine.fail("broker.store", error=AnswerUnknown("lost on the way there"))
        second_try = world.mine.fail("broker.store", when="hang")
        job = world.client.get_job("billing", "send")
        calling = asyncio.create_task(job.trigger({"mine": 1}, idempotency_key="k"))
        await second_try.reached.wait()
        async with world.another() as other:
            first = await other.get_job("billing", "send").trigger({"other": 1}, idempotency_key="k")
        second_try.release()
        run = await calling
        assert lost.hits == 1
        assert (run.run_id, run.duplicate, run.payload_differs) == (first.run_id, True, True)
        assert len(world.subjects()) == 1

    async def test_a_broker_that_goes_after_the_write_leaves_it_open(self, world: World):
        job = world.client.get_job("billing", "send")
        await job.trigger(0)  # so that nothing has to be looked up first
        world.mine.fail("broker.store", when="after")
        second_try = world.mine.fail("broker.store", when="hang")
        calling = asyncio.create_task(job.trigger(1, idempotency_key="k", timeout=1))
        await second_try.reached.wait()
        world.mine.fail("broker.last", times=None)
        second_try.release()
        with pytest.raises(TriggerUnconfirmed) as caught:
            await calling
        assert caught.value.run_id.startswith("k-")

    async def test_without_any_answer_the_call_ends_in_time_with_the_id(self, world: World):
        world.mine.fail("broker.store", times=None, error=AnswerUnknown("lost"))
        began = time.monotonic()
        with pytest.raises(TriggerUnconfirmed) as caught:
            await world.client.get_job("billing", "send").trigger(1, timeout=0.3)
        assert time.monotonic() - began < 1.9
        assert len(caught.value.run_id) == 26

    async def test_a_broker_that_is_away_ends_the_call_in_time(self, world: World):
        job = world.client.get_job("billing", "send")
        await job.trigger(1)
        world.cluster.stop()
        choices: list[dict[str, Any]] = [{}, {"idempotency_key": "k"}, {"delay": "1h"}]
        for options in choices:
            began = time.monotonic()
            with pytest.raises(BrokerUnavailable):
                await job.trigger(1, timeout=0.3, **options)
            assert 0.2 < time.monotonic() - began < 1.9

    async def test_a_broker_that_comes_back_in_time_is_enough(self, world: World):
        job = world.client.get_job("billing", "send")
        await job.trigger(1)
        world.cluster.stop()
        calling = asyncio.create_task(job.trigger(2, idempotency_key="k"))
        await asyncio.sleep(0)
        world.cluster.start()
        assert not (await calling).duplicate

    async def test_a_hanging_look_up_ends_in_time(self, world: World):
        hanging = world.mine.fail("catalog.job", when="hang")
        with pytest.raises(BrokerUnavailable, match=r"billing\.send"):
            await world.client.get_job("billing", "send").trigger(1, timeout=0.2)
        hanging.release()
