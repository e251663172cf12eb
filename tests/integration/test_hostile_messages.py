"""Subjects and headers that no honest program writes: none stops a host, loops, or reaches another project."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from jetjobs import Backoff, JobContext, JobHost, Module, RunStatus
from jetjobs._core import codec
from jetjobs._core.bodies import INLINE_LIMIT
from tests.support.field import Field, field_of
from tests.support.raw_socket import head

pytestmark = pytest.mark.integration

JOB = "billing.eu.echo"


def billing() -> Module:
    module = Module("billing.eu")

    @module.job(max_concurrency=4, max_attempts=2, timeout="20s")
    async def echo(ctx: JobContext, payload: Any = None) -> Any:
        return payload

    @module.job(max_concurrency=4, max_attempts=2, backoff=Backoff("100ms"), timeout="20s")
    async def fail(ctx: JobContext, payload: Any = None) -> None:
        raise ValueError("on purpose")

    @module.job(timeout="20s")
    async def ping(ctx: JobContext) -> str:
        return "pong"

    return module


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    async with field_of(nats_url, project) as made:
        await made.host(billing())
        yield made


def claim(**changes: Any) -> bytes:
    whole = {"subject": "…", "chunks": 1, "size": 1, "sha256": "0" * 64}
    return head(Jetjobs_Payload=json.dumps({**whole, **changes}))


HEADERS: Mapping[str, bytes] = {
    "turn-negative": head(Jetjobs_Turn="-1"),
    "turn-0": head(Jetjobs_Turn="0"),
    "turn-text": head(Jetjobs_Turn="abc"),
    "turn-huge": head(Jetjobs_Turn="1" + "0" * 30),
    "turn-arabic": head(Jetjobs_Turn="٣"),
    "turn-empty": head(Jetjobs_Turn=""),
    "deadline-text": head(Jetjobs_Start_Deadline="tomorrow"),
    "deadline-naive": head(Jetjobs_Start_Deadline="2030-01-01T00:00:00"),
    "deadline-year-0": head(Jetjobs_Start_Deadline="0000-01-01T00:00:00Z"),
    "deadline-before-time": head(Jetjobs_Start_Deadline="0001-01-01T00:00:00+14:00"),
    "expires-text": head(Jetjobs_Expires_In="1h"),
    "expires-negative": head(Jetjobs_Expires_In="-5"),
    "expires-huge": head(Jetjobs_Expires_In="9" * 30),
    "expires-at-text": head(Jetjobs_Expires_At="never"),
    "scheduled-text": head(Jetjobs_Scheduled_For="13:00"),
    "trigger-no-json": head(Jetjobs_Trigger="{"),
    "trigger-list": head(Jetjobs_Trigger="[]"),
    "trigger-deep": head(Jetjobs_Trigger="[" * 50_000),
    "trigger-kind": head(Jetjobs_Trigger='{"kind": "evil"}'),
    "trigger-kind-list": head(Jetjobs_Trigger='{"kind": []}'),
    "trigger-parent": head(Jetjobs_Trigger='{"parent_run_id": 7}'),
    "trigger-naive": head(Jetjobs_Trigger='{"scheduled_for": "2030-01-01T00:00:00"}'),
    "key-empty": head(Jetjobs_Key=""),
    "key-broken": head(Jetjobs_Key="%ff"),
    "key-long": head(Jetjobs_Key="k" * 5000),
    "type-pickle": head(Content_Type="application/x-python-pickle"),
    "claim-no-json": head(Jetjobs_Payload="x"),
    "claim-list": head(Jetjobs_Payload="[1]"),
    "claim-empty": head(Jetjobs_Payload="{}"),
    "claim-foreign-subject": claim(subject="jetjobs.other.payload.r.in.abc"),
    "claim-no-payload": claim(subject="$KV.jetjobs_other_runs.a.b.c"),
    "claim-wildcard": claim(subject="jetjobs.*.payload.r.in.>"),
    "claim-bool": claim(chunks=True),
    "claim-negative": claim(chunks=-1),
}


async def test_headers_nobody_can_read_fail_the_run_once(field: Field):
    for run_id, lines in HEADERS.items():
        await field.raw.pub(field.subject(JOB, f"run.{run_id}"), b"1", lines)
    for run_id in HEADERS:
        record = await field.ended(JOB, run_id)
        assert record.error is not None, run_id
        assert (run_id, record.status, record.error.type) == (run_id, RunStatus.FAILED, "BadTrigger")
        assert len(record.error.message) < 1000
    info = await field.retired(JOB)
    assert info.delivered is not None
    assert info.delivered.consumer_seq == len(HEADERS)
    await field.ping("billing.eu")


async def test_claim_checks_of_what_is_not_there_fail_the_run(field: Field):
    """Of this project and well formed, but lying about what is stored."""
    mine = f"jetjobs.{field.project}.payload.r.in.abc"
    lies = {
        "missing": claim(subject=mine),
        "many-chunks": claim(subject=mine, chunks=10**9, size=10**15),
        "beyond-64-bits": claim(subject=mine, chunks=10**30, size=10**30),
        "no-chunks": claim(subject=mine, chunks=0, size=0),
        "long-digest": claim(subject=mine, sha256="0" * 60_000),
    }
    for run_id, lines in lies.items():
        await field.raw.pub(field.subject(JOB, f"run.{run_id}"), b"", lines)
    for run_id in lies:
        record = await field.ended(JOB, run_id)
        assert (run_id, record.status) == (run_id, RunStatus.FAILED)
    await field.retired(JOB)
    await field.ping("billing.eu")


@pytest.mark.parametrize("far", ["9999-12-31T23:59:59Z", "2400-01-01T00:00:00Z"])
@pytest.mark.parametrize("job", ["billing.eu.echo", "billing.eu.fail"])
async def test_an_expiry_beyond_what_the_broker_can_count_is_no_obstacle(field: Field, job: str, far: str):
    lines = head(Jetjobs_Expires_At=far, Jetjobs_Start_Deadline=far, Jetjobs_Scheduled_For=far)
    await field.raw.pub(field.subject(job, "run.x1"), b"1", lines)
    record = await field.ended(job, "x1")
    assert record.status is (RunStatus.SUCCEEDED if job == JOB else RunStatus.FAILED)
    await field.retired(job)


@pytest.mark.parametrize("turn, attempts", [("2", 2), ("999999999", 2), ("999999999999", 0)])
async def test_a_turn_out_of_thin_air_ends_too(field: Field, turn: str, attempts: int):
    """The next turn must be as readable as this one, or the run would wait for ever for its retry."""
    await field.raw.pub(field.subject("billing.eu.fail", "run.x1"), b"1", head(Jetjobs_Turn=turn))
    record = await field.ended("billing.eu.fail", "x1")
    assert (record.status, record.attempt) == (RunStatus.FAILED, attempts)
    await field.retired("billing.eu.fail")


async def test_descriptions_as_large_as_headers_may_be_are_retried_with_the_run(field: Field):
    """A server stores at most 64 KiB of headers, and the retry carries the description too."""
    info = json.dumps({"kind": "event", "event_subject": "e" * 30_000, "retry_of": "r" * 30_000})
    await field.raw.pub(field.subject("billing.eu.fail", "run.x1"), b"1", head(Jetjobs_Trigger=info))
    record = await field.ended("billing.eu.fail", "x1")
    assert (record.status, record.attempt) == (RunStatus.FAILED, 2)
    assert record.trigger.retry_of == "r" * 30_000
    await field.retired("billing.eu.fail")
    await field.ping("billing.eu")


IDS: Mapping[bytes, RunStatus] = {
    b"-": RunStatus.SUCCEEDED,
    b"=2A": RunStatus.SUCCEEDED,
    b"x" * 128: RunStatus.SUCCEEDED,
    b"x" * 129: RunStatus.FAILED,
    b"x" * 3500: RunStatus.FAILED,
    b"a:b/c": RunStatus.FAILED,
    b"'\"<script>": RunStatus.FAILED,
    "日本".encode(): RunStatus.FAILED,
    # Not DEL: nats-server 2.15 finds no message by a filter whose subject holds that byte, so none is handed out.
    b"a\x01b\x1f": RunStatus.FAILED,
}


async def test_run_ids_of_any_length_and_alphabet(field: Field):
    for run_id in IDS:
        await field.raw.pub(field.subject(JOB, "run.").encode() + run_id, b"1")
    for run_id, status in IDS.items():
        assert (await field.ended(JOB, run_id.decode())).status is status, run_id
    info = await field.retired(JOB)
    assert info.delivered is not None
    assert info.delivered.consumer_seq == len(IDS)
    await field.ping("billing.eu")


@pytest.mark.parametrize(
    "run_id", [b"\xff\xfe", b"a\x0bb", b"a\x0cb", b"\x85", b"\xed\xa0\x80"], ids=["utf8", "vt", "ff", "nel", "half"]
)
async def test_a_subject_that_is_no_text_does_not_deafen_the_host(field: Field, run_id: bytes):
    await field.raw.pub(field.subject(JOB, "run.").encode() + run_id, b"1")
    await field.raw.pub(field.subject(JOB, "run.good"), b"1")
    assert (await field.ended(JOB, "good")).ok
    await field.retired(JOB)
    await field.ping("billing.eu")


@pytest.mark.parametrize("block", [None, b" \xff\xfe\xfd"])
async def test_nor_a_host_on_a_connection_somebody_else_opened(nats_url: str, project: str, block: bytes | None):
    """Its parser is nats-py's own, whose read loop would end at the first of them."""
    async with field_of(nats_url, project) as field, JobHost([billing()], project=project, nats=field.nats):
        await field.raw.pub(field.subject(JOB, "run.").encode() + (b"\xff" if block is None else b"x1"), b"1", block)
        await field.raw.pub(field.subject(JOB, "run.good"), b"1")
        assert (await field.ended(JOB, "good")).ok
        await field.retired(JOB)
        await field.ping("billing.eu")


@pytest.mark.parametrize(
    "block", [b" \xff\xfe\xfd", b" 503", b" 408 Request Timeout\r\nA: b", b"", b"\r\n\xff: \xff", b"\r\nA: \x00"]
)
async def test_a_status_line_or_stray_bytes_in_the_headers_are_no_news(field: Field, block: bytes):
    await field.raw.pub(field.subject(JOB, "run.x1"), b"1", block)
    assert (await field.ended(JOB, "x1")).ok
    info = await field.retired(JOB)
    assert info.num_redelivered == 0
    await field.ping("billing.eu")


async def test_wrong_tokens_are_terminated_or_left_to_age(field: Field):
    """What reaches a consumer is retired; what no consumer asks for lies in the stream and hinders nobody."""
    taken = ["run.a.b", "tick.a.b", "run.a.b.c.d"]
    left = [
        f"jetjobs.{field.project}.trigger.billing=2Eeu.unknown.run.x",
        f"jetjobs.{field.project}.trigger.billing=2Eeu",
        f"jetjobs.{field.project}.trigger.billing.eu.echo.run.x",
        f"jetjobs.{field.project}.trigger.billing=2eeu.echo.run.x",
        field.subject(JOB, "high.x"),
        field.subject(JOB, "evil.x"),
        field.subject(JOB, "run"),
    ]
    for tail in taken:
        await field.raw.pub(field.subject(JOB, tail), b"1")
    for subject in left:
        await field.raw.pub(subject, b"1")
    await field.retired(JOB)
    assert await field.messages() == dict.fromkeys(left, 1)
    await field.ping("billing.eu")


async def test_a_claim_check_of_another_project_is_not_fetched(field: Field, nats_url: str, project: str):
    """B116: a bare publisher can't have this project's host read another project's payload."""
    async with field_of(nats_url, f"{project}-b") as other:
        await other.host(billing())
        secret = "s" * (2 * INLINE_LIMIT)
        run = await other.client.get_job(JOB).trigger(secret)
        assert await run.result(timeout=45) == secret
        body = codec.encode(secret)
        digest = hashlib.sha256(body).hexdigest()
        stolen = claim(subject=f"jetjobs.{project}-b.payload.{run.run_id}.in.{digest}", size=len(body), sha256=digest)
        await field.raw.pub(field.subject(JOB, "run.thief"), b"", stolen + head(Content_Type="application/msgpack"))
        assert (await field.ended(JOB, "thief")).status is RunStatus.FAILED
        # The same claim is honoured at home: it was refused for its project alone.
        await other.raw.pub(other.subject(JOB, "run.owner"), b"", stolen + head(Content_Type="application/msgpack"))
        assert await other.client.run("billing.eu", "echo", "owner").result(timeout=45) == secret
