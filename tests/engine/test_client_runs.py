"""Waiting for runs, and looking at them."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import Any

import pytest

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.models import LogLine, RunError, RunKey, RunStatus
from jetjobs.errors import (
    AmbiguousRunId,
    ClientError,
    ConfigError,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunSkipped,
    UnknownJobError,
)
from tests.support.client_world import SEND, World, packed


class TestWait:
    async def test_an_announced_end_is_heard(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        waiting = asyncio.create_task(run.wait(timeout=5))
        await world.start(run.key)
        await world.write(run.key, Event.SUCCEED, result_body=packed({"ok": 1}))
        record = await waiting
        assert (record.status, record.result) == (RunStatus.SUCCEEDED, {"ok": 1})
        assert await run.result() == {"ok": 1}

    async def test_an_end_nobody_announced_is_found(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        waiting = asyncio.create_task(run.wait(timeout=5))
        await world.start(run.key)
        stored = await world.host.runs.get(run.key)
        assert stored is not None
        ended = advance(stored.record, Event.FAIL, error=RunError("ValueError", "boom"))
        await world.host.runs.update(ended, stored.revision)
        assert (await waiting).status is RunStatus.FAILED

    async def test_the_deadline_holds_also_when_the_broker_is_away(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        for away in (False, True):
            if away:
                world.cluster.stop()
            began = time.monotonic()
            with pytest.raises(TimeoutError, match=r"0\.4 s"):
                await run.wait(timeout=0.4)
            assert 0.35 < time.monotonic() - began < 5

    async def test_a_hanging_read_does_not_move_the_deadline(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        hanging = world.mine.fail("runs.get", when="hang", times=None)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await run.wait(timeout=0.3)
        assert time.monotonic() - began < 5
        hanging.release()

    async def test_an_outage_in_between_does_no_harm(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        world.cluster.stop()
        waiting = asyncio.create_task(run.wait(timeout=5))
        await asyncio.sleep(0)
        world.cluster.start()
        await world.finish(run.key)
        assert (await waiting).ok

    async def test_waiting_for_nothing_is_refused(self, world: World):
        with pytest.raises(RunNotFound):
            await world.client.run("billing", "send", "nope").wait(timeout=5)

    async def test_it_can_be_cancelled(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        waiting = asyncio.create_task(run.wait())
        await asyncio.sleep(0.02)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    async def test_a_large_result_is_fetched(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        claim = await world.host.payloads.put(run.run_id, "out", "c1", codec.encode(["x"] * 9000))
        await world.finish(run.key, result_body=Body(claim=claim))
        assert await run.result() == ["x"] * 9000
        assert (await run.wait()).result == ["x"] * 9000

    @pytest.mark.parametrize(
        "event, changes, error, text",
        [
            (Event.FAIL, {"error": RunError("ValueError", "boom")}, RunFailed, "ValueError: boom"),
            (Event.CANCEL, {}, RunCancelled, "cancelled"),
            (Event.SKIP, {"skip_reason": "nothing new"}, RunSkipped, "nothing new"),
        ],
    )
    async def test_an_end_without_value_raises_with_the_record(
        self, world: World, event: Event, changes: dict[str, Any], error: type[Exception], text: str
    ):
        run = await world.client.get_job("billing", "send").trigger(1)
        ended = await world.finish(run.key, event, **changes)
        assert (await run.wait()).status is ended.status
        with pytest.raises(error, match=text) as caught:
            await run.result()
        assert caught.value.record == ended  # pyright: ignore[reportAttributeAccessIssue]


class TestRuns:
    async def test_a_run_is_found_by_its_id_alone_wherever_it_is(self, world: World):
        job = world.client.get_job("billing", "send")
        queued, scheduled, ended = await job.trigger(1), await job.trigger(2, delay="1h"), await job.trigger(3)
        await world.finish(ended.key)
        for run, status in ((queued, "QUEUED"), (scheduled, "SCHEDULED"), (ended, "SUCCEEDED")):
            record = await world.client.runs.get(run.run_id)
            assert (record.run_key, record.status) == (run.key, status)
            assert await world.client.runs.get(run.run_id, module="billing", job="send") == record
        with pytest.raises(RunNotFound):
            await world.client.runs.get(ended.run_id, module="reports")

    async def test_one_id_of_two_jobs_is_ambiguous_until_one_is_named(self, world: World):
        for module in ("a", "b"):
            await world.start(RunKey(module, "job", "same"))
        with pytest.raises(AmbiguousRunId, match=r"a\.job, b\.job"):
            await world.client.runs.get("same")
        assert (await world.client.runs.get("same", module="b")).module == "b"

    async def test_lists_are_newest_first_and_page_by_record(self, world: World):
        keys: list[RunKey] = []
        for n in range(7):
            run = RunKey("billing", "send", f"r{n}")
            await world.finish(run, Event.FAIL if n % 2 else Event.SUCCEED)
            await world.cluster.clock.advance(1)
            keys.insert(0, run)
        first = await world.client.runs.list(limit=3)
        rest = await world.client.runs.list(limit=10, before=first[-1])
        assert [record.run_key for record in (*first, *rest)] == keys
        assert [record.run_key async for record in world.client.runs.iter()] == keys
        failed = await world.client.runs.list(status="failed")
        assert [record.run_id for record in failed] == ["r5", "r3", "r1"]

    async def test_filters(self, world: World):
        now = world.cluster.now()
        await world.finish(RunKey("billing", "send", "a"), Event.FAIL, error=RunError("KeyError", "no such Thing"))
        await world.finish(RunKey("billing", "other", "b"), logs=(LogLine(now, "info", "sent it"),))
        await world.finish(RunKey("reports", "daily", "c"), Event.SKIP)
        await world.cluster.clock.advance(10)
        await world.start(RunKey("reports", "daily", "d"))

        async def ids(**filters: Any) -> set[str]:
            return {record.run_id for record in await world.client.runs.list(**filters)}

        assert await ids() == {"a", "b", "d"}
        assert await ids(include_skipped=True) == {"a", "b", "c", "d"}
        assert await ids(module="billing") == {"a", "b"}
        assert await ids(module="billing", job="other") == {"b"}
        assert await ids(job="daily", include_skipped=True) == {"c", "d"}
        assert await ids(error_type="KeyError") == {"a"}
        assert await ids(text="thing") == {"a"}
        assert await ids(text="sent") == {"b"}
        assert await ids(status=["running", "Skipped"]) == {"c", "d"}
        assert await ids(since=now + timedelta(seconds=5)) == {"d"}
        assert await ids(until=now + timedelta(seconds=5)) == {"a", "b"}

    async def test_what_a_list_cannot_show_is_refused(self, world: World):
        with pytest.raises(ClientError, match="no record"):
            await world.client.runs.list(status="queued")
        with pytest.raises(ConfigError):
            await world.client.runs.list(status="done")
        with pytest.raises(ConfigError):
            await world.client.runs.list(limit=0)
        with pytest.raises(ConfigError):
            await world.client.runs.list(since=datetime(2030, 1, 1))  # noqa: DTZ001

    async def test_jobs_and_hosts(self, world: World):
        assert [job.address for job in await world.client.jobs.list()] == [SEND]
        assert (await world.client.jobs.get("billing.send")).address == SEND
        with pytest.raises(UnknownJobError):
            await world.client.jobs.get("billing", "snd")
        assert [host.host_id for host in await world.client.hosts.list()] == ["h1"]
