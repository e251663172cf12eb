"""Records and messages of other releases: unknown parts survive, unknown versions are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgpack
import pytest

from jetjobs import JobContext, Module, RunStatus
from jetjobs._core import names, wire
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.models import Attempt, RunError, RunKey, RunRecord
from jetjobs.errors import PayloadInvalidError
from tests.support.field import Field, field_of
from tests.support.links import until
from tests.support.raw_socket import head
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

RUN = RunKey("evo", "go", "x1")


def evo(goes_on: asyncio.Event) -> Module:
    module = Module("evo")

    @module.job(max_attempts=5, timeout="60s", max_concurrency=2)
    async def go(ctx: JobContext, payload: Any = None) -> int:
        ctx.log("still here")
        await goes_on.wait()
        return ctx.attempt

    @module.job(timeout="20s")
    async def ping(ctx: JobContext) -> str:
        return "pong"

    return module


@pytest.fixture
def goes_on() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def field(nats_url: str, project: str, goes_on: asyncio.Event) -> AsyncIterator[Field]:
    async with field_of(nats_url, project) as made:
        await made.host(evo(goes_on))
        yield made


def retrying(**unknown: Any) -> bytes:
    """The record of a run that waits for its second message, as some other release wrote it."""
    now = datetime.now(UTC)
    record = RunRecord(
        RUN.run_id, RUN.module, RUN.job, RunStatus.RETRYING,
        starts=1, turn=2, max_attempts=5, claim="theirs", retry_at=now, created_at=now,
        expires_at=now + timedelta(hours=1), error=RunError("ValueError", "first"),
        attempts=(Attempt(1, "h", now, now, "FAILED", RunError("ValueError", "first")),),
    )  # fmt: skip
    shape = cast("dict[str, Any]", msgpack.unpackb(wire.pack_record(record), timestamp=3))
    return cast("bytes", msgpack.packb({**shape, **unknown}, datetime=True))


async def put(field: Field, data: bytes) -> None:
    await field.nats.jetstream().publish(names.record_subject(field.project, RUN), data)


async def raw(field: Field) -> dict[str, Any]:
    stream = names.bucket_stream(names.runs_bucket(field.project))
    message = await field.nats.jetstream().get_last_msg(stream, names.record_subject(field.project, RUN))
    return cast("dict[str, Any]", msgpack.unpackb(message.data or b"", timestamp=3))


async def next_message(field: Field) -> None:
    lines = head(Jetjobs_Turn="2", Jetjobs_Later="field", Jetjobs_Trigger='{"kind": "retry", "later": {"deep": [1]}}')
    await field.raw.pub(field.subject("evo.go", "run.x1"), b"", lines)


async def test_b50_unknown_fields_survive_claim_heartbeat_and_end(field: Field, goes_on: asyncio.Event):
    """A record and a message with parts this release doesn't know."""
    later = {"nested": [1, {"a": None}], "at": 2.5}
    await put(field, retrying(later=later, zz="text"))
    await next_message(field)

    async def heartbeat() -> Any:
        found = await raw(field)
        return found if found.get("logs") else None

    beaten = await eventually(heartbeat, what="a heartbeat")
    assert (beaten["status"], beaten["later"], beaten["zz"]) == ("RUNNING", later, "text")
    goes_on.set()
    record = await field.ended("evo.go", "x1")
    assert (record.status, record.result, record.attempt) == (RunStatus.SUCCEEDED, 2, 2)
    ended = await raw(field)
    assert (ended["later"], ended["zz"], ended["v"]) == (later, "text", wire.VERSION)
    await field.retired("evo.go")


@pytest.mark.parametrize(
    "data",
    [retrying(v=wire.VERSION + 1), retrying(v=10**9), retrying(v="2"), b"no record at all", b"\x80"],
    ids=["next", "far", "text", "garbage", "empty-map"],
)
async def test_b50_what_this_release_can_not_read_is_left_alone(
    field: Field, goes_on: asyncio.Event, capsys: pytest.CaptureFixture[str], data: bytes
):
    """The record stays as it is, the message stays for a host that can, the log says so, other runs go on."""
    goes_on.set()
    await put(field, data)
    await next_message(field)
    said: list[str] = []

    def heard() -> bool:
        said.append(capsys.readouterr().out)
        return any("record_unreadable" in out or "run_given_back" in out for out in said)

    await until(heard)
    for _ in range(3):
        await field.ping("evo")
    stream = names.bucket_stream(names.runs_bucket(field.project))
    message = await field.nats.jetstream().get_last_msg(stream, names.record_subject(field.project, RUN))
    assert (message.data or b"") == data
    assert names.trigger_subject(field.project, RUN) in await field.messages()


async def test_a_marker_of_somebodys_delete_is_no_record(field: Field, goes_on: asyncio.Event):
    """`nats kv del` on a record whose message is still there: the run starts anew, and nothing spins."""
    goes_on.set()
    await put(field, b"")
    await next_message(field)
    record = await field.ended("evo.go", "x1")
    assert (record.status, record.attempt) == (RunStatus.SUCCEEDED, 1)
    await field.retired("evo.go")


@pytest.mark.parametrize("subject", ["$SYS.x y", "a b\r\nPUB evil 0\r\n", "jetjobs.other.payload.r.in.x", ">"])
async def test_a_claim_check_in_a_record_leads_nowhere_else(field: Field, goes_on: asyncio.Event, subject: str):
    """B121: whoever could write it, it is data: the run fails once, and readers of the result are told."""
    claim = {"claim": {"subject": subject, "chunks": 1, "size": 1, "sha256": "0" * 64}}
    await put(field, retrying(payload=claim))
    await next_message(field)
    record = await field.ended("evo.go", "x1")
    assert record.status is RunStatus.FAILED
    assert "no subject of this project" in str(record.error)
    await field.retired("evo.go")
    await put(field, retrying(result=claim, status="SUCCEEDED", payload=None))
    with pytest.raises(PayloadInvalidError, match="no subject of this project"):
        await field.client.run(*RUN).result(timeout=45)
    await field.ping("evo")


async def test_b50_readers_pass_over_it_or_say_so(field: Field):
    """One such record hides no other."""
    await field.ping("evo")
    await put(field, retrying(v=wire.VERSION + 1))
    assert [record.job for record in await field.client.runs.list()] == ["ping"]
    for call in (
        field.client.run(*RUN).record,
        lambda: field.client.runs.get(RUN.run_id, module=RUN.module, job=RUN.job),
        lambda: field.client.run(*RUN).wait(45),
    ):
        with pytest.raises(PayloadInvalidError, match=r"version 2.*upgrade"):
            await call()


async def test_b50_descriptors_and_hosts_of_a_newer_release(field: Field, goes_on: asyncio.Event):
    """They neither hide the others nor stop a host or a caller."""
    newer = cast("dict[str, Any]", msgpack.unpackb(wire.pack_descriptor(JobDescriptor("new", "job")), timestamp=3))
    data = cast("bytes", msgpack.packb({**newer, "v": 2}))
    jetstream = field.nats.jetstream()
    for bucket, key in ((names.jobs_bucket(field.project), "new.job"), (names.hosts_bucket(field.project), "newer")):
        await jetstream.publish(names.bucket_subject(bucket, key), data)
    assert {job.job for job in await field.client.jobs.list()} == {"go", "ping"}
    assert len(await field.client.hosts.list()) == 1
    await field.host(evo(goes_on))
    await field.ping("evo")
