"""One service in two releases: a job renamed, one removed, one with another payload, one with another limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pydantic import BaseModel

from jetjobs import Every, JobContext, JobPolicy, Module

LIMITS = {"1": 3, "2": 6}
SEND_LIMIT = 4

Note = Callable[..., Any]
Handler = Callable[..., Coroutine[Any, Any, str]]


class OrderOne(BaseModel):
    id: int
    email: str


class OrderTwo(BaseModel):
    id: int
    address: str


def release(number: str, noted: Note) -> Module:
    """What this release's code declares; `noted` writes what its handlers do."""
    # Two attempts: a run with one is FAILED when a closing host has to interrupt it.
    module = Module("shop", defaults=JobPolicy(max_attempts=2, timeout="20s"))

    def handler(seconds: float) -> Handler:
        async def work(ctx: JobContext[Any], payload: Any = None) -> str:
            due = ctx.trigger.scheduled_for
            with noted(ctx, release=number, due=None if due is None else due.timestamp()):
                await asyncio.sleep(seconds)
            return number

        return work

    renamed = number == "2"
    module.expose_job(
        "mail" if renamed else "send",
        handler(0.03),
        max_concurrency=SEND_LIMIT,
        aliases=("send",) if renamed else (),
    )
    module.expose_job(
        "beat" if renamed else "tick",
        handler(0.01),
        triggers=[Every("1s", coalesce="all", overlap="allow", max_instances=50)],
        aliases=("tick",) if renamed else (),
    )
    # Longer than a draining host waits: some of these are interrupted, and begin again elsewhere.
    module.expose_job("long", handler(1.5), max_concurrency=LIMITS[number])
    if number == "1":
        module.expose_job("gone", handler(0.01))

    async def order_one(ctx: JobContext[Any], order: OrderOne) -> str:
        with noted(ctx, release="1", schema="1"):
            return order.email

    async def order_two(ctx: JobContext[Any], order: OrderTwo) -> str:
        with noted(ctx, release="2", schema="2"):
            return order.address

    module.expose_job("order", order_one if number == "1" else order_two)
    return module
