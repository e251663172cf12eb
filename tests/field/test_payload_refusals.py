"""What can't be stored: refused at the call with its path, and as a result a failure at once."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from jetjobs import JobContext, Module, RunStatus
from jetjobs._core import codec
from jetjobs.errors import PayloadError, RunFailed
from tests.support.field import Field, field_of
from tests.support.raw_socket import head

pytestmark = pytest.mark.integration


class Order(BaseModel):
    id: int


def types() -> Module:
    module = Module("types")

    @module.job(timeout="30s")
    async def echo(ctx: JobContext, payload: Any = None) -> Any:
        return payload

    @module.job(timeout="30s", max_attempts=3)
    async def give(ctx: JobContext, which: str) -> Any:
        return GIVEN[which]()

    return module


def cycle() -> list[Any]:
    round_: list[Any] = []
    round_.append(round_)
    return round_


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    async with field_of(nats_url, project) as made:
        await made.host(types())
        yield made


REFUSED: dict[str, tuple[Any, str]] = {
    "nan": ({"x": [float("nan")]}, 'payload["x"][0]'),
    "infinite": ({"x": float("-inf")}, 'payload["x"]'),
    "decimal-nan": ({"x": Decimal("NaN")}, 'payload["x"]'),
    "path": ({"x": PurePosixPath("/a")}, 'payload["x"]'),
    "object": ([1, object()], "payload[1]"),
    "class": ({"x": Order}, 'payload["x"]'),
    "function": ({"x": {"y": print}}, 'payload["x"]["y"]'),
    "int-key": ({"x": {1: 2}}, 'payload["x"]'),
    "huge-int": ({"x": 2**64}, 'payload["x"]'),
    "half-character": ({"x": "\ud800"}, 'payload["x"]'),
    "secret": ({"x": SecretStr("hush")}, 'payload["x"]'),
    "cycle": ({"x": cycle()}, 'payload["x"]'),
    "exception": ({"x": ValueError("v")}, 'payload["x"]'),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_b44_b46_what_can_not_be_stored_is_refused_at_the_call(field: Field, name: str):
    """Naming the path; nothing was published."""
    value, path = REFUSED[name]
    with pytest.raises(PayloadError) as refused:
        await field.client.get_job("types.echo").trigger(value)
    assert path in str(refused.value)
    assert "hush" not in str(refused.value)
    assert await field.messages() == {}


async def test_b48_a_payload_of_many_levels_is_refused_at_the_call(field: Field):
    """100 000 nested lists."""
    with pytest.raises(PayloadError, match="nested deeper than 100"):
        await field.client.get_job("types.echo").trigger(nested())
    assert await field.messages() == {}


DEEP: dict[str, tuple[bytes, bytes | None]] = {
    "json": (b"[" * 100_000 + b"]" * 100_000, None),
    "json-objects": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, None),
    "json-without-an-end": (b"[" * 1_000_000, None),
    "msgpack": (b"\x91" * 100_000 + b"\x90", head(Content_Type="application/msgpack")),
    "msgpack-maps": (b"\x81\xa1a" * 100_000 + b"\xc0", head(Content_Type="application/msgpack")),
}


async def test_b48_many_levels_published_raw(field: Field):
    """One record each, delivered once and no more, and the host goes on."""
    for run_id, (body, lines) in DEEP.items():
        await field.raw.pub(field.subject("types.echo", f"run.{run_id}"), body, lines)
    for run_id in DEEP:
        record = await field.ended("types.echo", run_id)
        assert (run_id, record.status, record.attempt) == (run_id, RunStatus.FAILED, 1)
        assert record.error is not None
        assert record.error.type == "PayloadInvalidError"
        assert len(record.error.message) < 1000
    info = await field.retired("types.echo")
    assert info.delivered is not None
    assert info.delivered.consumer_seq == len(DEEP)
    assert await (await field.client.get_job("types.echo").trigger("ping")).result(timeout=45) == "ping"


def extension(code: int, data: bytes) -> bytes:
    return b"\xc8" + len(data).to_bytes(2, "big") + code.to_bytes(1, "big", signed=True) + data


NO_VALUE: dict[str, bytes] = {  # extensions with something else in them, as msgpack of another language may have
    **{f"timestamp-{n}": extension(-1, data) for n, data in enumerate((b"", b"\0" * 3, b"\xff" * 8, b"\xff" * 12))},
    **{
        f"datetime-{n}": extension(1, data)
        for n, data in enumerate(
            (b"", b"abc", b"\xff", b"2026-01-01T00:00:00+99:00", b"9999-12-31T23:59:59-12:00[Asia/Tokyo]", b"[UTC]")
        )
    },
    **{f"date-{n}": extension(2, data) for n, data in enumerate((b"", b"2026-13-01", b"0000-01-01"))},
    **{f"span-{n}": extension(3, data) for n, data in enumerate((b"1.5", b"9" * 400 + b".000000", b"--1.000000"))},
    **{f"decimal-{n}": extension(4, data) for n, data in enumerate((b"NaN", b"sNaN", b"-Infinity", b"abc", b""))},
    **{f"uuid-{n}": extension(5, b"x" * size) for n, size in enumerate((0, 15, 17))},
    **{f"set-{n}": extension(6, data) for n, data in enumerate((b"", b"\x01", b"\x91\x80", b"\x91\xc7\x00\x06"))},
    "unknown": extension(7, b""),
    "sets-in-sets": extension(6, b"\x91" + extension(6, b"\x91" + extension(6, b"\x91" * 5000))),
}


async def test_b46_extensions_that_hold_no_value(field: Field):
    """Failed once each, with a word, whatever Python says of such bytes."""
    for run_id, body in NO_VALUE.items():
        await field.raw.pub(
            field.subject("types.echo", f"run.{run_id}"), body, head(Content_Type="application/msgpack")
        )
    for run_id in NO_VALUE:
        record = await field.ended("types.echo", run_id)
        assert (run_id, record.status, record.attempt) == (run_id, RunStatus.FAILED, 1)
        assert "PayloadInvalidError" in str(record.error)
    info = await field.retired("types.echo")
    assert info.delivered is not None
    assert info.delivered.consumer_seq == len(NO_VALUE)


def nested() -> list[Any]:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    return deep


async def never() -> None:
    raise AssertionError


GIVEN: dict[str, Callable[[], Any]] = {
    "object": object,
    "file": lambda: Path(os.devnull).open(),  # noqa: SIM115  # returned open on purpose
    "generator": lambda: (n for n in range(3)),
    "task": asyncio.current_task,
    "lock": asyncio.Lock,
    "coroutine": never,
    "nan": lambda: {"x": float("nan"), "y": float("inf")},
    "deep": nested,
    "secret": lambda: SecretStr("hush"),
    "huge-int": lambda: 2**64,
    "cycle": cycle,
}


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:coroutine 'never' was never awaited:RuntimeWarning")
@pytest.mark.parametrize("which", GIVEN)
async def test_b42_b44_b48_a_result_that_can_not_be_stored_fails_once(field: Field, which: str):
    """One attempt, and whoever waits is told why."""
    run = await field.client.get_job("types.give").trigger(which)
    with pytest.raises(RunFailed, match="result not serialisable") as failed:
        await run.result(timeout=45)
    record = failed.value.record
    assert (record.status, record.attempt, record.max_attempts) == (RunStatus.FAILED, 1, 3)
    assert "hush" not in str(record.error)
    json.dumps(codec.to_jsonable(record.result), allow_nan=False)
    await field.retired("types.give")


async def test_a_secret_inside_a_model_is_refused(field: Field):
    class Login(BaseModel):
        user: str
        password: SecretStr

    with pytest.raises(PayloadError, match=r'payload\["password"\]') as refused:
        await field.client.get_job("types.echo").trigger(Login(user="a", password=SecretStr("hush")))
    assert "hush" not in str(refused.value)
