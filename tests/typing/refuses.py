"""What a type checker must refuse: an ignore comment that isn't needed any more is an error itself."""

# pyright: reportUnusedCoroutine=false

from __future__ import annotations

from dataclasses import dataclass

from jetjobs import Cron, Every, JobContext, JobPolicy, Module, SyncJobClient, job

billing = Module("billing")


@dataclass
class Invoice:
    id: int


@billing.job
async def send(_ctx: JobContext, invoice: Invoice) -> str:
    return str(invoice.id)


@billing.job
def sweep(_ctx: JobContext) -> None: ...


@billing.job(max_concurency=3)  # pyright: ignore[reportCallIssue, reportUntypedFunctionDecorator]
def misspelt(_ctx: JobContext) -> None: ...


@billing.job  # pyright: ignore[reportCallIssue, reportArgumentType, reportUntypedFunctionDecorator]
def three(_ctx: JobContext, _first: int, _second: int) -> None: ...


@billing.job  # pyright: ignore[reportCallIssue, reportArgumentType, reportUntypedFunctionDecorator]
async def none() -> None: ...


class Shop(Module):
    name = "shop"

    @job
    async def mail(self, _ctx: JobContext, invoice: Invoice) -> str:
        return str(invoice.id)


async def use(ctx: JobContext) -> None:
    await send.trigger({"id": 7})  # pyright: ignore[reportArgumentType]
    await send.trigger()  # pyright: ignore[reportCallIssue]
    await send.trigger(Invoice(1), on_duplicate="ignore")  # pyright: ignore[reportArgumentType]
    await send.trigger(Invoice(1), key="x")  # pyright: ignore[reportCallIssue]
    await sweep.trigger(Invoice(1))  # pyright: ignore[reportArgumentType, reportCallIssue]
    await send(ctx, 3)  # pyright: ignore[reportArgumentType]
    await Shop().mail.trigger(7)  # pyright: ignore[reportArgumentType]
    run = await send.trigger(Invoice(1))
    _wrong: int = await run.result()  # pyright: ignore[reportAssignmentType]


def block(client: SyncJobClient) -> None:
    send.trigger_blocking({"id": 7})  # pyright: ignore[reportArgumentType]
    send.trigger_blocking()  # pyright: ignore[reportCallIssue]
    run = client.get_job(send).trigger(Invoice(1))
    _wrong: int = run.result()  # pyright: ignore[reportAssignmentType]
    client.get_job(send).trigger(7)  # pyright: ignore[reportArgumentType]
    run.status(1)  # pyright: ignore[reportCallIssue]
    client.runs.list(limit="all")  # pyright: ignore[reportArgumentType]


JobPolicy(max_atempts=2)  # pyright: ignore[reportCallIssue]
JobPolicy(isolation="fibre")  # pyright: ignore[reportArgumentType]
Every(None)  # pyright: ignore[reportArgumentType]
Cron("@daily", coalesce="newest")  # pyright: ignore[reportArgumentType]
