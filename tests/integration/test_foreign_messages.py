"""What any program may publish on a trigger subject: it runs, or it is retired with a word, and the next one runs."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import msgpack
import pytest
from pydantic import BaseModel

from jetjobs import JobContext, Module, RunStatus
from tests.support.field import Field, field_of
from tests.support.raw_socket import head

pytestmark = pytest.mark.integration


def packed(value: Any) -> bytes:
    return cast("bytes", msgpack.packb(value))


class Invoice(BaseModel):
    id: int


def billing() -> Module:
    module = Module("billing.eu")

    @module.job(max_concurrency=4, max_attempts=3, timeout="20s")
    async def echo(ctx: JobContext, payload: Any) -> Any:
        return payload

    @module.job(max_concurrency=4, max_attempts=3, timeout="20s")
    async def send(ctx: JobContext, invoice: Invoice) -> int:
        return invoice.id

    @module.job(timeout="20s")
    async def ping(ctx: JobContext) -> str:
        return "pong"

    return module


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    async with field_of(nats_url, project) as made:
        await made.host(billing())
        yield made


async def test_a_bare_publish_runs(field: Field):
    await field.raw.pub(field.subject("billing.eu.send", "run.x1"), b'{"id": 7}')
    record = await field.ended("billing.eu.send", "x1")
    assert (record.status, record.result, record.payload) == (RunStatus.SUCCEEDED, 7, {"id": 7})
    assert await field.client.run("billing.eu", "send", "x1").result(timeout=45) == 7
    assert (await field.client.runs.get("x1")).run_id == "x1"
    await field.retired("billing.eu.send")


async def test_the_same_bare_publish_again_is_the_same_run(field: Field):
    subject = field.subject("billing.eu.send", "run.x1")
    await field.raw.pub(subject, b'{"id": 7}')
    first = await field.ended("billing.eu.send", "x1")
    await field.raw.pub(subject, b'{"id": 8}')
    await field.retired("billing.eu.send")
    assert await field.ended("billing.eu.send", "x1") == first


BODIES: Mapping[str, tuple[bytes, bytes | None, Any]] = {
    "json": ('{"a": [1, 2.5, null, "ü"]}'.encode(), None, {"a": [1, 2.5, None, "ü"]}),
    "json-type": (b'"text"', head(Content_Type="application/json; charset=utf-8"), "text"),
    "json-type-in-capitals": (b"[1]", head(CONTENT_TYPE="Application/JSON"), [1]),
    "json-beside-a-foreign-header": (b'{"n": 1}', head(X_Mine="1", traceparent="00-1-2-01"), {"n": 1}),
    "msgpack-type": (packed({"n": 1}), head(content_type="application/msgpack"), {"n": 1}),
    "msgpack-without-a-type": (packed({"n": 1}), head(X_Mine="1"), {"n": 1}),
    "a-number": (b"0", None, 0),
    "white-space-around": (b' \n{"n": 1}\n', None, {"n": 1}),
    "nothing": (b"", None, None),
    "header-without-a-colon": (b"[1]", b"\r\nnonsense\r\n: nameless\r\nA b: c", [1]),
}


async def test_bodies_of_other_languages_arrive(field: Field):
    for run_id, (body, lines, _) in BODIES.items():
        await field.raw.pub(field.subject("billing.eu.echo", f"run.{run_id}"), body, lines)
    for run_id, (_, _, value) in BODIES.items():
        record = await field.ended("billing.eu.echo", run_id)
        assert (run_id, record.status, record.result) == (run_id, RunStatus.SUCCEEDED, value)
    await field.retired("billing.eu.echo")


BROKEN: Mapping[str, tuple[bytes, bytes | None]] = {
    "garbage": (bytes(range(256)), None),
    "no-json": (b"{id: 7}", None),
    "half-json": (b'{"id":', None),
    "latin-1": ('{"id": "ü"}'.encode("latin-1"), None),
    "nan": (b'{"id": NaN}', None),
    "infinite": (b'{"id": 1e999}', None),
    "many-digits": (b"9" * 5000, None),
    "over-64-bits": (b"9" * 30, None),
    "half-a-character": (rb'{"id": "\ud800"}', None),
    "msgpack-cut-off": (packed({"id": 1})[:-1], head(Content_Type="application/msgpack")),
    "msgpack-and-more": (b"\x01\x02", head(Content_Type="application/msgpack")),
    "msgpack-of-json": (b'{"id": 7}', head(Content_Type="application/msgpack")),
    "unknown-extension": (packed(msgpack.ExtType(99, b"x")), head(Content_Type="application/msgpack")),
    "map-with-int-keys": (packed({1: 2}), head(Content_Type="application/msgpack")),
    "huge-length": (b"\xdd\xff\xff\xff\xff", head(Content_Type="application/msgpack")),
    "pickle": (pickle.dumps({"id": 7}), None),
}


async def test_bodies_nobody_can_read_are_failed_once(field: Field):
    for run_id, (body, lines) in BROKEN.items():
        await field.raw.pub(field.subject("billing.eu.echo", f"run.{run_id}"), body, lines)
    for run_id in BROKEN:
        record = await field.ended("billing.eu.echo", run_id)
        assert (run_id, record.status, record.attempt) == (run_id, RunStatus.FAILED, 1)
        assert record.error is not None
        assert record.error.type == "PayloadInvalidError", run_id
        assert len(record.error.message) < 1000
    info = await field.retired("billing.eu.echo")
    assert info.delivered is not None
    assert info.delivered.consumer_seq == len(BROKEN)  # each was delivered once: no loop
    await field.ping("billing.eu")


@pytest.mark.parametrize(
    "body, says",
    [(b"", "there is none"), (b"{}", "id: Field required"), (b'{"id": "x"}', "id: "), (b"[]", ""), (b"null", "none")],
    ids=["empty", "field-missing", "field-wrong", "list", "null"],
)
async def test_a_payload_that_does_not_fit_is_failed_at_its_first_attempt(field: Field, body: bytes, says: str):
    """One attempt, and the message names the field."""
    await field.raw.pub(field.subject("billing.eu.send", "run.x1"), body)
    record = await field.ended("billing.eu.send", "x1")
    assert (record.status, record.attempt, record.max_attempts) == (RunStatus.FAILED, 1, 3)
    assert says in str(record.error)
    await field.retired("billing.eu.send")
