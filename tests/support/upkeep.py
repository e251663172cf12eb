"""The pruner of one host over memory, told what time it is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

from jetjobs._core.models import JobAddress, RunRecord, RunStatus
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import RetentionRules, record_ttl
from jetjobs._engine.engine import Engine
from jetjobs._engine.held import HeldRuns
from jetjobs._engine.pruner import Pruner
from jetjobs._engine.slots import Slots
from jetjobs._engine.tasks import Tasks
from jetjobs._engine.threads import HandlerThreads
from jetjobs.config import HostSettings
from jetjobs.testing import FailingBackend, MemoryCluster, memory_backend

SEND = JobAddress("billing", "send")


HOUR = timedelta(hours=1)


class Upkeep:
    """One host's pruner, its failing ports, and what the tests see of the project."""

    def __init__(self, cluster: MemoryCluster, *, host: str = "h1") -> None:
        self.cluster = cluster
        self.ports = FailingBackend(memory_backend(cluster))
        self.eyes = memory_backend(cluster)
        self.host = host
        self.settings = HostSettings(retention=JobRetention(max_per_job=3, max_deletes=2))
        self.named: Collection[str] = ()
        self.pruner = self.made()

    def made(self, **by_job: JobRetention) -> Pruner:
        self.engine = Engine(
            backend=self.ports,
            settings=self.settings,
            clock=self.cluster.clock,
            held=HeldRuns(),
            tasks=Tasks(),
            threads=HandlerThreads(),
            slots=Slots(None),
            thread_slots=Slots(8),
            host_id=self.host,
        )
        own = {JobAddress("billing", job): retention for job, retention in by_job.items()}

        async def named() -> Collection[str]:
            return self.named

        return Pruner(self.engine, RetentionRules(self.settings.retention, own), named)

    async def finished(self, run_id: str, ago: timedelta = HOUR, job: JobAddress = SEND, **changes: Any) -> RunRecord:
        now = self.cluster.now()
        record = RunRecord(run_id, job.module, job.job, RunStatus.RUNNING, created_at=now - ago, started_at=now - ago)
        record = replace(record, finished_at=now - ago, status=changes.pop("status", RunStatus.SUCCEEDED), **changes)
        revision = await self.ports.runs.create(record)
        if record.status.is_terminal:
            await self.ports.runs.update(record, revision, ttl=record_ttl(record, self.settings.retention))
        return record

    async def records(self) -> dict[str, RunRecord]:
        return {stored.record.run_id: stored.record async for stored in self.eyes.runs.scan()}

    async def ids(self) -> list[str]:
        return sorted(await self.records())

    async def one_pass(self) -> None:
        """As the next upkeep would: the lease has ended by then."""
        await self.cluster.clock.advance(self.settings.upkeep_every)
        await self.pruner.one_pass()

    @property
    def looked(self) -> int:
        return self.ports.calls["runs.scan"]
