"""Payloads that don't fit their handler: the caller is told who has the job at hand, else they fail once."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from jetjobs import Backoff, JobContext, Module, RunStatus
from jetjobs._core.headers import write_instant
from jetjobs.errors import PayloadInvalidError
from tests.support.field import Field, field_of
from tests.support.links import until_it
from tests.support.raw_socket import head

pytestmark = pytest.mark.integration

LONG = Backoff("30s", jitter=0)


class Wanted(BaseModel):
    b: int


class Strict(BaseModel, extra="forbid"):
    b: int = 1


class Touchy(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def look_up(cls, n: int) -> int:
        return {1: 1}[n]


def fit(starts: list[str] | None = None) -> Module:
    module = Module("fit")
    seen = [] if starts is None else starts

    @module.job(max_attempts=5, backoff=LONG, timeout="20s")
    async def wants(ctx: JobContext, payload: Wanted) -> int:
        seen.append(ctx.run_id)
        return payload.b

    @module.job(max_attempts=5, backoff=LONG, timeout="20s")
    async def strict(ctx: JobContext, payload: Strict | None = None) -> int:
        seen.append(ctx.run_id)
        return 0 if payload is None else payload.b

    @module.job(max_attempts=5, backoff=LONG, timeout="20s")
    async def touchy(ctx: JobContext, payload: Touchy) -> int:
        seen.append(ctx.run_id)
        return payload.n

    @module.job(timeout="20s")
    async def none(ctx: JobContext) -> str:
        return "ran"

    @module.job(timeout="20s")
    async def ping(ctx: JobContext) -> str:
        return "pong"

    return module


UNFIT: dict[str, tuple[str, Any, str]] = {
    "another-field": ("wants", {"a": 1}, "b: Field required"),
    "no-payload": ("wants", None, "there is none"),
    "no-dict": ("wants", [1], "Wanted"),
    "wrong-type": ("wants", {"b": "many"}, "b: Input should be a valid integer"),
    "extra-keys": ("strict", {"b": 1, "c": 2}, "c: Extra inputs"),
    "a-validator-that-raises": ("touchy", {"n": 2}, "KeyError"),
}


@pytest.mark.parametrize("name", UNFIT)
async def test_b52_by_name_it_fails_once_and_names_the_field(nats_url: str, project: str, name: str):
    """One attempt of five, within 5 s, and no handler was called."""
    job, payload, says = UNFIT[name]
    starts: list[str] = []
    async with field_of(nats_url, project) as field:
        await field.host(fit(starts))
        run = await field.client.get_job("fit", job).trigger(payload)
        record = await run.wait(timeout=45)
        assert (record.status, record.attempt, record.max_attempts) == (RunStatus.FAILED, 1, 5)
        assert record.error is not None
        assert record.error.type == "PayloadInvalidError"
        assert says in record.error.message
        assert starts == []
        await field.retired(f"fit.{job}")


@pytest.mark.parametrize("name", UNFIT)
async def test_b52_with_the_job_at_hand_the_caller_is_told(nats_url: str, project: str, name: str):
    """Nothing is published."""
    job, payload, says = UNFIT[name]
    module = fit()
    async with field_of(nats_url, project) as field:
        await field.host(module)
        for trigger in (field.client.get_job(module.jobs[job]).trigger, module.jobs[job].trigger):
            # What a validator raises by mistake is the caller's own traceback.
            expected = KeyError if says == "KeyError" else PayloadInvalidError
            with pytest.raises(expected, match=None if says == "KeyError" else says):
                await trigger(payload)
        assert await field.messages() == {}


async def test_b52_extra_keys_where_the_model_ignores_them(nats_url: str, project: str):
    """As pydantic does by default."""
    async with field_of(nats_url, project) as field:
        await field.host(fit())
        assert await (await field.client.get_job("fit.wants").trigger({"b": 1, "c": 2})).result(timeout=45) == 1
        assert await (await field.client.get_job("fit.none").trigger({"c": 2})).result(timeout=45) == "ran"


async def newer(field: Field, name: str, **headers: str) -> None:
    lines = head(Jetjobs_Payload_Schema="of-a-newer-release", **headers)
    await field.raw.pub(field.subject("fit.wants", f"run.{name}"), b'{"newer": 1}', lines)


async def in_ms(field: Field, milliseconds: int) -> str:
    broker = field.client._scope.backend.broker  # type: ignore[union-attr]
    await broker.measure_clock()
    return write_instant(broker.now() + timedelta(milliseconds=milliseconds))


async def test_b50_a_newer_releases_payload_waits_for_a_newer_host(nats_url: str, project: str):
    starts: list[str] = []
    async with field_of(nats_url, project) as field:
        await field.host(fit(starts))
        await newer(field, "x1")

        async def bounced() -> bool:
            info = await field.consumer("fit.wants")
            return info.delivered is not None and info.delivered.consumer_seq >= 2

        await until_it(bounced)
        # Between its visits it waits outside the queue: the job's only slot is free for others.
        run = await field.client.get_job("fit.wants").trigger({"a": 1, "b": 2})
        assert (await run.wait(timeout=45)).status is RunStatus.SUCCEEDED
        assert (await field.client.runs.get("x1", module="fit", job="wants")).status is RunStatus.SCHEDULED
        module = Module("fit")

        @module.job(name="wants", timeout="20s")
        async def newer_wants(ctx: JobContext, payload: dict[str, int]) -> int:
            return payload["newer"]

        await field.host(module)
        assert (await field.ended("fit.wants", "x1")).result == 1
        assert len(starts) == 1


class Before(BaseModel):
    email: str


class After(BaseModel):
    address: str


def order(model: type[BaseModel], starts: list[str]) -> Module:
    module = Module("shop")

    async def handler(ctx: JobContext[Any], payload: Any) -> int:
        starts.append(type(payload).__name__)
        if ctx.attempt == 1:
            raise ValueError("again")
        return ctx.attempt

    handler.__annotations__["payload"] = model
    module.expose_job("order", handler, max_attempts=2, backoff=Backoff("500ms", jitter=0), timeout="20s")
    return module


async def test_b50_a_retry_waits_for_a_host_of_the_release_its_payload_is_for(nats_url: str, project: str):
    starts: list[str] = []
    async with field_of(nats_url, project) as field:
        old = order(Before, starts)
        first = await field.host(old, version="1")
        run = await field.client.get_job(old.jobs["order"]).trigger({"email": "a@b.c"})

        async def failed_once() -> bool:
            return await run.status() is RunStatus.RETRYING

        await until_it(failed_once)
        await first.close()
        await field.host(order(After, starts), version="2")
        newer = await field.client.get_job(order(After, []).jobs["order"]).trigger({"address": "here"})
        assert await newer.result(timeout=45) == 2
        assert await run.status() is RunStatus.RETRYING
        await field.host(order(Before, starts), version="1")
        assert await run.result(timeout=45) == 2
        assert starts.count("Before") == 2


@pytest.mark.parametrize("limit", ["Start-Deadline", "Expires-In"])
async def test_b50_when_no_newer_host_comes_it_ends(nats_url: str, project: str, limit: str):
    """A start deadline ends it as FAILED with the reason; a run that expires meanwhile is MISSED like any other."""
    async with field_of(nats_url, project) as field:
        await field.host(fit())
        value = await in_ms(field, 1500) if limit == "Start-Deadline" else "1500"
        await newer(field, "x1", **{f"Jetjobs_{limit}": value})
        record = await field.ended("fit.wants", "x1")
        if limit == "Start-Deadline":
            assert (record.status, record.attempt) == (RunStatus.FAILED, 1)
            assert "b: Field required" in str(record.error)
        else:
            assert record.status is RunStatus.MISSED
            assert "expired" in str(record.skip_reason)
        await field.retired("fit.wants")
        await field.ping("fit")


async def test_b52_my_own_schema_is_failed_at_once(nats_url: str, project: str):
    module = fit()
    async with field_of(nats_url, project) as field:
        await field.host(module)
        digest = module.jobs["wants"].payload_schema_digest
        assert digest is not None
        lines = head(Jetjobs_Payload_Schema=digest)
        await field.raw.pub(field.subject("fit.wants", "run.x1"), b'{"a": 1}', lines)
        assert (await field.ended("fit.wants", "x1")).status is RunStatus.FAILED


async def test_a_large_payload_survives_retries(nats_url: str, project: str):
    """The retry carries the claim check, and so does the record."""
    module, seen = Module("large"), list[str]()

    @module.job(max_attempts=3, backoff=Backoff("100ms", factor=1, jitter=0), timeout="20s")
    async def digest(ctx: JobContext, payload: bytes) -> str:
        seen.append(hashlib.sha256(payload).hexdigest())
        if ctx.attempt < 3:
            raise ValueError("again")
        return seen[-1]

    async with field_of(nats_url, project) as field:
        await field.host(module)
        body = bytes(range(256)) * 8000
        run = await field.client.get_job("large.digest").trigger(body)
        assert await run.result(timeout=45) == hashlib.sha256(body).hexdigest()
        assert seen == [hashlib.sha256(body).hexdigest()] * 3
