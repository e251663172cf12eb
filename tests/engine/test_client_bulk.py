"""Runs cancelled and retried many at a time, and watched, over ports in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.lifecycle import Event
from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._core.run_changes import ChangeOutcome
from jetjobs._core.run_ids import run_id_for_retry
from jetjobs.errors import BrokerUnavailable, ClientError, ConfigError, PayloadInvalidError, RunNotFound
from tests.support.client_world import BOOM, World, failed, outcomes, packed


class TestWhichRuns:
    @pytest.mark.parametrize("verb", ["cancel", "delete", "retry"])
    async def test_neither_runs_nor_filters_is_refused(self, world: World, verb: str):
        call: Any = getattr(world.client.runs, verb)
        for filters in ({}, {"include_skipped": True}, {"job": None, "status": None}):
            with pytest.raises(ClientError, match="every run"):
                await call(**filters)
        with pytest.raises(ConfigError, match="leave the other filters out"):
            await call("r1", status="FAILED")
        with pytest.raises(ConfigError, match="limit"):
            await call(job="send", limit=0)
        with pytest.raises(ConfigError, match="no filter colour"):
            await call(colour="red")

    async def test_no_runs_are_no_runs(self, world: World):
        await failed(world, "a")
        assert not await world.client.runs.retry([])

    async def test_ids_records_and_handles_in_their_order_each_once(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        await failed(world, "a")
        record = await world.client.runs.get("a")
        changes = await world.client.runs.cancel([record, "nobody", run, "a", run.run_id, RunKey("x", "y", "z")])
        assert [(each.run_id, each.outcome.value) for each in changes[:3]] == [
            ("a", "ALREADY_FINISHED"),
            ("nobody", "NOT_FOUND"),
            (run.run_id, "CANCELLED"),
        ]
        assert isinstance(changes[1].error, RunNotFound)
        assert changes[1].run_key is None
        assert changes[0].run_key == RunKey("billing", "send", "a")

    async def test_one_that_fails_hides_no_other(self, world: World):
        runs = [await failed(world, f"r{n}") for n in range(5)]
        world.mine.fail("runs.delete", skip=2, error=PayloadInvalidError("broken"))
        changes = await world.client.runs.retry(runs)
        assert all(each.ok for each in changes)
        await world.cluster.clock.advance(3600)
        deleted = await world.client.runs.delete(runs)
        assert sorted(each.outcome.value for each in deleted) == ["DELETED"] * 4 + ["FAILED"]

    async def test_a_broker_that_is_away_fails_all_within_one_timeout(self, world: World):
        runs = [RunKey("billing", "send", f"r{n}") for n in range(500)]
        world.cluster.stop()
        async with asyncio.timeout(10):
            changes = await world.client.runs.cancel(runs, timeout=0.3)
        assert {each.outcome for each in changes} == {ChangeOutcome.FAILED}
        assert len(changes) == 500
        assert isinstance(changes[0].error, BrokerUnavailable)


class TestCancel:
    async def test_filters_find_what_waits_and_what_runs(self, world: World):
        job = world.client.get_job("billing", "send")
        queued, later = await job.trigger(1), await job.trigger(2, delay="1h")
        running = RunKey("billing", "send", "running")
        await world.start(running)
        await failed(world, "ended")
        foreseen = await world.client.runs.cancel(job="send", dry_run=True)
        assert await queued.status() is RunStatus.QUEUED
        changes = await world.client.runs.cancel(job="send")
        assert outcomes(changes) == outcomes(foreseen)
        assert outcomes(changes) == {"running": "ASKED", queued.run_id: "CANCELLED", later.run_id: "CANCELLED"}
        assert await later.status() is RunStatus.CANCELLED
        assert await world.queued() == 0

    async def test_a_status_spares_what_has_another_by_now(self, world: World):
        queued = await world.client.get_job("billing", "send").trigger(1)
        started = await world.client.get_job("billing", "send").trigger(2)
        await world.start(started.key)  # its message is still in the stream
        changes = await world.client.runs.cancel(status="queued")
        assert outcomes(changes) == {queued.run_id: "CANCELLED"}
        record = await world.client.runs.get(started.run_id)
        assert (record.status, record.cancel_asked) == (RunStatus.RUNNING, False)

    async def test_the_limit_counts_what_is_cancelled(self, world: World):
        job = world.client.get_job("billing", "send")
        for _ in range(3):
            await world.start((await job.trigger(1)).key)
        waiting = {(await job.trigger(n)).run_id for n in range(4)}
        changes = await world.client.runs.cancel(status="queued", limit=2)
        assert len(changes) == 2
        assert outcomes(changes).keys() <= waiting

    async def test_by_text_and_module(self, world: World):
        await world.start(RunKey("billing", "send", "a1"))
        await world.start(RunKey("billing", "send", "b1"))
        await world.start(RunKey("other", "send", "a2"))
        assert outcomes(await world.client.runs.cancel(module="billing", text="A")) == {"a1": "ASKED"}


class TestRetry:
    async def test_a_new_run_with_the_payload_it_had(self, world: World):
        run = await failed(world, "a", {"n": 1})
        foreseen = await world.client.runs.retry("a", dry_run=True)
        assert await world.queued() == 0
        (made,) = await world.client.runs.retry("a")
        assert foreseen == [made]
        assert (made.outcome, made.new_run_id) == (ChangeOutcome.RETRIED, run_id_for_retry(run, 1))
        trigger = await world.trigger_of(RunKey("billing", "send", made.new_run_id or ""))
        assert trigger.body is not None
        assert (trigger.body.value, trigger.info.kind, trigger.info.retry_of) == ({"n": 1}, "retry", "a")

    async def test_edited_payloads_and_none(self, world: World):
        await failed(world, "a")
        await failed(world, "b")
        (first,) = await world.client.runs.retry("a", payload={"n": 2})
        (second,) = await world.client.runs.retry("b", payload=None)
        edited = await world.trigger_of(RunKey("billing", "send", first.new_run_id or ""))
        assert edited.body is not None
        assert edited.body.value == {"n": 2}
        assert (await world.trigger_of(RunKey("billing", "send", second.new_run_id or ""))).body is None

    async def test_several_people_make_one(self, world: World):
        await failed(world, "a")
        async with world.another() as other:
            both = await asyncio.gather(world.client.runs.retry("a"), other.runs.retry("a"))
        assert sorted(each.outcome.value for (each,) in both) == ["ALREADY_RETRIED", "RETRIED"]
        assert len({each.new_run_id for (each,) in both}) == 1
        assert await world.queued() == 1

    async def test_a_row_goes_on_after_its_last_failure_and_once_a_call(self, world: World):
        first = await failed(world, "a")
        (made,) = await world.client.runs.retry("a")
        new = RunKey("billing", "send", made.new_run_id or "")
        await world.start(new, payload_body=packed(1), retry_of="a")
        assert outcomes(await world.client.runs.retry(status="failed")) == {"a": "ALREADY_RETRIED"}
        await world.write(new, Event.FAIL, error=BOOM)
        changes = await world.client.runs.retry(job="send")
        assert {each.new_run_id for each in changes} == {run_id_for_retry(first, 2)}
        assert sorted(each.outcome.value for each in changes) == ["ALREADY_RETRIED", "RETRIED"]
        third = RunKey("billing", "send", run_id_for_retry(first, 2))
        await world.finish(third)
        assert {each.outcome.value for each in await world.client.runs.retry(job="send")} == {"ALREADY_RETRIED"}

    async def test_two_of_a_row_make_one_even_if_that_fails_at_once(self, world: World):
        first = await failed(world, "a")
        await failed(world, run_id_for_retry(first, 1), retry_of="a")
        storing = world.mine.fail("broker.store", when="hang")
        retrying = asyncio.create_task(world.client.runs.retry(status="failed"))
        await storing.reached.wait()
        await failed(world, run_id_for_retry(first, 2), retry_of="a")
        storing.release()
        assert {each.new_run_id for each in await retrying} == {run_id_for_retry(first, 2)}

    async def test_filters_take_failures_and_no_success(self, world: World):
        await failed(world, "bad")
        await world.finish(RunKey("billing", "send", "good"))
        await world.finish(RunKey("billing", "send", "stopped"), Event.CANCEL)
        assert outcomes(await world.client.runs.retry(job="send")) == {"bad": "RETRIED"}
        assert outcomes(await world.client.runs.retry(status="cancelled")) == {"stopped": "RETRIED"}
        assert outcomes(await world.client.runs.retry("good")) == {"good": "RETRIED"}

    async def test_limit_takes_the_newest(self, world: World):
        for n in range(4):
            await failed(world, f"r{n}")
            await world.cluster.clock.advance(1)
        assert list(outcomes(await world.client.runs.retry(error_type="ValueError", limit=2))) == ["r3", "r2"]

    async def test_a_large_payload_is_copied_and_a_lost_one_told(self, world: World):
        claim = await world.host.payloads.put("a", "in", "d", codec.encode("x" * 30_000))
        run = RunKey("billing", "send", "a")
        await world.start(run, payload_body=Body(claim=claim))
        await world.write(run, Event.FAIL, error=BOOM)
        (made,) = await world.client.runs.retry("a")
        await world.host.payloads.purge("a")
        trigger = await world.trigger_of(RunKey("billing", "send", made.new_run_id or ""))
        assert trigger.body is not None
        assert trigger.body.claim is not None
        assert codec.decode(await world.host.payloads.get(trigger.body.claim)) == "x" * 30_000
        other = RunKey("billing", "send", "b")
        await world.start(other, payload_body=Body(claim=claim))
        await world.write(other, Event.FAIL, error=BOOM)
        (lost,) = await world.client.runs.retry("b")
        assert lost.outcome is ChangeOutcome.FAILED
        assert isinstance(lost.error, PayloadInvalidError)

    async def test_a_stub_asks_for_a_payload(self, world: World):
        await failed(world, "a", payload_digest=codec.digest(1))
        await world.client.runs.delete("a")
        (told,) = await world.client.runs.retry("a")
        assert "payload=" in str(told.error)
        assert outcomes(await world.client.runs.retry("a", payload=1)) == {"a": "RETRIED"}


class TestWatch:
    async def test_each_change_until_the_client_is_closed(self, world: World):
        run = RunKey("billing", "send", "a")
        seen: list[RunStatus] = []

        async def look() -> None:
            async for record in world.client.runs.watch(heartbeat="20ms", job="send"):
                if record is None:
                    began.set()
                else:
                    seen.append(record.status)
                    heard.set()

        began, heard = asyncio.Event(), asyncio.Event()
        looking = asyncio.create_task(look())
        async with asyncio.timeout(10):
            await began.wait()
            await world.start(RunKey("billing", "other", "x"))
            await world.start(run)
            await heard.wait()
            heard.clear()
            world.cluster.stop()
            await asyncio.sleep(0)
            world.cluster.start()
            await world.write(run, Event.FAIL, error=BOOM)
            await heard.wait()
            await world.client.close()
            await looking
        assert seen == [RunStatus.RUNNING, RunStatus.FAILED]

    async def test_what_is_there_first(self, world: World):
        for name in ("a", "b"):
            await failed(world, name)
            await world.cluster.clock.advance(2)
        watch = world.client.runs.watch(existing=True, status="failed")
        async with asyncio.timeout(10):
            ids = [(await anext(watch)).run_id for _ in range(2)]
            await failed(world, "c")
            ids.append((await anext(watch)).run_id)
        assert ids == ["b", "a", "c"]


async def test_iteration_over_more_than_is_held_misses_none(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jetjobs._client.scanning._HELD", 3)
    made: list[str] = []
    for n in range(30):
        await failed(world, f"r{n:02}")
        made.insert(0, f"r{n:02}")
        if n % 4 == 0:
            await world.cluster.clock.advance(5)
    # Those written last were made first: everything has to wait for its turn.
    for name in made:
        stored = await world.host.runs.get(RunKey("billing", "send", name))
        assert stored is not None
        await world.host.runs.update(stored.record, stored.revision)
    found: list[RunRecord] = [record async for record in world.client.runs.iter()]
    assert sorted(record.run_id for record in found) == sorted(made)
    assert [record.created_at for record in found] == sorted((r.created_at for r in found), key=str, reverse=True)
