"""The client over ports in memory, some of which fail on purpose. A host is played by hand through the ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

import pytest
from pydantic import BaseModel
from structlog.testing import capture_logs

from jetjobs._core import headers, names
from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.models import (
    Body,
    HostPresence,
    JobAddress,
    JobDescriptor,
    LogLine,
    Owner,
    RunError,
    RunKey,
    RunRecord,
    RunStatus,
    Trigger,
)
from jetjobs.client import CancelOutcome, CancelResult, JobClient, JobRun, TriggerError, TriggerRequest
from jetjobs.context import JobContext
from jetjobs.errors import (
    AmbiguousHostError,
    AmbiguousRunId,
    AnswerUnknown,
    BrokerUnavailable,
    ClientError,
    ConfigError,
    DuplicateRun,
    InvalidNameError,
    JobsNotHosted,
    PayloadError,
    PayloadInvalidError,
    PayloadTooLargeError,
    PermissionMissing,
    RunCancelled,
    RunFailed,
    RunNotFound,
    RunSkipped,
    TriggerUnconfirmed,
    UnknownJobError,
)
from jetjobs.module import Module
from jetjobs.testing import FailingBackend, MemoryCluster, memory_backend

SEND = JobAddress("billing", "send")
BAD_NAMES = ["*", ">", "x.>", "a b", "a\r\nPUB x", "", "é"]


class World:
    """One project: a client whose ports can fail, and the hand that plays its hosts."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.mine = FailingBackend(memory_backend(self.cluster))
        self.host = memory_backend(self.cluster)
        self.client = JobClient(backend=self.mine, timeout=2)

    async def describe(self, address: JobAddress = SEND, *, live: bool = True) -> None:
        await self.host.catalog.describe(JobDescriptor(*address, digest="d"))
        if live:
            now = self.cluster.now()
            presence = HostPresence(
                host_id="h1", hostname="box", pid=1, version=None, started_at=now, seen_at=now, jobs=(str(address),)
            )
            await self.host.catalog.say(presence, timedelta(days=1))

    def another(self) -> JobClient:
        return JobClient(backend=memory_backend(self.cluster), timeout=2)

    async def trigger_of(self, run: RunKey) -> Trigger:
        message = await self.host.broker.last(names.trigger_subject("test", run))
        assert message is not None
        found = headers.read_trigger("test", message)
        assert isinstance(found, Trigger)
        return found

    async def queued(self) -> int:
        return sum(1 for subject in self.subjects() if ".trigger." in subject)

    def subjects(self) -> list[str]:
        stream = self.cluster.project("test").stream
        return [message.subject for message in stream.matching(">")]

    async def start(self, run: RunKey, **changes: Any) -> RunRecord:
        """Claim a run, as a host does."""
        now = self.cluster.now()
        record = RunRecord(
            run.run_id,
            run.module,
            run.job,
            RunStatus.RUNNING,
            starts=1,
            claim="host's",
            owner=Owner(1, now, 1, "h1"),
            created_at=now,
            started_at=now,
        )
        record = replace(record, **changes)
        await self.host.runs.create(record)
        return record

    async def write(self, run: RunKey, event: Event, **changes: Any) -> RunRecord:
        """Move a run on, and tell."""
        stored = await self.host.runs.get(run)
        assert stored is not None
        if event not in {Event.BEAT, Event.RETRY, Event.ASK_CANCEL, Event.CLAIM}:
            changes.setdefault("finished_at", self.cluster.now())
        record = advance(stored.record, event, **changes)
        await self.host.runs.update(record, stored.revision)
        if record.status.is_terminal:
            self.host.broker.announce_end(record)
        return record

    async def finish(self, run: RunKey, event: Event = Event.SUCCEED, **changes: Any) -> RunRecord:
        await self.start(run)
        return await self.write(run, event, **changes)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.describe()
    async with made.client:
        yield made


def packed(value: Any) -> Body:
    from jetjobs._core import codec

    return Body(codec.encode(value))


class TestTrigger:
    async def test_a_run_waits_in_the_stream_under_its_own_subject(self, world: World):
        run = await world.client.get_job("billing", "send").trigger({"id": 7})
        trigger = await world.trigger_of(run.key)
        assert trigger.body is not None
        assert trigger.body.value == {"id": 7}
        assert (trigger.info.kind, trigger.idempotency_key) == ("manual", None)
        assert [run.duplicate, run.payload_differs, run.no_host] == [False] * 3
        assert await run.status() is RunStatus.QUEUED

    async def test_no_payload_is_no_body(self, world: World):
        run = await world.client.get_job(str(SEND)).trigger()
        assert (await world.trigger_of(run.key)).body is None

    async def test_one_round_trip_once_the_job_is_known(self, world: World):
        job = world.client.get_job("billing", "send")
        await job.trigger(1)
        world.mine.calls.clear()
        await asyncio.gather(*(job.trigger(n) for n in range(50)))
        assert dict(world.mine.calls) == {"broker.store": 50}

    async def test_options_travel_in_the_message(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(
            1, idempotency_key="ключ", start_within="1m", expires_in="2m", scheduled_for=0
        )
        trigger = await world.trigger_of(run.key)
        assert trigger.idempotency_key == "ключ"
        assert trigger.start_deadline == world.cluster.now() + timedelta(minutes=1)
        assert trigger.expires_in == timedelta(minutes=2)
        assert trigger.scheduled_for == datetime.fromtimestamp(0, world.cluster.now().tzinfo)

    @pytest.mark.parametrize(
        "options",
        [
            {"idempotency_key": ""},
            {"idempotency_key": 7},
            {"on_duplicate": "raise"},
            {"delay": "1s", "at": 1},
            {"delay": "soon"},
            {"timeout": 0},
            {"expires_in": -1},
        ],
    )
    async def test_what_cannot_be_meant_is_refused_and_nothing_stored(self, world: World, options: dict[str, Any]):
        with pytest.raises((ConfigError, InvalidNameError)):
            await world.client.get_job("billing", "send").trigger(1, **options)
        assert world.subjects() == []

    async def test_what_cannot_be_stored_is_refused_at_the_call(self, world: World):
        with pytest.raises(PayloadError, match=r'payload\["x"\]\[1\]'):
            await world.client.get_job("billing", "send").trigger({"x": [1, object()]})
        assert world.subjects() == []

    async def test_a_large_payload_is_put_away_first(self, world: World):
        value = "x" * 100_000
        run = await world.client.get_job("billing", "send").trigger(value)
        body = (await world.trigger_of(run.key)).body
        assert body is not None
        assert body.claim is not None
        assert f".{run.run_id}.in." in body.claim.subject
        assert replace(body, data=await world.host.payloads.get(body.claim), claim=None).value == value

    async def test_more_than_the_limit_is_refused_with_both_numbers(self, world: World):
        scope = replace(world.client._open(), max_payload=50_000)
        from jetjobs._client.handle import JobHandle

        with pytest.raises(PayloadTooLargeError, match=r"50000"):
            await JobHandle[Any, Any](scope, SEND).trigger("x" * 50_000)
        assert world.subjects() == []


class TestNames:
    @pytest.mark.parametrize("bad", BAD_NAMES)
    async def test_no_name_from_outside_reaches_a_subject(self, world: World, bad: str):
        client = world.client
        for call in (
            lambda: client.get_job(bad, "send"),
            lambda: client.get_job("billing", bad),
            lambda: client.get_job(f"billing.{bad}"),
            lambda: client.run(bad, "send", "r"),
            lambda: client.run("billing", bad, "r"),
        ):
            with pytest.raises(InvalidNameError):
                call()
        with pytest.raises(InvalidNameError):
            await client.runs.get("r", module=bad)
        with pytest.raises(InvalidNameError):
            await client.runs.list(job=bad)
        with pytest.raises(InvalidNameError):
            await client.jobs.get("billing", bad)

    async def test_a_name_longer_than_the_broker_takes_is_refused(self, world: World):
        with pytest.raises(InvalidNameError, match="200"):
            world.client.get_job("billing", "a" * 300)

    @pytest.mark.parametrize("bad", ["*", ">", "x.>", "a\r\nPUB x", "é" * 200])
    async def test_a_run_id_from_outside_is_one_harmless_token(self, world: World, bad: str):
        run = world.client.run("billing", "send", bad)
        assert not {".", "*", ">", "\r", "\n", " "} & set(run.run_id)
        with pytest.raises(RunNotFound):
            await run.status()
        with pytest.raises(RunNotFound):
            await world.client.runs.get(bad)

    async def test_a_dotted_name_splits_at_its_last_dot(self, world: World):
        assert world.client.get_job("billing.eu.send").address == ("billing.eu", "send")
        assert world.client.get_job("billing.eu", "send").address == ("billing.eu", "send")


class TestUnknownJobs:
    async def test_an_unknown_job_is_named_with_what_comes_close(self, world: World):
        with pytest.raises(UnknownJobError, match=r"billing\.send") as caught:
            await world.client.get_job("billing", "snd").trigger(1)
        assert caught.value.close_names == ("billing.send",)
        assert world.subjects() == []

    async def test_a_project_nobody_started_says_so(self, world: World):
        async with JobClient(backend=memory_backend(world.cluster, "empty")) as client:
            with pytest.raises(UnknownJobError, match=r"no host ever started in project 'empty'"):
                await client.get_job("billing", "send").trigger(1)

    async def test_it_can_be_allowed(self, world: World):
        with capture_logs() as logs:
            run = await world.client.get_job("new", "job").trigger(1, allow_unknown=True)
        assert run.no_host
        assert await run.status() is RunStatus.QUEUED
        assert [line["event"] for line in logs] == ["job_without_host"]

    async def test_a_job_without_a_live_host_is_stored_and_warned_of_once(self, world: World):
        await world.describe(JobAddress("reports", "daily"), live=False)
        job = world.client.get_job("reports", "daily")
        with capture_logs() as logs:
            runs = [await job.trigger(n) for n in range(3)]
        assert all(run.no_host for run in runs)
        assert [line["event"] for line in logs] == ["job_without_host"]
        assert len(world.subjects()) == 3

    async def test_a_user_without_the_right_to_look_can_trigger(self, world: World):
        for method in ("catalog.job", "catalog.hosts", "catalog.jobs"):
            world.mine.fail(method, times=None, error=PermissionMissing("no", "x"))
        run = await world.client.get_job("never", "seen").trigger(1)
        assert not run.no_host
        assert len(world.subjects()) == 1


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
            from jetjobs._core import codec

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

    async def test_without_any_answer_the_call_ends_in_time_with_the_id(self, world: World):
        world.mine.fail("broker.store", times=None, error=AnswerUnknown("lost"))
        began = time.monotonic()
        with pytest.raises(TriggerUnconfirmed) as caught:
            await world.client.get_job("billing", "send").trigger(1, timeout=0.3)
        assert time.monotonic() - began < 0.8
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
            assert 0.2 < time.monotonic() - began < 0.8

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
            assert 0.35 < time.monotonic() - began < 0.9

    async def test_a_hanging_read_does_not_move_the_deadline(self, world: World):
        run = await world.client.get_job("billing", "send").trigger(1)
        hanging = world.mine.fail("runs.get", when="hang", times=None)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            await run.wait(timeout=0.3)
        assert time.monotonic() - began < 0.8
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
        from jetjobs._core import codec

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

    async def test_a_thousand_from_an_iterator_each_once(self, world: World):
        results = await world.client.trigger_many(TriggerRequest("billing.send", n) for n in range(1000))
        assert len(world.subjects()) == 1000
        for n in (0, 499, 999):
            result = results[n]
            assert isinstance(result, JobRun)
            body = (await world.trigger_of(result.key)).body
            assert body is not None
            assert body.value == n

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


class Colour(Enum):
    RED = "red"


class Invoice(BaseModel):
    id: int


@dataclass
class Receipt:
    number: int
    colour: Colour


def shop() -> Module:
    module = Module("billing")

    @module.job
    async def send(_ctx: JobContext, invoice: Invoice) -> Receipt:
        return Receipt(invoice.id, Colour.RED)

    @module.job
    def plain(_ctx: JobContext) -> dict[str, int]:
        return {}

    return module


class TestJobsAtHand:
    async def test_the_payload_is_checked_in_the_caller(self, world: World):
        job = world.client.get_job(shop().jobs["send"])
        with pytest.raises(PayloadInvalidError, match="id"):
            await job.trigger({"id": "seven"})
        results = await world.client.trigger_many([TriggerRequest(shop().jobs["send"], {"id": "x"})])
        assert isinstance(results[0], TriggerError)
        assert world.subjects() == []
        run = await job.trigger(Invoice(id=7))
        trigger = await world.trigger_of(run.key)
        assert trigger.body is not None
        assert trigger.body.value == {"id": 7}
        assert trigger.payload_schema == shop().jobs["send"].payload_schema_digest

    async def test_the_result_is_what_the_handler_returned(self, world: World):
        run = await world.client.get_job(shop().jobs["send"]).trigger(Invoice(id=7))
        await world.finish(run.key, result_body=packed(Receipt(7, Colour.RED)))
        assert await run.result() == Receipt(7, Colour.RED)
        assert await world.client.run(*run.key).result() == {"number": 7, "colour": "red"}

    async def test_a_result_that_does_not_fit_says_so(self, world: World):
        run = await world.client.get_job(shop().jobs["send"]).trigger(Invoice(id=7))
        await world.finish(run.key, result_body=packed({"other": 1}))
        with pytest.raises(PayloadInvalidError, match=r"billing\.send"):
            await run.result()

    async def test_modules_are_bound_while_the_client_is_open(self, world: World):
        module = shop()
        send = module.jobs["send"]
        with pytest.raises(JobsNotHosted):
            await send.trigger(Invoice(id=7))
        async with JobClient(backend=memory_backend(world.cluster), modules=[module]) as client:
            run = await send.trigger({"id": 7}, idempotency_key="k", timeout=1)
            assert (await send.trigger({"id": 7}, idempotency_key="k")).duplicate
            assert await client.run("billing", "send", run.run_id).status() is RunStatus.QUEUED
            other = JobClient(backend=memory_backend(world.cluster, "other"), modules=[module])
            async with other:
                with pytest.raises(AmbiguousHostError):
                    await send.trigger({"id": 8})
        with pytest.raises(JobsNotHosted):
            await send.trigger(Invoice(id=7))


class TestTheClientItself:
    async def test_it_says_how_to_connect(self):
        client = JobClient(backend=memory_backend())
        for call in (lambda: client.get_job("a.b"), lambda: client.run("a", "b", "c")):
            with pytest.raises(ClientError, match="async with"):
                call()
        with pytest.raises(ClientError, match="async with"):
            await client.runs.list()
        await client.close()

    async def test_it_connects_again_after_it_was_closed(self, world: World):
        client = world.another()
        await client.connect()
        await client.connect()
        job = client.get_job(str(SEND))
        await job.trigger(1)
        await client.close()
        await client.close()
        with pytest.raises(ClientError):
            client.get_job(str(SEND))

    async def test_a_project_must_be_named(self, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv("JETJOBS_PROJECT", raising=False)
        with pytest.raises(ConfigError, match="project"):
            JobClient("nats://localhost:4222")
        with pytest.raises(InvalidNameError):
            JobClient("nats://localhost:4222", project="Shop.*")
        with pytest.raises(ConfigError):
            JobClient("nats://localhost:4222", project="shop", timeout=0)
