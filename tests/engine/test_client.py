"""Triggering: what is stored, what is refused, and how jobs are named."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs._client.handle import JobHandle
from jetjobs._core.models import (
    JobAddress,
    RunStatus,
)
from jetjobs.client import JobClient
from jetjobs.errors import (
    AnswerUnknown,
    BrokerError,
    BrokerUnavailable,
    ClientError,
    ConfigError,
    InvalidNameError,
    PayloadError,
    PayloadTooLargeError,
    PermissionMissing,
    RunNotFound,
    TriggerUnconfirmed,
    UnknownJobError,
)
from jetjobs.testing import memory_backend
from tests.support.client_world import SEND, World
from tests.support.waiting import eventually

BAD_NAMES = ["*", ">", "x.>", "a b", "a\r\nPUB x", "", "é"]


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

    @pytest.mark.parametrize(
        "option, hint", [("countdown", "did you mean delay?"), ("dealy", "did you mean delay?"), ("id", "timeout")]
    )
    async def test_an_option_that_is_not_there_is_told_with_those_that_are(self, world: World, option: str, hint: str):
        options: dict[str, Any] = {option: 5}
        with pytest.raises(TypeError, match=rf"the payload, as one value, and no '{option}'") as refused:
            await world.client.get_job("billing", "send").trigger(1, **options)
        assert str(refused.value).endswith(hint)
        assert not world.subjects()

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


class TestTheClientItself:
    async def test_it_belongs_to_the_loop_it_was_connected_on(self, world: World):
        job = world.client.get_job("billing", "send")
        with pytest.raises(ClientError, match="belongs to the event loop it was connected on"):
            await asyncio.to_thread(asyncio.run, job.trigger(1))
        assert not world.subjects()

    async def test_it_says_how_to_connect(self):
        client = JobClient(backend=memory_backend())
        for call in (lambda: client.get_job("a.b"), lambda: client.run("a", "b", "c")):
            with pytest.raises(ClientError, match="async with"):
                call()
        with pytest.raises(ClientError, match="async with"):
            await client.runs.list()
        await client.close()

    async def test_its_runs_say_that_it_is_closed(self, world: World):
        """At once, and also to whoever waits for one without a limit."""
        run = await world.client.get_job("billing", "send").trigger(1)
        handle = world.client.get_job("billing", "send")
        waiting = asyncio.create_task(run.wait())
        await asyncio.sleep(0)
        await world.client.close()
        for call in (run.status, run.record, run.cancel, run.wait, run.result, handle.trigger, lambda: waiting):
            with pytest.raises(ClientError, match="closed"):
                async with asyncio.timeout(3):
                    await call()

    @pytest.mark.parametrize(
        "port,error,told",
        [
            ("broker.store", AnswerUnknown("lost"), TriggerUnconfirmed),
            ("broker.store", BrokerUnavailable("away"), BrokerUnavailable),
            ("runs.get", BrokerUnavailable("away"), BrokerUnavailable),
        ],
    )
    async def test_a_call_under_way_asks_no_more(
        self, world: World, port: str, error: BrokerError, told: type[Exception]
    ):
        """Else whoever waits for it, a thread of a pool perhaps, would do so until the call's timeout."""
        failure = world.mine.fail(port, times=None, error=error)
        call = asyncio.create_task(world.client.get_job("billing", "send").trigger(1, idempotency_key="k", timeout=60))
        await eventually(lambda: failure.hits >= 2, 10)
        async with asyncio.timeout(10):
            await world.client.close()
            with pytest.raises(told):
                await call

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
