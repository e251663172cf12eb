"""What the host SDK promises in one sentence each, on a real server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetjobs import (
    DuplicateRun,
    Every,
    JobContext,
    JobPolicy,
    JobRun,
    Module,
    RunMissed,
    TriggerError,
    TriggerRequest,
    UnknownJobError,
)
from jetjobs.job import Job
from tests.support.field import Field, field_of
from tests.support.links import until, until_it

pytestmark = pytest.mark.integration


class Shop:
    """A module whose handlers say what they did."""

    def __init__(self) -> None:
        self.hooks: list[str] = []
        self.module = module = Module("shop", defaults=JobPolicy(timeout="20s", max_concurrency=4, max_attempts=2))

        @module.before_attempt
        async def before(ctx: JobContext) -> None:
            self.hooks.append(f"before {ctx.job} {ctx.attempt}")

        @module.after_attempt
        def after(ctx: JobContext, error: BaseException | None) -> None:
            self.hooks.append(f"after {ctx.job} {ctx.attempt} {type(error).__name__}")

        _add_parents(module)

        @module.job(max_attempts=1)
        async def pay(_ctx: JobContext, fails: bool) -> str:  # noqa: FBT001 - it is the payload
            if fails:
                raise ValueError("no money")
            return "paid"

        @module.job(max_concurrency=1, expires_in={"manual": "700ms", "child": "1h"})
        async def hurried(_ctx: JobContext, seconds: float) -> None:
            await asyncio.sleep(seconds)

        @module.job(triggers=[Every("1s")])
        async def ticking(_ctx: JobContext) -> None: ...


def _add_parents(module: Module) -> None:
    @module.job
    async def parent(ctx: JobContext, due: float) -> list[str]:
        at_once = await ctx.trigger_child("shop.child")
        later = await ctx.trigger_child("shop.child", key="later", delay="600ms")
        then = await ctx.trigger_child("shop.child", key="then", at=due)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return [at_once.run_id, later.run_id, then.run_id]

    @module.job
    def plain_parent(ctx: JobContext, due: float) -> list[str]:
        later = ctx.trigger_child_blocking("shop.child", key="later", delay="600ms")
        then = ctx.trigger_child_blocking("shop.child", key="then", at=datetime.fromtimestamp(due, UTC))
        return [later.run_id, then.run_id]

    @module.job
    async def child(ctx: JobContext) -> list[Any]:
        return [ctx.trigger.kind, ctx.trigger.parent_run_id, datetime.now(UTC)]


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.mark.parametrize("job", ["parent", "plain_parent"])
async def test_children_may_come_later(nats_url: str, project: str, shop: Shop, job: str):
    async with field_of(nats_url, project) as field:
        await field.host(shop.module)
        began = datetime.now(UTC)
        due = began + timedelta(seconds=2)
        run = await field.client.get_job("shop", job).trigger(due.timestamp())
        children: list[str] = await run.result(timeout=45)
        assert len(set(children)) == len(children)
        records = [await field.client.run("shop", "child", child).wait(timeout=45) for child in children]
        assert {(*record.result[:2], record.parent_run_id) for record in records} == {("child", run.run_id, run.run_id)}
        *_, later, then = (record.result[2] for record in records)
        assert later - began >= timedelta(seconds=0.6)
        assert then >= due
        assert len(await field.client.runs.list(job="child")) == len(children), "a repeated attempt makes no second"


async def test_a_key_whose_run_failed(nats_url: str, project: str, shop: Shop):
    """`return` names the first run, `raise` refuses, `retry_failed` makes one more run for all who ask at once."""
    async with field_of(nats_url, project) as field:
        await field.host(shop.module)
        job = field.client.get_job("shop", "pay")
        first = await job.trigger(True, idempotency_key="k")
        assert not (await first.wait(timeout=45)).ok
        again = await job.trigger(True, idempotency_key="k")
        assert (again.run_id, again.duplicate, again.payload_differs) == (first.run_id, True, False)
        with pytest.raises(DuplicateRun) as refused:
            await job.trigger(False, idempotency_key="k", on_duplicate="raise")
        assert refused.value.run_id == first.run_id
        asked = [job.trigger(False, idempotency_key="k", on_duplicate="retry_failed") for _ in range(4)]
        retries = await asyncio.gather(*asked)
        assert len({run.run_id for run in retries}) == 1
        assert sorted(run.duplicate for run in retries) == [False, True, True, True]
        record = await retries[0].wait(timeout=45)
        assert (record.result, record.retry_of, record.trigger.kind) == ("paid", first.run_id, "retry")
        settled = await job.trigger(False, idempotency_key="k", on_duplicate="retry_failed")
        assert (settled.run_id, settled.duplicate) == (record.run_id, True)


async def test_many_with_keys_of_each_kind(nats_url: str, project: str, shop: Shop):
    """Batched ones, a key twice among them, one that fails, one without a job: each gets its own answer."""
    async with field_of(nats_url, project) as field:
        await field.host(shop.module)
        plain = [TriggerRequest("shop.pay", False) for _ in range(300)]
        odd = [
            TriggerRequest("shop.pay", False, idempotency_key="twice"),
            TriggerRequest("shop.pay", True, idempotency_key="twice"),
            TriggerRequest("shop.nothing"),
            TriggerRequest("shop.pay", False, delay="1h"),
        ]
        answers = await field.client.trigger_many([*plain[:150], *odd, *plain[150:]])
        errors = [answer for answer in answers if isinstance(answer, TriggerError)]
        assert [type(each.error) for each in errors] == [UnknownJobError]
        assert answers[152] is errors[0]
        runs = [answer for answer in answers if isinstance(answer, JobRun)]
        assert len({run.run_id for run in runs}) == 302
        assert sorted(run.duplicate for run in runs[150:152]) == [False, True]
        assert (await field.client.runs.get(runs[152].run_id)).status == "SCHEDULED"
        for run in (*runs[:2], *runs[-2:]):
            assert await run.result(timeout=45) == "paid"


async def test_what_waits_shows_a_record_made_of_its_message(nats_url: str, project: str, shop: Shop):
    async with field_of(nats_url, project) as field:
        host = await field.host(shop.module)
        job = field.client.get_job("shop", "pay")
        await field.client.jobs.pause("shop", "pay")
        await until(lambda: any(each.paused for each in host.health().jobs))
        at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
        later = await job.trigger(True, at=at, start_within="5m", expires_in="2h", idempotency_key="later")
        queued = await job.trigger(False)
        seen = {run.run_id: await field.client.runs.get(run.run_id) for run in (later, queued)}
        record = seen[later.run_id]
        assert (record.status, record.trigger.kind, record.payload, record.key) == (
            "SCHEDULED",
            "delayed",
            True,
            "later",
        )
        assert (record.scheduled_for, record.start_deadline) == (at, at + timedelta(minutes=5))
        assert record.expires_at == at + timedelta(hours=2)
        assert (seen[queued.run_id].status, seen[queued.run_id].payload) == ("QUEUED", False)
        assert not record.starts


async def test_what_can_not_start_in_time_is_missed(nats_url: str, project: str, shop: Shop):
    """By the kind's own `expires_in`, by the call's, and by `start_within`; a wider one of the call wins."""
    async with field_of(nats_url, project) as field:
        await field.host(shop.module)
        job = field.client.get_job("shop", "hurried")
        busy = await job.trigger(1.5, expires_in="1h")
        await started(field, busy.run_id)
        late = [
            await job.trigger(0),
            await job.trigger(0, expires_in="500ms"),
            await job.trigger(0, expires_in="1h", start_within="500ms"),
        ]
        fine = await job.trigger(0, expires_in="1h")
        assert (await fine.wait(timeout=45)).ok
        for run in late:
            with pytest.raises(RunMissed) as missed:
                await run.result(timeout=45)
            assert missed.value.record.starts == 0


async def started(field: Field, run_id: str) -> None:
    async def runs() -> bool:
        return (await field.client.runs.get(run_id)).status == "RUNNING"

    await until_it(runs)


async def test_defaults_and_hooks_of_a_module(nats_url: str, project: str, shop: Shop):
    async with field_of(nats_url, project) as field:
        await field.host(shop.module)
        described = await field.client.jobs.get("shop", "parent")
        assert (described.timeout, described.max_concurrency, described.max_attempts) == (timedelta(seconds=20), 4, 2)
        assert (await field.client.jobs.get("shop", "pay")).max_attempts == 1
        run = await field.client.get_job("shop", "parent").trigger(0.0)
        await run.result(timeout=45)
        assert [hook for hook in shop.hooks if " parent " in hook] == [
            "before parent 1",
            "after parent 1 ValueError",
            "before parent 2",
            "after parent 2 NoneType",
        ]


@pytest.mark.parametrize("by", ["argument", "environment"])
async def test_jobs_and_schedules_are_switched_off(
    nats_url: str, project: str, shop: Shop, by: str, monkeypatch: pytest.MonkeyPatch
):
    options: dict[str, Any] = {"disable": ("shop.p*", "other.*"), "schedules": False}
    if by == "environment":
        options = {}
        monkeypatch.setenv("JETJOBS_DISABLE", "shop.p*,other.*")
        monkeypatch.setenv("JETJOBS_SCHEDULES", "false")
    async with field_of(nats_url, project) as field:
        host = await field.host(shop.module, **options)
        assert {each.job for each in host.health().jobs} == {
            f"shop.{name}" for name in shop.module.jobs if not name.startswith("p")
        }
        waiting = await field.client.get_job("shop", "pay").trigger(False, allow_unknown=True)
        assert waiting.no_host
        assert (await (await field.client.get_job("shop", "child").trigger()).wait(timeout=45)).ok
        assert await waiting.status() == "QUEUED"
        assert [each async for each in field.client.runs.iter(job="ticking")] == []


async def test_a_host_that_drains_takes_nothing_and_callers_are_told(nats_url: str, project: str, shop: Shop):
    async with field_of(nats_url, project) as field:
        host = await field.host(shop.module)
        await field.client.hosts.drain(host.host_id)

        async def said() -> bool:
            return all(each.draining for each in await field.client.hosts.list())

        await until_it(said)
        run = await field.client.get_job("shop", "pay").trigger(False)
        assert run.no_host
        assert await run.status() == "QUEUED"


async def test_by_name_through_the_module(nats_url: str, project: str, shop: Shop):
    async with field_of(nats_url, project) as field:
        await field.host(shop.module)
        one = await shop.module.atrigger_job("pay", False, idempotency_key="n")
        other = await asyncio.to_thread(shop.module.trigger_job, "pay", False, idempotency_key="n")
        assert (one.run_id, other.duplicate) == (other.run_id, True)
        assert isinstance(shop.module.jobs["pay"], Job)
        assert await asyncio.to_thread(other.result, timeout=10) == "paid"
