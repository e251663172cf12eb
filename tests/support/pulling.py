"""Hosts that pull, and what they were given."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol

from jetjobs._core import names
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._nats.broker import NatsBroker
from jetjobs._nats.link import Link
from jetjobs._nats.provision import ProvisionSettings
from jetjobs._ports import Consumption, Delivery
from tests.support.links import open_link, until

JOB = JobAddress("mod", "job")


class Host:
    """A broker over a connection of its own, and what came."""

    def __init__(self, link: Link, broker: NatsBroker) -> None:
        self.link = link
        self.broker = broker
        self.deliveries: list[Delivery] = []
        self.consumption: Consumption | None = None

    @property
    def got(self) -> list[str]:
        return [delivery.message.subject.rpartition(".")[2] for delivery in self.deliveries]

    @property
    def consumer(self) -> str:
        return f"{names.stream(self.broker.project)}.{names.consumer(JOB)}"

    async def consume(self, slots: int, on_delivery: Callable[[Delivery], None] | None = None) -> Consumption:
        self.consumption = await self.broker.consume(JOB, on_delivery or self.deliveries.append)
        self.consumption.allow(slots)
        return self.consumption

    async def trigger(self, count: int) -> list[str]:
        ids = [secrets.token_hex(8) for _ in range(count)]
        subjects = [names.trigger_subject(self.broker.project, RunKey(*JOB, id_)) for id_ in ids]
        await asyncio.gather(*(self.broker.store(Outgoing(subject)) for subject in subjects))
        return ids

    async def come(self, count: int, within: float = 10.0) -> list[Delivery]:
        """Wait until so many have come; then see that no more do."""
        await until(lambda: len(self.deliveries) >= count, within)
        await self.settle()
        assert len(self.deliveries) == count, f"{len(self.deliveries)} deliveries"
        return self.deliveries

    async def settle(self) -> None:
        """Everything under way has arrived: asked three times over, the consumer says the same."""
        said: list[object] = []
        while len(said) < 3 or len({str(one) for one in said[-3:]}) > 1:
            answer = await self.link.api(f"CONSUMER.INFO.{self.consumer}")
            said.append((answer["delivered"], answer["num_ack_pending"], answer["num_pending"]))
            await asyncio.sleep(0.02)

    async def info(self) -> dict[str, Any]:
        return await self.link.api(f"CONSUMER.INFO.{self.consumer}")


class OpenHost(Protocol):
    """Opens a host over a connection of its own; all are closed at the end."""

    async def __call__(self, url: str, *, limit: int = 100, ack_wait: float = 30, replicas: int = 1) -> Host: ...


@asynccontextmanager
async def opened_hosts(project: str) -> AsyncGenerator[OpenHost]:
    opened: list[NatsBroker] = []

    async def open_host(url: str, *, limit: int = 100, ack_wait: float = 30, replicas: int = 1) -> Host:
        link = await open_link(url)
        broker = NatsBroker(link, project, ProvisionSettings(ack_wait=timedelta(seconds=ack_wait), replicas=replicas))
        opened.append(broker)
        await broker.ensure_project()
        await broker.ensure_consumer(JOB, limit)
        return Host(link, broker)

    yield open_host
    for broker in opened:
        await broker.close()
