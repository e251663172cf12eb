"""Cancelling a run, wherever it is."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from jetjobs._core import headers
from jetjobs._core.descriptors import HostPresence
from jetjobs._core.lifecycle import Event
from jetjobs._core.models import (
    RunStatus,
)
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import describe_retention
from jetjobs.client import CancelOutcome, CancelResult
from jetjobs.errors import (
    AnswerUnknown,
    BrokerUnavailable,
    RunNotFound,
)
from tests.support.client_world import World


class TestCancel:
    @pytest.mark.parametrize("delay", [None, "1h"])
    async def test_a_waiting_run_never_starts(self, world: World, delay: str | None):
        run = await world.client.get_job("billing", "send").trigger({"a": 1}, idempotency_key="k", delay=delay)
        assert await run.cancel() == CancelResult(CancelOutcome.CANCELLED, RunStatus.CANCELLED)
        record = await run.record()
        assert (record.status, record.key, record.payload, record.starts) == (
            RunStatus.CANCELLED,
            "k",
            {"a": 1},
            0,
        )
        assert world.subjects() == []
        assert (await run.wait(timeout=1)).status is RunStatus.CANCELLED
        assert (await run.cancel()).outcome is CancelOutcome.ALREADY_FINISHED

    async def test_nothing_is_written_for_an_unknown_run(self, world: World):
        with pytest.raises(RunNotFound):
            await world.client.run("billing", "send", "nope").cancel()
        assert world.mine.calls["runs.create"] + world.mine.calls["runs.update"] == 0

    async def test_a_running_run_is_asked_and_the_bell_rings(self, world: World):
        heard = asyncio.Event()
        await world.host.broker.hear_cancels(lambda _run: heard.set())
        run = await world.client.get_job("billing", "send").trigger(1)
        started = await world.start(run.key)
        assert await run.cancel() == CancelResult(CancelOutcome.ASKED, RunStatus.RUNNING)
        async with asyncio.timeout(1):
            await heard.wait()
        assert await run.record() == replace(started, cancel_asked=True)
        assert len(world.subjects()) == 1  # its message is in flight, and stays
        assert await run.cancel() == CancelResult(CancelOutcome.ASKED, RunStatus.RUNNING)

    async def test_a_retrying_run_ends_at_once_and_its_retry_goes(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        await world.start(run.key)
        record = await world.write(run.key, Event.RETRY, turn=2, retry_at=world.cluster.now() + timedelta(hours=1))
        await world.host.broker.store(headers.retry_message("test", record))
        assert (await run.cancel()).outcome is CancelOutcome.CANCELLED
        assert (await run.record()).status is RunStatus.CANCELLED
        assert world.subjects() == []

    @pytest.mark.parametrize("event", [Event.SUCCEED, Event.FAIL, Event.TIME_OUT, Event.SKIP, Event.CANCEL])
    async def test_an_ended_run_stays_what_it_is(self, world: World, event: Event):
        run = await world.client.get_job("billing", "send").trigger(1)
        ended = await world.finish(run.key, event)
        assert await run.cancel() == CancelResult(CancelOutcome.ALREADY_FINISHED, ended.status)
        assert await run.record() == ended

    async def test_a_start_between_look_and_write_is_asked(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        hanging = world.mine.fail("runs.create", when="hang")
        cancelling = asyncio.create_task(run.cancel())
        await hanging.reached.wait()
        await world.start(run.key)
        hanging.release()
        assert (await cancelling).outcome is CancelOutcome.ASKED
        assert len(world.subjects()) == 1

    async def test_an_end_between_look_and_write_wins(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        await world.start(run.key)
        hanging = world.mine.fail("runs.update", when="hang")
        cancelling = asyncio.create_task(run.cancel())
        await hanging.reached.wait()
        await world.write(run.key, Event.SUCCEED)
        hanging.release()
        assert await cancelling == CancelResult(CancelOutcome.ALREADY_FINISHED, RunStatus.SUCCEEDED)

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_lost_answer_is_recognised(self, world: World, when: Any):
        run = await world.client.get_job("billing", "send").trigger(1)
        world.mine.fail("runs.create", when=when)
        assert (await run.cancel()).outcome is CancelOutcome.CANCELLED

    async def test_two_cancellers_both_learn_the_truth(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        async with world.another() as other:
            results = await asyncio.gather(run.cancel(), other.run(*run.key).cancel())
        assert sorted(result.outcome for result in results) == [
            CancelOutcome.ALREADY_FINISHED,
            CancelOutcome.CANCELLED,
        ]

    async def test_a_purge_that_fails_leaves_the_run_cancelled(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        world.mine.fail("broker.purge", times=None)
        assert (await run.cancel()).outcome is CancelOutcome.CANCELLED

    async def test_without_broker_it_ends_in_time(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        world.mine.fail("runs.create", times=None, error=AnswerUnknown("lost"))
        with pytest.raises(AnswerUnknown, match="not confirmed"):
            await run.cancel(timeout=0.3)
        world.cluster.stop()
        with pytest.raises(BrokerUnavailable):
            await run.cancel(timeout=0.3)

    async def test_a_broker_that_goes_after_the_write_leaves_it_open(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        lost = world.mine.fail("runs.create", when="after")
        cancelling = asyncio.create_task(run.cancel(timeout=0.5))
        await lost.reached.wait()
        world.mine.fail("runs.get", times=None)
        with pytest.raises(AnswerUnknown, match="cancel of run"):
            await cancelling

    async def test_its_key_is_promised_for_as_long_as_the_hosts_keep_it(self, world: World):
        now, kept = world.cluster.now(), describe_retention(JobRetention(keys="60d"))
        await world.host.catalog.say(HostPresence("h2", "box", 1, now, now, retention=kept), timedelta(days=1))
        run = await world.client.get_job("billing", "send").trigger(1, idempotency_key="k")
        await run.cancel()
        await world.cluster.clock.advance(50 * 86_400)
        assert await world.host.runs.get(run.key) is not None
        await world.cluster.clock.advance(11 * 86_400)
        assert await world.host.runs.get(run.key) is None
