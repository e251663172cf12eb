"""A job under a new name, on a real server: what comes under the old one, alone and beside the old release."""

from __future__ import annotations

import asyncio
import json
import secrets
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs import Every, JobContext, JobHost, JobRun, Module, OnEvent, RunStatus
from jetjobs._core import names
from jetjobs._core.models import JobAddress
from jetjobs._core.schedules import pause
from jetjobs._nats import open_backend
from jetjobs.errors import UnknownJobError
from tests.support.field import Field
from tests.support.links import until_it
from tests.support.raw_caller import RawCaller
from tests.support.renamed_family import release_1, release_2

pytestmark = pytest.mark.integration

SEND = JobAddress("shop", "send")


class Shop:
    """One service in two releases: what 1 calls `send`, 2 calls `mail`."""

    def __init__(self, *triggers: Any, limit: int = 4) -> None:
        self.triggers = triggers
        self.limit = limit
        self.calls: list[tuple[str, str, str]] = []  # release, name, run
        self.gate = asyncio.Event()
        self.gate.set()
        self.live = self.most_live = 0

    def release(self, number: str) -> Module:
        module = Module("shop")
        options: dict[str, Any] = {"timeout": "20s", "max_concurrency": self.limit, "triggers": self.triggers}
        if number == "2":
            options["aliases"] = ("send",)

        async def handler(ctx: JobContext[Any], payload: Any = None) -> str:
            self.calls.append((number, ctx.job, ctx.run_id))
            self.live += 1
            self.most_live = max(self.live, self.most_live)
            await self.gate.wait()
            self.live -= 1
            return number

        module.expose_job("send" if number == "1" else "mail", handler, **options)
        return module


async def release(field: Field, shop: Shop, number: str) -> JobHost:
    return await field.host(shop.release(number), version=number)


async def test_what_waits_under_the_old_name_is_run_by_the_new_handler_and_keeps_name_and_key(field: Field):
    shop = Shop()
    await (await release(field, shop, "1")).close()
    old = field.client.get_job("shop", "send")
    waiting = await old.trigger({"n": 1}, idempotency_key="inv-1")
    delayed = await old.trigger({"n": 2}, delay="1s")
    assert waiting.no_host
    await release(field, shop, "2")
    record = await waiting.wait(timeout=45)
    assert (record.job, record.version, record.key) == ("send", "2", "inv-1")
    assert await delayed.result(timeout=45) == "2"
    again = await old.trigger({"n": 1}, idempotency_key="inv-1")
    assert (again.duplicate, again.run_id) == (True, waiting.run_id)
    assert shop.calls == [("2", "send", waiting.run_id), ("2", "send", delayed.run_id)]


async def test_the_old_name_is_known_where_no_old_release_ever_was(field: Field, nats_url: str):
    shop = Shop()
    module = shop.release("2")
    host = await field.host(module, version="2")
    run = await field.client.get_job("shop.send").trigger()
    assert await run.result(timeout=45) == "2"
    assert not run.no_host
    assert await (await module.atrigger_job("send")).result(timeout=45) == "2"
    subject = field.subject("shop.send", "run.bare-1")
    await field.nats.publish(subject, b'{"n": 3}')
    assert (await field.ended("shop.send", "bare-1")).status is RunStatus.SUCCEEDED
    async with RawCaller(int(nats_url.rpartition(":")[2])) as caller:
        answer = await caller.call(f"jetjobs.{field.project}.call.shop.send", b'{"n": 4}')
    assert (await field.ended("shop.send", answer["run_id"])).result == "2"
    assert {name for _, name, _ in shop.calls} == {"send"}
    found = {each.job: each.now_called for each in await field.client.jobs.list()}
    assert found == {"mail": None, "send": "mail"}
    with pytest.raises(UnknownJobError):
        await field.client.get_job("shop.sent").trigger()
    await host.close()


async def test_both_releases_take_from_the_old_durable_and_neither_changes_it(field: Field):
    shop = Shop()
    first = await release(field, shop, "1")
    before = await field.consumer("shop.send")
    await release(field, shop, "2")
    old, new = field.client.get_job("shop.send"), field.client.get_job("shop.mail")
    while not {("1", "send"), ("2", "send"), ("2", "mail")} <= {call[:2] for call in shop.calls}:
        await asyncio.gather(*[(await job.trigger()).result(timeout=45) for job in (old, new) for _ in range(4)])
    await first.close()
    await release(field, shop, "1")  # an old one starts again
    after = await field.consumer("shop.send")
    assert (after.config.filter_subjects, after.config.max_ack_pending) == (
        before.config.filter_subjects,
        before.config.max_ack_pending,
    )
    assert not [call for call in shop.calls if call[:2] == ("1", "mail")]


async def test_on_one_host_both_names_share_the_limit(field: Field):
    shop = Shop(limit=1)
    shop.gate.clear()
    await release(field, shop, "2")
    runs = [await field.client.get_job("shop", job).trigger() for job in ("send", "mail", "send", "mail")]

    async def one_lives() -> bool:
        return shop.live == 1

    await until_it(one_lives)
    with capture_logs() as said:
        await asyncio.sleep(0.5)  # the other durable's delivery has come meanwhile, and waits
    assert shop.live == 1
    assert [each for each in said if each["event"] == "host_is_full"] == []
    shop.gate.set()
    for run in runs:
        await run.result(timeout=45)
    assert shop.most_live == 1


async def test_a_schedule_goes_on_as_it_was(field: Field, nats_url: str):
    shop = Shop(Every("1s"))
    first = await release(field, shop, "1")
    schedule_id = Every("1s").schedule_id(SEND)
    subject = names.schedule_subject(field.project, SEND, schedule_id)
    stream = names.stream(field.project)
    before = await field.nats.jetstream().get_last_msg(stream, subject)
    second = await release(field, shop, "2")

    async def ticked(times: int, by: str) -> None:
        async def so_often() -> bool:
            return len([call for call in shop.calls if call[0] == by]) >= times

        await until_it(so_often)

    await first.close()
    await ticked(2, "2")
    assert (await field.nats.jetstream().get_last_msg(stream, subject)).seq == before.seq
    backend = await open_backend(nats_url, field.project, name="test")
    store = backend.schedules
    stored = await store.all()
    assert [each.schedule.schedule_id for each in stored] == [schedule_id]
    assert stored[0].schedule.counters.runs >= 2
    runs = [run for _, _, run in shop.calls]
    assert len(set(runs)) == len(runs)
    await second.close()
    (paused,) = await store.all()
    await store.update(pause(paused.schedule, backend.broker.now()), paused.revision)
    await release(field, shop, "2")
    (still,) = await store.all()
    assert still.schedule.state.value == "PAUSED"
    assert still.schedule.counters.runs >= paused.schedule.counters.runs
    await backend.close()


async def test_an_event_is_one_run_whichever_release_hears_it(field: Field):
    subject = f"orders{secrets.token_hex(5)}.paid"
    shop = Shop(OnEvent(subject))
    await release(field, shop, "1")
    await release(field, shop, "2")
    for number in range(30):
        await field.nats.publish(subject, json.dumps({"n": number}).encode())

    async def all_heard() -> bool:
        return len(shop.calls) >= 30

    await until_it(all_heard)
    await field.retired("shop.send")
    assert len(shop.calls) == 30
    assert {name for _, name, _ in shop.calls} == {"send"}


@pytest.mark.parametrize("parent", ["parent", "apart"])
async def test_an_attempt_repeated_by_the_other_release_makes_no_second_child(field: Field, parent: str):
    """There and back: the first attempt is made by release 1, the second by 2, the third by 1 again."""
    run: JobRun[Any] | None = None
    made: list[str | None] = []

    async def attempted() -> bool:
        assert run is not None
        made[:] = [each.host_id for each in (await run.record()).attempts]
        return len(made) == len(hosts)

    hosts: list[str] = []
    for module in (release_1, release_2, release_1):
        host = await field.host(module, version="1" if module is release_1 else "2")
        hosts.append(host.host_id)
        run = run or await field.client.get_job("shop", parent).trigger()
        await until_it(attempted)
        await host.close()
    assert made == hosts, "each attempt had a release of its own"
    children = [each async for each in field.client.runs.iter(module="shop") if each.job != parent]
    assert [(each.job, each.status) for each in children] == [("send", "SUCCEEDED")]
