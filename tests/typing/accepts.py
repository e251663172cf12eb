"""What a user may write: a type checker must accept every line and see these types."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

from jetjobs import Backoff, Cron, Every, Job, JobContext, JobPolicy, Module, OnEvent, RunRecord, RunStatus, job
from jetjobs.job import AsyncJob, PlainJob
from jetjobs.sync import JobClient, JobHandle, JobRun
from jetjobs.triggered import BlockingTriggeredRun, TriggeredRun


@dataclass
class Invoice:
    id: int


@dataclass
class State:
    rate: float


billing = Module("billing", defaults=JobPolicy(timeout="2m", max_attempts=3))


@billing.job
async def send(ctx: JobContext[State], invoice: Invoice) -> dict[str, str]:
    assert_type(ctx.state, State)
    return {"id": str(invoice.id)}


@billing.job(max_concurrency=8, backoff=Backoff("1s", cap="1m"), retry_on=(OSError,), timeout=timedelta(hours=1))
def count(ctx: JobContext, paths: list[str]) -> int:
    assert_type(ctx.state, Any)
    return len(paths)


@billing.job(triggers=[Cron("0 2 * * *", timezone="Europe/Paris"), Every("5m", overlap="queue")])
def close_day(ctx: JobContext) -> None:
    ctx.progress(1, 2)


@billing.job(triggers=[OnEvent("orders.paid", filter={"total": {"gte": 100}})], expires_in={"event": "2h"})
async def thank(_ctx: JobContext, order: dict[str, Any] | None = None) -> None: ...


class Shop(Module):
    name = "shop"

    @job
    async def mail(self, ctx: JobContext[State], invoice: Invoice) -> str:
        return ctx.run_id + str(invoice.id)

    @job(timeout="2m")
    def sweep(self, _ctx: JobContext) -> int:
        return 1

    async def lifespan(self) -> AsyncIterator[State]:
        yield State(1.0)

    async def before_attempt(self, ctx: JobContext[State]) -> None:
        ctx.log("begins")

    def after_attempt(self, ctx: JobContext[State], error: BaseException | None) -> None:
        ctx.log("ended", error=error)


def generic(declared: Job[Invoice, str]) -> Job[Invoice, str]:
    return declared


async def use(ctx: JobContext[State]) -> None:
    assert_type(send, AsyncJob[Invoice, dict[str, str]])
    assert_type(await send(ctx, Invoice(1)), dict[str, str])
    sent = await send.trigger(Invoice(1), idempotency_key="inv-1", delay="5m")
    assert_type(sent, TriggeredRun[dict[str, str]])
    assert_type(await sent.result(timeout=30), dict[str, str])

    assert_type(count, PlainJob[list[str], int])
    assert_type(count(ctx, ["a"]), int)
    assert_type(await (await count.trigger(["a"])).result(), int)

    assert_type(close_day, PlainJob[None, None])
    close_day(ctx)
    await close_day.trigger()
    await close_day.trigger(on_duplicate="raise")

    await thank.trigger()
    await thank.trigger({"total": 120})
    await thank(ctx)
    await thank(ctx, {"total": 120})

    shop = Shop()
    assert_type(shop.mail, AsyncJob[Invoice, str])
    calling: Coroutine[Any, Any, str] = shop.mail(ctx, Invoice(2))
    assert_type(await calling, str)
    assert_type(shop.sweep, PlainJob[None, int])
    assert_type(await (await shop.mail.trigger(Invoice(2))).result(), str)
    await generic(shop.mail).trigger(Invoice(3))
    assert_type(billing.expose_job("again", shop.mail.handler, max_attempts=2), Job[Any, Any])


def block(client: JobClient) -> None:
    sent = send.trigger_blocking(Invoice(1), idempotency_key="inv-1")
    assert_type(sent, BlockingTriggeredRun[dict[str, str]])
    assert_type(sent.result(timeout=30), dict[str, str])
    close_day.trigger_blocking()

    handle = client.get_job(send)
    assert_type(handle, JobHandle[Invoice, dict[str, str]])
    run = handle.trigger(Invoice(1), delay="5m")
    assert_type(run, JobRun[dict[str, str]])
    assert_type(run.result(), dict[str, str])
    assert_type(run.status(timeout=1), RunStatus)
    assert_type(run.wait("30s"), RunRecord)
    assert_type(client.runs.list(job="send", limit=3), list[RunRecord])
    assert_type(client.runs.get("id"), RunRecord)
    assert_type(client.get_job("billing", "send"), JobHandle[Any, Any])
