"""The two worlds the conformance suite runs in: a broker in memory, and a real nats-server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Protocol, TypeVar

import pytest

from jetjobs._core import names, payload_subjects, signal_subjects
from jetjobs._core.bodies import ClaimCheck
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._ports import Backend, Delivery
from jetjobs.testing import ManualClock, MemoryCluster, memory_backend
from tests.support.waiting import PATIENCE

T = TypeVar("T")

ACK_WAIT = timedelta(seconds=1)

NATS = pytest.param("nats", marks=pytest.mark.integration)
only_nats = pytest.mark.parametrize("world", [NATS], indirect=True)
"""For what no memory can show: writes past the ports, markers of other tools."""


class World(Protocol):
    """One project of one broker, and ways to damage what it stores."""

    project: str
    patience: float
    """Seconds that what must happen may take at least: none where time stands still, many on a busy machine."""

    async def connect(self) -> Backend:
        """Ports over a connection of their own."""
        ...

    async def elapse(self, seconds: float) -> None:
        """Let time pass, where its passing is what is tested; to wait for something there is `eventually`."""
        ...

    async def rest(self) -> None:
        """Let everything already under way arrive, where that nothing arrives is what is tested."""
        ...

    async def write_record(self, run: RunKey, data: bytes) -> None: ...

    async def write_chunk(self, claim: ClaimCheck, number: int, data: bytes | None) -> None: ...

    async def call(self, job: JobAddress, data: bytes, headers: Mapping[str, str]) -> bytes | None:
        """Call a job's gateway as a program without any other right would; `None` when nobody hears."""
        ...

    async def close(self) -> None: ...


async def eventually(world: World, condition: Callable[[], Awaitable[T | None]], within: float = 8.0) -> T:
    """The first true value of a condition that is looked at again and again.

    In memory `within` is kept to the step. On a real server it is how long the world's patience lets it be.
    """
    within = max(within, world.patience)
    for _ in range(int(within / 0.05)):
        value = await condition()
        if value:
            return value
        await world.elapse(0.05)
    pytest.fail(f"did not happen within {within} s")


class Takings:
    """What a consumption brought, in order."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.deliveries: list[Delivery] = []

    def __call__(self, delivery: Delivery) -> None:
        self.deliveries.append(delivery)

    def __len__(self) -> int:
        return len(self.deliveries)

    @property
    def bodies(self) -> list[bytes]:
        return [delivery.message.data for delivery in self.deliveries]

    @property
    def seen(self) -> list[tuple[bytes, int]]:
        """Body and delivery number of each."""
        return [(delivery.message.data, delivery.message.num_delivered) for delivery in self.deliveries]

    async def reach(self, count: int) -> list[Delivery]:
        """Wait until so many have come, and see that no more do."""

        async def enough() -> bool:
            return len(self.deliveries) >= count

        await eventually(self.world, enough)
        await self.world.rest()
        assert len(self.deliveries) == count
        return self.deliveries


class MemoryWorld:
    """Time moves only in `elapse`."""

    patience = 0.0

    def __init__(self, project: str) -> None:
        self.project = project
        self.clock = ManualClock()
        self.cluster = MemoryCluster(self.clock, ack_wait=ACK_WAIT)
        self._backends: list[Backend] = []

    async def connect(self) -> Backend:
        backend = memory_backend(self.cluster, self.project)
        self._backends.append(backend)
        return backend

    async def elapse(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def rest(self) -> None:
        await self.clock.settle()

    async def write_record(self, run: RunKey, data: bytes) -> None:
        self.cluster.project(self.project).runs.put(run, data)

    async def write_chunk(self, claim: ClaimCheck, number: int, data: bytes | None) -> None:
        chunks = self.cluster.project(self.project).chunks
        chunks.remove(f"{claim.subject}.{number}")
        if data is not None:
            chunks.put(f"{claim.subject}.{number}", data)

    async def call(self, job: JobAddress, data: bytes, headers: Mapping[str, str]) -> bytes | None:
        answer = self.cluster.project(self.project).calls.ask(job, data, headers)
        return None if answer is None else await asyncio.wait_for(answer, 45)

    async def close(self) -> None:
        for backend in self._backends:
            await backend.close()


class NatsWorld:
    """A project of its own on the server all tests share."""

    patience = PATIENCE

    def __init__(self, project: str, url: str) -> None:
        self.project = project
        self.url = url
        self._backends: list[Backend] = []

    async def connect(self) -> Backend:
        from jetjobs._nats import open_backend
        from jetjobs._nats.provision import ProvisionSettings

        settings = ProvisionSettings(ack_wait=ACK_WAIT)
        backend = await open_backend(self.url, self.project, settings, name="conformance")
        self._backends.append(backend)
        return backend

    async def elapse(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        await asyncio.sleep(seconds)
        assert time.monotonic() >= until - 0.02

    async def rest(self) -> None:
        # Answers come after what the broker sent before them; its deliveries come from a loop of their own.
        for backend in self._backends:
            for _ in range(3):
                await backend.broker.measure_clock()
        await asyncio.sleep(0.02)

    async def write_record(self, run: RunKey, data: bytes) -> None:
        await self.publish(names.record_subject(self.project, run), data)

    async def write_chunk(self, claim: ClaimCheck, number: int, data: bytes | None) -> None:
        import nats

        subject = f"{claim.subject}.{number}"
        client = await nats.connect(self.url)
        await client.jetstream().purge_stream(payload_subjects.payload_stream(self.project), subject=subject)
        await client.close()
        if data is not None:
            await self.publish(subject, data)

    async def call(self, job: JobAddress, data: bytes, headers: Mapping[str, str]) -> bytes | None:
        import nats
        from nats.errors import NoRespondersError

        client = await nats.connect(self.url)
        try:
            subject = signal_subjects.call_subject(self.project, job)
            return (await client.request(subject, data, timeout=10, headers=dict(headers) or None)).data
        except NoRespondersError:
            return None
        finally:
            await client.close()

    async def publish(self, subject: str, data: bytes) -> None:
        """Write on any subject, as any other client could."""
        import nats

        client = await nats.connect(self.url)
        await client.jetstream().publish(subject, data)
        await client.close()

    async def close(self) -> None:
        for backend in self._backends:
            await backend.close()
