"""The call gateway on a real server, from a bare socket: what any program in any language can do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import JobClient, JobContext, JobHost, Module, RunStatus
from jetjobs._core import codec, names
from jetjobs.config import HostSettings
from tests.support.field import QUICK, Field, field_of
from tests.support.links import until_it
from tests.support.raw_caller import NoResponders, RawCaller
from tests.support.raw_socket import head
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


class Invoice(BaseModel):
    id: int
    note: str = ""


def shop(hosted: str = "one", gate: asyncio.Event | None = None) -> Module:
    module = Module("billing.invoices")

    @module.job(timeout="20s", max_concurrency=8)
    async def send(ctx: JobContext[Any], invoice: Invoice) -> dict[str, Any]:
        if gate is not None:
            await gate.wait()
        return {"id": invoice.id, "size": len(invoice.note), "host": hosted}

    @module.job(timeout="20s")
    async def tick(ctx: JobContext[Any]) -> str:
        return "ticked"

    return module


@asynccontextmanager
async def caller_of(url: str, **credentials: str) -> AsyncGenerator[RawCaller]:
    async with RawCaller(int(url.rpartition(":")[2]), **credentials) as caller:
        yield caller


def calls(field: Field, job: str = "send") -> str:
    return f"jetjobs.{field.project}.call.billing=2Einvoices.{job}"


async def test_a_call_becomes_a_run_as_a_plain_publish_does(nats_url: str, project: str):
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        await field.host(shop())
        answer = await caller.call(calls(field), b'{"id": 7}')
        assert answer == {"run_id": answer["run_id"], "duplicate": False}
        called = await field.ended("billing.invoices.send", answer["run_id"])
        await field.raw.pub(field.subject("billing.invoices.send", "run.order-7"), b'{"id": 7}')
        published = await field.ended("billing.invoices.send", "order-7")
        for record in (called, published):
            assert (record.status, record.result) == (RunStatus.SUCCEEDED, {"id": 7, "size": 0, "host": "one"})
            assert record.trigger.kind == "manual"
        without = await caller.call(calls(field, "tick"))
        assert (await field.ended("billing.invoices.tick", without["run_id"])).result == "ticked"


async def test_a_key_names_one_run(nats_url: str, project: str):
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        await field.host(shop())
        key = head(jetjobs_key="order 7/%C3%A9".replace(" ", "%20"))
        first = await caller.call(calls(field), b'{"id": 7}', key)
        again = await caller.call(calls(field), b'{"id": 7.0}', key)
        other = await caller.call(calls(field), b'{"id": 8}', key)
        run_id = names.run_id_for_key("billing.invoices", "send", "order 7/é")
        assert first == {"run_id": run_id, "duplicate": False}
        assert again == {"run_id": run_id, "duplicate": True}
        assert other == {"run_id": run_id, "duplicate": True, "payload_differs": True}
        record = await field.ended("billing.invoices.send", run_id)
        assert (record.key, record.result["id"]) == ("order 7/é", 7)


async def test_bodies_may_be_msgpack_or_large(nats_url: str, project: str):
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        await field.host(shop())
        packed = await caller.call(
            calls(field), codec.encode({"id": 1, "note": "abc"}), head(content_type="application/msgpack")
        )
        typed = await caller.call(calls(field), b'{"id": 2}', head(Content_Type="application/json; charset=utf-8"))
        large = await caller.call(calls(field), json.dumps({"id": 3, "note": "x" * 300_000}).encode())
        sizes = [
            (await field.ended("billing.invoices.send", each["run_id"])).result["size"]
            for each in (packed, typed, large)
        ]
        assert sizes == [3, 0, 300_000]


REFUSED: dict[str, tuple[str, bytes, bytes, str, str]] = {
    "doesn't fit": ("send", b'{"id": "x"}', b"", "PayloadInvalidError", "id"),
    "nothing": ("send", b"", b"", "PayloadInvalidError", "billing.invoices.send"),
    "no JSON": ("send", b"{id: 7}", b"", "PayloadInvalidError", ""),
    "no msgpack": ("send", b"\xc1", head(Content_Type="application/msgpack"), "PayloadInvalidError", ""),
    "deep": ("send", b"[" * 50_000, b"", "PayloadInvalidError", ""),
    "not finite": ("send", b'{"id": NaN}', b"", "PayloadInvalidError", "NaN"),
    "other type": ("send", b"<id>7</id>", head(Content_Type="text/xml"), "PayloadInvalidError", "Content-Type"),
    "takes none": ("tick", b"1", b"", "PayloadInvalidError", "takes no payload"),
    "empty key": ("send", b'{"id": 7}', head(Jetjobs_Key=""), "InvalidNameError", "Jetjobs-Key"),
    "long key": ("send", b'{"id": 7}', head(Jetjobs_Key="k" * 5000), "InvalidNameError", "4096"),
    "too large": ("send", b'{"id": 7, "note": "' + b"x" * 70_000 + b'"}', b"", "PayloadTooLargeError", "65536"),
}


async def test_what_can_t_be_is_answered_and_stores_nothing(nats_url: str, project: str):
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        await field.host(shop(), settings=[("max_payload", 65536)])
        for name, (job, body, header, kind, text) in REFUSED.items():
            answer = await caller.call(calls(field, job), body, header)
            assert list(answer) == ["error"], name
            assert (answer["error"]["type"], text in answer["error"]["message"]) == (kind, True), (name, answer)
        assert await field.messages() == {}
        assert await field.client.runs.list() == []
        assert "run_id" in await caller.call(calls(field), b'{"id": 7}')


async def test_with_nobody_there_it_is_the_broker_that_says_so(nats_url: str, project: str):
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        with pytest.raises(NoResponders):
            await caller.call(calls(field), b'{"id": 7}')
        await field.host(shop(), disable=["*.tick"])
        assert "run_id" in await caller.call(calls(field), b'{"id": 7}')
        for job in ("tick", "nonsense"):
            with pytest.raises(NoResponders):
                await caller.call(calls(field, job))


async def test_other_headers_say_nothing(nats_url: str, project: str):
    """A caller isn't trusted: it may not say what asked for the run, when it expires, or what is done to the stream."""
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        await field.host(shop())
        sly = head(
            Nats_Rollup="all", Nats_TTL="1s", Nats_Schedule_Next="purge", Nats_Msg_Id="x", Jetjobs_Turn="9",
            Jetjobs_Trigger='{"kind":"cron","schedule_id":"s"}', Jetjobs_Expires_In="1", Jetjobs_Payload="{}",
        )  # fmt: skip
        answer = await caller.call(calls(field), b'{"id": 7}', sly)
        record = await field.ended("billing.invoices.send", answer["run_id"])
        assert (record.status, record.trigger.kind, record.turn) == (RunStatus.SUCCEEDED, "manual", 1)
        assert record.schedule_id is None


async def test_an_answer_goes_to_an_inbox_and_nowhere_else(nats_url: str, project: str):
    """The host may write where a caller may not: on other jobs' triggers, on the stream's API."""
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        await field.host(shop())
        stream = names.stream(project)
        held = await caller.call(calls(field), b'{"id": 1}')
        await field.ended("billing.invoices.send", held["run_id"])
        for reply in (
            field.subject("billing.invoices.tick", "run.sly"),
            f"$JS.API.STREAM.PURGE.{stream}",
            f"$KV.jetjobs_{project}_runs.a.b.c",
            "orders.paid",
        ):
            caller.publish(calls(field), b'{"id": 2}', reply=reply)
            caller.publish(calls(field), b'{"id": "x"}', reply=reply)
        assert "run_id" in await caller.call(calls(field), b'{"id": 3}', head(Jetjobs_Key="last"))
        await field.ended("billing.invoices.send", names.run_id_for_key("billing.invoices", "send", "last"))
        await field.retired("billing.invoices.send")
        assert await field.messages() == {}
        records = await field.client.runs.list()
        assert sorted((record.job, record.payload["id"]) for record in records) == [("send", 1), ("send", 3)]


async def test_a_call_that_wants_no_answer_is_one_all_the_same(nats_url: str, project: str):
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        await field.host(shop())
        caller.publish(calls(field), b'{"id": 7}', head(Jetjobs_Key="quiet"))
        caller.publish(calls(field), b"nonsense")
        run_id = names.run_id_for_key("billing.invoices", "send", "quiet")

        async def there() -> bool:
            return bool(await field.client.runs.list(job="send"))

        await until_it(there)
        assert (await field.ended("billing.invoices.send", run_id)).status is RunStatus.SUCCEEDED


async def test_hosts_share_the_calls_and_a_rollout_loses_none(nats_url: str, project: str):
    """Callers go on while one host leaves and another comes: each call is answered, each with a run."""
    async with field_of(nats_url, project) as field, caller_of(nats_url) as caller:
        first = await field.host(shop("one"))
        await field.host(shop("two"))
        answers: list[Any] = []
        closing = None
        for number in range(300):
            answers.append(await caller.call(calls(field), b'{"id": %d}' % number))
            if number == 100:
                closing = asyncio.ensure_future(first.close())
            if number == 200:
                await field.host(shop("three"))
        assert closing is not None
        await closing
        assert all(list(answer) == ["run_id", "duplicate"] for answer in answers)
        assert len({answer["run_id"] for answer in answers}) == 300
        for answer in answers:
            assert (await field.ended("billing.invoices.send", answer["run_id"])).status is RunStatus.SUCCEEDED


AUTH = """
authorization {{
  users: [
    {{ user: host, password: host }}
    {{ user: caller, password: caller, permissions: {{
      publish: ["jetjobs.{project}.call.>"], subscribe: ["_INBOX.>"] }} }}
    {{ user: deaf, password: deaf, permissions: {{
      publish: [">"], subscribe: {{ deny: ["jetjobs.{project}.call.>"] }} }} }}
  ]
}}
"""


async def test_a_caller_needs_the_right_to_call_and_no_other(tmp_path: Path, project: str):
    with RealServer(tmp_path / "nats", extra_conf=AUTH.format(project=project)) as server:
        nats = f"nats://host:host@127.0.0.1:{server.port}"
        settings = HostSettings(**QUICK)
        async with (
            JobHost(shop(), project=project, nats=nats, settings=settings),
            RawCaller(server.port, user="caller", **{"pass": "caller"}) as caller,
        ):
            subject = f"jetjobs.{project}.call.billing=2Einvoices.send"
            answer = await caller.call(subject, b'{"id": 7}', head(Jetjobs_Key="order-7"))
            assert answer["duplicate"] is False
            assert (await caller.call(subject, b'{"id": 7}', head(Jetjobs_Key="order-7")))["duplicate"] is True
            assert caller.refused == []
            direct = f"jetjobs.{project}.trigger.billing=2Einvoices.send.run.x"
            for forbidden in (direct, f"$JS.API.STREAM.INFO.JETJOBS_{project}"):
                caller.publish(forbidden, b"{}")
                await caller.sent()
            assert len(caller.refused) == 2
            assert all("Permissions Violation for Publish" in line for line in caller.refused)


async def test_a_host_without_the_right_to_hear_calls_runs_its_jobs(
    tmp_path: Path, project: str, capsys: pytest.CaptureFixture[str]
):
    with RealServer(tmp_path / "nats", extra_conf=AUTH.format(project=project)) as server:
        nats = f"nats://deaf:deaf@127.0.0.1:{server.port}"
        async with (
            JobHost(shop(), project=project, nats=nats, settings=HostSettings(**QUICK)),
            JobClient(nats, project=project) as client,
        ):
            run = await client.get_job("billing.invoices.tick").trigger()
            assert await run.result(timeout=45) == "ticked"
        assert f"jetjobs.{project}.call.billing=2einvoices.tick" in capsys.readouterr().out.lower()
