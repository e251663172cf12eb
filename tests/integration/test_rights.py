"""docs/security.md on a real server: each user can do all it is for, and has no right it doesn't need."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs import Every, JobClient, JobContext, JobHost, Module, OnEvent, RunStatus
from jetjobs._nats import open_backend
from jetjobs.config import JobRetention
from tests.support.commands import Terminal
from tests.support.links import until_it
from tests.support.rights import (
    Intruder,
    allowed_to_publish,
    blocks,
    login,
    matches,
    sent_by,
    variables,
)
from tests.support.servers import RealServer
from tests.support.shop import LARGE, ONE_TRIGGER, billing, command, guarded, hosting, running

pytestmark = pytest.mark.integration

BRIEFLY = JobRetention(finished=timedelta(seconds=1), keys=timedelta(seconds=1), min_age=timedelta(seconds=1))
# Needed on a cluster only: what a follower doesn't have yet is asked of the leader.
FROM_LEADER = "$JS.API.STREAM.MSG.GET.JETJOBS_shop_payloads"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with guarded(tmp_path_factory.mktemp("rights")) as made:
        yield made


@pytest.fixture
async def host(server: RealServer) -> AsyncIterator[JobHost]:
    async with hosting(server) as started:
        yield started


def refused(logs: list[Any]) -> list[str]:
    """What the server refused anybody in this process."""
    return [line["subject"] for line in logs if line["event"] == "nats permission missing"]


def unused(server: RealServer, user: str) -> set[str]:
    """The rights of a user that it made no use of."""
    sent = sent_by(server.log, user)
    assert sent  # the trace is really there
    return {right for right in allowed_to_publish(user) if not any(matches(right, subject) for subject in sent)}


async def calls(client: JobClient) -> None:
    """All a caller is for."""
    send = client.get_job("billing.send")
    run = await send.trigger(7)
    assert not run.no_host
    assert (await run.wait(timeout=45)).ok
    assert await run.status() is RunStatus.SUCCEEDED
    assert await run.result(timeout=45) == 7
    again = [await send.trigger(1, idempotency_key=run.run_id) for _ in range(2)]
    assert [each.duplicate for each in again] == [False, True]
    many = await client.trigger_many([])
    assert many == []
    large = await send.trigger(LARGE)
    assert await large.result(timeout=45) == LARGE
    soon = await send.trigger("soon", delay="1s")
    assert await soon.status() is RunStatus.SCHEDULED
    assert await soon.result(timeout=45) == "soon"
    later = await send.trigger(delay="1h")
    await later.reschedule(time.time() + 7200)
    await later.cancel()
    assert await later.status() is RunStatus.CANCELLED
    at_work = await running(client)
    await at_work.cancel()
    assert (await at_work.wait(timeout=45)).status is RunStatus.CANCELLED
    assert (await client.runs.get(run.run_id)).ok
    assert len(await client.jobs.list()) >= 3


async def test_a_caller_triggers_follows_and_cancels(server: RealServer, host: JobHost):
    with capture_logs() as logs:
        async with JobClient(login(server, "caller"), project="shop") as client:
            await calls(client)
    assert refused(logs) == []
    assert unused(server, "caller") == {FROM_LEADER}


async def test_an_operator_pauses_limits_and_drains(server: RealServer, host: JobHost):
    with capture_logs() as logs:
        async with JobClient(login(server, "operator"), project="shop") as operator:
            await _is_paused_and_goes_on(operator)
            assert (await operator.jobs.override("billing", "send", max_concurrency=2)).limit == 2
            assert (await operator.jobs.override("billing", "send", max_concurrency=None)).limit == 4
            assert not (await operator.hosts.drain(host.host_id)).closes
    assert refused(logs) == []
    sent = sent_by(server.log, "operator")
    lines = re.findall(r'"(.+)"', blocks()["operator"])
    assert [line for line in lines if not any(matches(line, subject) for subject in sent)] == []
    async with Intruder(server, "operator") as intruder:
        assert await intruder.let_through(["$KV.jetjobs_shop_jobs.billing.send", "jetjobs.shop.control.host.x"]) == []


async def test_a_host_runs_everything_without_a_right_on_streams(server: RealServer):
    with capture_logs() as logs:
        async with (
            hosting(server, module=billing(triggers=[Every("1h")])) as host,
            JobClient(login(server, "boss"), project="shop") as boss,
        ):
            await calls(boss)
            retried = await boss.get_job("billing.send").trigger("again")
            assert (await retried.wait(timeout=45)).attempt == 2
            parent = await boss.get_job("billing.send").trigger("parent")
            assert await parent.result(timeout=45) == "child"
            async with Intruder(server, "boss") as shop:
                await shop.client.publish("orders.paid", b"{}")
            await until_it(partial(_has_runs, boss, {"every", "event"}))
            await _asks_the_owner(server, host, await running(boss))
            await _is_paused_and_goes_on(boss)
            assert host.health().ok
        async with (
            hosting(server, module=billing(triggers=[]), retention=BRIEFLY),
            JobClient(login(server, "boss"), project="shop") as boss,
        ):
            await until_it(partial(_is_pruned, boss, retried.run_id))
    assert refused(logs) == []
    assert unused(server, "host") == {FROM_LEADER}


async def test_a_host_takes_events_of_a_stream(server: RealServer):
    orders = Module("orders")

    @orders.job(timeout="20s", triggers=[OnEvent("orders.placed", stream="ORDERS")])
    async def thank(ctx: JobContext, order: dict[str, Any]) -> None:
        return

    async with Intruder(server, "boss") as shop, hosting(server):
        await shop.client.jetstream().add_stream(name="ORDERS", subjects=["orders.placed"])
        with capture_logs() as logs:
            async with (
                JobHost([orders], project="shop", nats=login(server, "taker")),
                JobClient(login(server, "viewer"), project="shop") as viewer,
            ):
                await shop.store("orders.placed", {}, b"{}")

                async def thanked() -> bool:
                    return any(record.ok for record in await viewer.runs.list(module="orders"))

                await until_it(thanked)
    assert refused(logs) == []
    sent = sent_by(server.log, "taker")
    lines = re.findall(r'"(.+)"', blocks()["events"])
    assert [line for line in lines if not any(matches(line, subject) for subject in sent)] == []


async def _has_runs(client: JobClient, kinds: set[str]) -> bool:
    records = await client.runs.list(module="billing", job="tick")
    return kinds <= {record.trigger.kind for record in records}


async def _is_pruned(client: JobClient, run_id: str) -> bool:
    return run_id not in {record.run_id for record in await client.runs.list(job="send", module="billing")}


async def _is_paused_and_goes_on(client: JobClient) -> None:
    """Until the order has come a run may start; afterwards none does."""
    await client.jobs.pause("billing", "send", actor="ops")

    async def waits() -> bool:
        run = await client.get_job("billing.send").trigger()
        with suppress(TimeoutError):
            await run.wait(timeout=0.3)
            return False
        await client.jobs.resume("billing", "send", actor="ops")
        return (await run.wait(timeout=45)).ok

    await until_it(waits)


async def _asks_the_owner(server: RealServer, host: JobHost, run: Any) -> None:
    """Another host hears from this one that it has the run."""
    other = await open_backend(login(server, "host"), "shop", name="another host")
    try:
        claim = (await run.record()).claim
        assert await other.broker.ask_owner(host.host_id, run.key, claim)
    finally:
        await other.close()


async def test_a_gateway_caller_asks_for_runs_without_jetstream(server: RealServer, host: JobHost):
    async with Intruder(server, "gateway") as caller, JobClient(login(server, "viewer"), project="shop") as viewer:
        answer = await caller.client.request("jetjobs.shop.call.billing.send", b"7", timeout=5)
        assert b'"run_id"' in answer.data
        run_id = answer.data.split(b'"run_id":"')[1].split(b'"')[0].decode()
        assert await viewer.run("billing", "send", run_id).result(timeout=45) == 7
        streams = ["$JS.API.INFO", "$JS.API.STREAM.INFO.JETJOBS_shop", "$JS.API.STREAM.MSG.GET.KV_jetjobs_shop_runs"]
        assert await caller.let_through([ONE_TRIGGER, *streams, "$KV.jetjobs_shop_runs.a.b.c"]) == []
        assert await caller.let_hear(["jetjobs.shop.>", "_INBOX.>", "_INBOX_shop_host.>", ">"]) == []


async def test_a_viewer_sees_everything(server: RealServer, host: JobHost, tmp_path: Path):
    async with JobClient(login(server, "boss"), project="shop") as boss:
        run = await boss.get_job("billing.send").trigger(LARGE)
        await run.wait(timeout=45)
        later = await boss.get_job("billing.send").trigger(delay="1h")
    with capture_logs() as logs:
        async with JobClient(login(server, "viewer"), project="shop") as viewer:
            assert await viewer.run("billing", "send", run.run_id).result(timeout=45) == LARGE
            assert (await viewer.runs.get(later.run_id)).status is RunStatus.SCHEDULED
            assert (await viewer.jobs.get("billing.send")).job == "send"
    assert refused(logs) == []
    terminal = Terminal(tmp_path, project="shop")
    see = partial(command, terminal, variables(server, "viewer"))
    assert run.run_id in (await see("runs", "list")).out
    assert run.run_id in (await see("runs", "show", run.run_id)).out
    assert "billing.send" in (await see("jobs", "list")).out
    assert host.host_id in (await see("hosts", "list")).out
    doctor = await see("doctor")
    assert "may not store triggers" in doctor.out
    assert "permission" not in (doctor.out + doctor.err).lower()
    assert unused(server, "viewer") == {FROM_LEADER}


async def test_an_admin_makes_and_removes_the_project(server: RealServer):
    with capture_logs() as logs:
        async with hosting(server), JobClient(login(server, "admin"), project="shop") as admin:
            await calls(admin)
            assert await admin.hosts.list()
            (ended, *_) = await admin.runs.list(job="send", status="succeeded")
            later = await admin.get_job("billing.send").trigger(1, delay="1h")
            assert [each.run_id for each in await admin.runs.cancel(text=later.run_id)] == [later.run_id]
            assert [each.ok for each in await admin.runs.retry(ended)] == [True]
            assert [each.ok for each in await admin.runs.delete(ended)] == [True]
    assert refused(logs) == []
    async with Intruder(server, "admin") as admin:
        for wanted in ("JETJOBS_shop", "JETJOBS_shop_payloads", "KV_jetjobs_shop_runs"):
            assert b'"success":true' in (await admin.client.request(f"$JS.API.STREAM.DELETE.{wanted}")).data
