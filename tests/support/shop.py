"""The project shop on the server of docs/security.md: its host, its jobs, and who looks at it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from jetjobs import Backoff, Every, JobClient, JobContext, JobHost, Module, OnEvent, RunStatus
from jetjobs.config import HostSettings
from tests.support.commands import Done, Terminal
from tests.support.field import QUICK
from tests.support.links import until_it
from tests.support.rights import (
    PASSWORD,
    caller_who_operates,
    caller_without_cancel,
    configuration,
    host_of_events,
    login,
)
from tests.support.servers import RealServer

WITHIN = 10.0
LARGE = "x" * 40_000
ONE_TRIGGER = "jetjobs.shop.trigger.billing.send.run.r1"
ONE_SCHEDULE = "jetjobs.shop.schedule.billing.send.run.r1.1"
# May publish on one subject, on two: less than any caller needs.
FEWEST = [
    f"{{ user: {user}, password: {PASSWORD}, permissions: {{ publish: {subjects}, subscribe: _INBOX_{user}.> }} }}"
    for user, subjects in (("one", f"[{ONE_TRIGGER}]"), ("two", f"[{ONE_TRIGGER}, {ONE_SCHEDULE}]"))
]


def guarded(folder: Path) -> RealServer:
    """The page's server, with users of even fewer rights beside its own; it writes down every line it gets."""
    conf = configuration(
        *FEWEST, host_of_events("taker"), caller_without_cancel("asker"), caller_who_operates("operator")
    )
    return RealServer(folder, extra_conf=conf, extra_args=["-DVV"])


def billing(**rare: Any) -> Module:
    """Three jobs, and with options a fourth that has them."""
    module = Module("billing")

    @module.job(timeout="20s", max_concurrency=4, max_attempts=2, backoff=Backoff("100ms"))
    async def send(ctx: JobContext, payload: Any = None) -> Any:
        if payload == "again" and ctx.attempt == 1:
            raise ValueError("not yet")
        if payload == "parent":
            child = await ctx.trigger_child("billing.send", "child")
            return await child.result(timeout=45)
        ctx.log("sending")
        return payload

    @module.job(timeout="60s", max_concurrency=4)
    async def wait(ctx: JobContext) -> None:
        await asyncio.sleep(60)

    @module.job(timeout="20s", triggers=[Every("1s"), OnEvent("orders.paid")])
    async def tick(ctx: JobContext, order: dict[str, Any] | None = None) -> None:
        return

    if rare:

        @module.job(timeout="20s", **rare)
        async def rare_one(ctx: JobContext) -> None:
            return

    return module


@asynccontextmanager
async def hosting(
    server: RealServer, user: str = "host", project: str = "shop", *, module: Module | None = None, **options: Any
) -> AsyncGenerator[JobHost]:
    """A project that its admin made, and a host of it."""
    admin = JobHost([billing()], project=project, nats=login(server, "admin" if project == "shop" else "boss"))
    await admin.prepare()
    await admin.close()
    served = module or billing()
    settings = HostSettings(**QUICK, **options)
    version = "1.0" if module else None
    async with JobHost([served], project=project, nats=login(server, user), settings=settings, version=version) as host:
        yield host


async def running(client: JobClient) -> Any:
    """A run whose handler is at work."""
    run = await client.get_job("billing.wait").trigger()

    async def is_running() -> bool:
        return await run.status() is RunStatus.RUNNING

    await until_it(is_running)
    return run


async def command(terminal: Terminal, env: dict[str, str], *words: str, code: int = 0) -> Done:
    """A command that ended in time and with that code."""
    done = await asyncio.to_thread(partial(terminal.run, *words, env=env))
    assert done.code == code, done.out + done.err
    assert done.in_time
    return done
