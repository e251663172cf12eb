"""Events of another service, the job that hears them, and the runs that came of it."""

from __future__ import annotations

import json
import secrets
from typing import Any

from nats.js.api import StreamConfig

from jetjobs import JobContext, Module, OnEvent
from jetjobs._core.models import RunRecord
from tests.support.field import Field
from tests.support.links import until_it


class Orders:
    """Another service with subjects, and when asked for a stream, of its own."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.prefix = f"orders{secrets.token_hex(5)}"
        self.stream = self.prefix.upper()

    @property
    def any(self) -> str:
        return f"{self.prefix}.*"

    async def add_stream(self, **config: Any) -> None:
        await jetstream_of(self.field).add_stream(
            StreamConfig(name=self.stream, subjects=[f"{self.prefix}.>"], **config)
        )

    async def publish(
        self, body: Any, tail: str = "paid", *, raw: bytes | None = None, times: int = 1, **headers: str
    ) -> None:
        data = json.dumps(body).encode() if raw is None else raw
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for _ in range(times):
            await self.field.nats.publish(f"{self.prefix}.{tail}", data, headers=named or None)
        await self.field.nats.flush()

    def trigger(self, **options: Any) -> OnEvent:
        return OnEvent(options.pop("subject", self.any), **options)


def thanks(*triggers: OnEvent) -> Module:
    module = Module("billing")

    @module.job(max_concurrency=8, timeout="5s", triggers=list(triggers))
    async def thank(ctx: JobContext[Any], order: Any = None) -> Any:
        assert ctx.trigger.kind == "event"
        return order

    return module


def jetstream_of(field: Field) -> Any:
    return field.nats.jetstream()


async def runs_of(field: Field, count: int) -> list[RunRecord]:
    """All runs once so many have ended and no trigger is left."""
    found: list[RunRecord] = []

    async def ended() -> bool:
        found[:] = [record async for record in field.client.runs.iter()]
        return sum(record.status.is_terminal for record in found) >= count

    await until_it(ended)
    await field.retired("billing.thank")
    assert await ended()
    assert len(found) == count, [(record.run_id, record.payload) for record in found]
    return found
