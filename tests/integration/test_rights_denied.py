"""docs/security.md on a real server: nobody can do what he must not, and why the project is the boundary."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from functools import partial
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from jetjobs import JobClient, JobHost, RunStatus
from jetjobs._core import names
from jetjobs.errors import PermissionMissing
from tests.support.commands import Terminal
from tests.support.links import until_it
from tests.support.rights import (
    Intruder,
    login,
    variables,
)
from tests.support.servers import RealServer
from tests.support.shop import LARGE, ONE_SCHEDULE, ONE_TRIGGER, WITHIN, billing, command, guarded, hosting, running

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    with guarded(tmp_path_factory.mktemp("rights")) as made:
        yield made


@pytest.fixture
async def host(server: RealServer) -> AsyncIterator[JobHost]:
    async with hosting(server) as started:
        yield started


async def denied(call: Awaitable[object], subject: str) -> None:
    """The call fails in time and names the subject."""
    begun = time.monotonic()
    with pytest.raises(PermissionMissing) as raised:
        await call
    assert time.monotonic() - begun < WITHIN
    assert (raised.value.subject or "").startswith(subject)
    assert subject in str(raised.value)


async def test_callers_and_viewers_order_nothing(server: RealServer, host: JobHost):
    for user in ("caller", "viewer"):
        async with JobClient(login(server, user), project="shop") as client:
            await denied(client.jobs.pause("billing", "send"), "$KV.jetjobs_shop_jobs.control.billing.send")
            orders = client.jobs.override("billing", "send", max_concurrency=1)
            await denied(orders, "$KV.jetjobs_shop_jobs.control.billing.send")
            await denied(client.hosts.drain(host.host_id), "jetjobs.shop.control.drain.")
            assert (await client.jobs.get("billing", "send")).control is None
    assert not host.health().draining


async def test_a_viewer_can_neither_trigger_nor_cancel(server: RealServer, host: JobHost, tmp_path: Path):
    async with JobClient(login(server, "boss"), project="shop") as boss:
        run = await running(boss)
    async with JobClient(login(server, "viewer"), project="shop") as viewer:
        send = viewer.get_job("billing.send")
        await denied(send.trigger(1), "jetjobs.shop.trigger.billing.send.run.")
        await denied(send.trigger(1, delay="1h"), "jetjobs.shop.schedule.billing.send.run.")
        await denied(send.trigger(LARGE), "jetjobs.shop.payload.")
        record = f"$KV.jetjobs_shop_runs.billing.wait.{run.run_id}"
        await denied(viewer.run("billing", "wait", run.run_id).cancel(), record)
        assert await viewer.run("billing", "wait", run.run_id).status() is RunStatus.RUNNING
    terminal = Terminal(tmp_path, project="shop")
    fail = partial(command, terminal, variables(server, "viewer"), code=3)
    assert '"jetjobs.shop.trigger.billing.send.run.' in (await fail("trigger", "billing.send")).last_line
    assert f'"{record}"' in (await fail("runs", "cancel", run.run_id)).last_line


async def test_a_viewer_can_not_host(server: RealServer, host: JobHost):
    await denied(JobHost([billing()], project="shop", nats=login(server, "viewer")).start(), "$JS.API.")


OTHERS = [
    "jetjobs.other.trigger.billing.send.run.r1",
    "jetjobs.other.call.billing.send",
    "$KV.jetjobs_other_runs.billing.send.r1",
    "$JS.API.STREAM.INFO.JETJOBS_other",
    "$JS.API.STREAM.MSG.GET.KV_jetjobs_other_runs",
    "$JS.API.DIRECT.GET.KV_jetjobs_other_runs",
    "$JS.API.STREAM.PURGE.JETJOBS_other",
    "$JS.API.STREAM.DELETE.JETJOBS_other",
    "$JS.API.CONSUMER.CREATE.JETJOBS_other.billing=_send",
    "$JS.API.CONSUMER.MSG.NEXT.JETJOBS_other.billing=_send",
    "$JS.ACK.JETJOBS_other.billing=_send.1.1.1.1.0",
    "jetjobs.other.control.host.h1",
    "$JS.API.STREAM.NAMES",
    "$JS.API.STREAM.LIST",
    "$JS.API.STREAM.CREATE.MINE",
]
STREAMS = [
    *(f"$JS.API.STREAM.{verb}.JETJOBS_shop" for verb in ("CREATE", "UPDATE", "DELETE")),
    "$JS.API.STREAM.DELETE.KV_jetjobs_shop_runs",
    "$JS.API.CONSUMER.DELETE.JETJOBS_shop.billing=_send",
]
HOSTS = [
    "$JS.API.CONSUMER.CREATE.JETJOBS_shop.billing=_send",
    "$JS.API.CONSUMER.MSG.NEXT.JETJOBS_shop.billing=_send",
    "$JS.ACK.JETJOBS_shop.billing=_send.1.1.1.1.0",
    "jetjobs.shop.control.host.h1",
    "jetjobs.shop.events.SUCCEEDED.billing.send.r1",
    "jetjobs.shop.trigger.billing.tick.tick.s1",
    "jetjobs.shop.schedule.billing.tick.tick.s1",
    "$KV.jetjobs_shop_jobs.billing.send",
    "$KV.jetjobs_shop_hosts.h1",
    "$KV.jetjobs_shop_schedules.id.s1",
    "$JS.API.STREAM.PURGE.KV_jetjobs_shop_runs",
    "$JS.API.STREAM.PURGE.JETJOBS_shop_payloads",
]
DEAF = [">", "$JS.>", "_INBOX.>", "_INBOX_boss.>", "jetjobs.>", "jetjobs.other.>", "jetjobs.other.events.>", "$KV.>"]


@pytest.mark.usefixtures("host")
async def test_a_caller_without_the_lines_for_it_can_not_cancel_and_all_else(server: RealServer):
    with capture_logs() as logs:
        async with JobClient(login(server, "asker"), project="shop") as asker:
            send = asker.get_job("billing.send")
            run = await send.trigger(LARGE, idempotency_key="large")
            assert (await send.trigger(LARGE, idempotency_key="large")).duplicate
            assert await run.result(timeout=45) == LARGE
            later = await send.trigger("later", delay="1h")
            await later.reschedule(time.time())
            assert await later.result(timeout=45) == "later"
            at_work = await running(asker)
            assert [line for line in logs if line["event"] == "nats permission missing"] == []
            await denied(at_work.cancel(), f"$KV.jetjobs_shop_runs.billing.wait.{at_work.run_id}")


@pytest.mark.parametrize(
    "user, publish",
    [
        ("caller", [*OTHERS, *STREAMS, *HOSTS]),
        ("viewer", [*OTHERS, *STREAMS, *HOSTS, ONE_TRIGGER, "jetjobs.shop.call.billing.send"]),
        ("gateway", [*OTHERS, *STREAMS, *HOSTS, ONE_TRIGGER]),
        ("host", [*OTHERS, *STREAMS]),
        ("admin", OTHERS),
    ],
)
async def test_nobody_gets_where_he_has_no_business(server: RealServer, user: str, publish: list[str]):
    async with Intruder(server, user) as intruder:
        assert await intruder.let_through(publish) == []
        assert await intruder.let_hear(DEAF) == []
        own = f"_INBOX_shop_{user}.mine.>"
        assert await intruder.let_hear([own]) == [own]  # refusals are told apart from silence


async def test_a_program_that_is_not_told_its_inbox_says_so(server: RealServer, host: JobHost):
    told = login(server, "caller")
    del told["inbox_prefix"]

    async def trigger() -> None:
        async with JobClient(told, project="shop") as client:
            await client.get_job("billing.send").trigger(1)

    await denied(trigger(), "_INBOX.")


async def test_two_projects_of_one_account_see_nothing_of_each_other(server: RealServer, host: JobHost):
    async with hosting(server, "boss", "other") as other, JobClient(login(server, "boss"), project="other") as boss:
        run = await boss.get_job("billing.send").trigger("other")
        assert await run.result(timeout=45) == "other"
        assert [each.host_id for each in await boss.hosts.list()] == [other.host_id]
        async with JobClient(login(server, "boss"), project="shop") as shop:
            assert run.run_id not in {record.run_id for record in await shop.runs.list(limit=1000)}
            assert other.host_id not in {each.host_id for each in await shop.hosts.list()}
        async with JobClient(login(server, "caller"), project="other") as caller:
            await denied(caller.get_job("billing.send").trigger(1), "jetjobs.other.trigger.billing.send.run.")
            await denied(caller.runs.get(run.run_id), "$JS.API.STREAM.INFO.KV_jetjobs_other_runs")
            await denied(caller.runs.list(), "$JS.API.DIRECT.GET.KV_jetjobs_other_runs")
            await denied(caller.jobs.list(), "$JS.API.DIRECT.GET.KV_jetjobs_other_jobs")
            record = "$JS.API.STREAM.MSG.GET.KV_jetjobs_other_runs"
            await denied(caller.run("billing", "send", run.run_id).cancel(), record)


class TestWhyTheProjectIsTheBoundary:
    """Headers do what no permission sees. `one` may publish on one subject, `two` on that and one schedule's."""

    async def subjects(self, server: RealServer) -> set[str]:
        async with Intruder(server, "boss") as boss:
            info = await boss.client.jetstream().stream_info(names.stream("shop"), subjects_filter=">")
            return set(info.state.subjects or ())

    async def prepare(self, server: RealServer) -> str:
        """A project with a schedule and a waiting run and no host; the schedule's subject."""
        async with hosting(server):
            pass
        async with JobClient(login(server, "boss"), project="shop") as boss:
            await boss.get_job("billing.wait").trigger()
        there = await self.subjects(server)
        assert any(".trigger.billing.wait.run." in subject for subject in there)
        return next(subject for subject in there if ".schedule.billing.tick.tick." in subject)

    async def test_one_trigger_empties_the_stream(self, server: RealServer):
        schedule = await self.prepare(server)
        assert schedule in await self.subjects(server)
        async with Intruder(server, "one") as one:
            await one.store(ONE_TRIGGER, {"Nats-Rollup": "all"})
        assert await self.subjects(server) == {ONE_TRIGGER}

    async def test_one_trigger_removes_a_schedule(self, server: RealServer):
        schedule = await self.prepare(server)
        async with Intruder(server, "one") as one:
            await one.store(ONE_TRIGGER, {"Nats-Scheduler": schedule, "Nats-Schedule-Next": "purge"})
        assert schedule not in await self.subjects(server)

    async def test_one_schedule_fires_any_job(self, server: RealServer):
        await self.prepare(server)
        target = "jetjobs.shop.trigger.billing.tick.run.stolen"
        async with Intruder(server, "two") as two:
            assert await two.let_through([target]) == []
            line = {"Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": target}
            await two.store(ONE_SCHEDULE, line)
        seen: set[str] = set()

        async def fired() -> bool:
            seen.update(await self.subjects(server))
            return target in seen

        await until_it(fired)

    @pytest.mark.usefixtures("host")
    async def test_a_read_of_one_record_is_a_read_of_all(self, server: RealServer):
        async with JobClient(login(server, "caller"), project="shop") as caller:
            run = await caller.get_job("billing.send").trigger("secret")
            await run.wait(timeout=45)
        async with Intruder(server, "viewer") as viewer:
            wanted = f'{{"last_by_subj": "$KV.jetjobs_shop_runs.billing.send.{run.run_id}"}}'.encode()
            found = await viewer.client.request("$JS.API.STREAM.MSG.GET.KV_jetjobs_shop_runs", wanted)
        assert b'"message"' in found.data
