"""Hosts of one project in memory under a clock that moves when told, and a job that its schedules fire."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from jetjobs import Cron, Every, HostSettings, JobContext, JobHost, JobPolicy, JobRetention, Module
from jetjobs._core import names
from jetjobs._core.models import JobAddress
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.triggers import schedule_id
from jetjobs.testing import FailingBackend, ManualClock, MemoryCluster, memory_backend
from jetjobs.testing.memory_backend import MemoryBackend

JOB = JobAddress("m", "j")
SETTINGS = HostSettings(ack_wait=3, heartbeat_every=1, lost_after=10, upkeep_every=30)


class Scene:
    """Hosts of one project in memory, and when their job was called for which occurrence."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.cluster = MemoryCluster(self.clock, ack_wait=timedelta(seconds=3))
        self.ports = memory_backend(self.cluster)
        self.hosts: list[JobHost] = []
        self.links: list[MemoryBackend] = []
        self.calls: list[tuple[float, float]] = []
        self.takes = 0.0
        self.live = 0
        self.most_live = 0

    async def call(self, ctx: JobContext[Any]) -> None:
        due = ctx.trigger.scheduled_for
        assert due is not None
        self.calls.append((due.timestamp(), self.clock.now().timestamp()))
        self.live += 1
        self.most_live = max(self.most_live, self.live)
        try:
            await self.clock.sleep(self.takes)
        finally:
            self.live -= 1

    async def host(
        self, *triggers: Cron | Every, at_once: int = 2, attempts: int = 1, retention: JobRetention | None = None
    ) -> FailingBackend:
        module = Module("m", defaults=JobPolicy(retention=retention))
        module.expose_job("j", self.call, triggers=triggers, max_concurrency=at_once, max_attempts=attempts)
        connection = memory_backend(self.cluster)
        self.links.append(connection)
        ports = FailingBackend(connection)
        host = JobHost([module], backend=ports, settings=SETTINGS, clock=self.clock)
        await self.driven(host.start())
        self.hosts.append(host)
        return ports

    async def driven(self, coroutine: Any) -> Any:
        task = asyncio.ensure_future(coroutine)
        for _ in range(2000):
            if task.done():
                break
            await self.clock.advance(0.02)
        return await task

    async def pass_by(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.25)):
            await self.clock.advance(0.25)

    async def stop(self) -> None:
        await self.driven(self.hosts.pop().close())

    async def record(self, name: str = "every") -> ScheduleRecord:
        stored = await self.driven(self.ports.schedules.get(schedule_id(JOB, name)))
        assert stored is not None
        return stored.schedule

    async def edit(self, how: Any, name: str = "every") -> None:
        stored = await self.driven(self.ports.schedules.get(schedule_id(JOB, name)))
        assert stored is not None
        await self.driven(self.ports.schedules.update(how(stored.schedule, self.cluster.now()), stored.revision))

    async def has_message(self, name: str = "every") -> bool:
        subject = names.schedule_subject("test", JOB, schedule_id(JOB, name))
        return await self.driven(self.ports.broker.last(subject)) is not None

    async def messages(self) -> int:
        return len(self.cluster.project("test").stream)

    @property
    def due(self) -> list[float]:
        return [due for due, _ in self.calls]

    async def close(self) -> None:
        while self.hosts:
            await self.stop()
