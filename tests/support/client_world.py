"""A client over ports in memory that fail on purpose, and the hand that plays its hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from jetjobs._core import codec, headers, names
from jetjobs._core.bodies import Body
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.messages import Trigger
from jetjobs._core.models import JobAddress, Owner, RunError, RunKey, RunRecord, RunStatus
from jetjobs._core.run_changes import RunChange
from jetjobs.client import JobClient
from jetjobs.testing import FailingBackend, MemoryCluster, memory_backend

SEND = JobAddress("billing", "send")
BOOM = RunError("ValueError", "boom")


class World:
    """One project: a client whose ports can fail, and the hand that plays its hosts."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.mine = FailingBackend(memory_backend(self.cluster))
        self.host = memory_backend(self.cluster)
        self.client = JobClient(backend=self.mine, timeout=2)

    async def describe(self, address: JobAddress = SEND, *, live: bool = True) -> None:
        await self.host.catalog.describe(JobDescriptor(*address, digest="d"))
        if live:
            await self.host.catalog.say(present(address, self.cluster.now()), timedelta(days=1))

    def another(self) -> JobClient:
        return JobClient(backend=memory_backend(self.cluster), timeout=2)

    async def trigger_of(self, run: RunKey) -> Trigger:
        message = await self.host.broker.last(names.trigger_subject("test", run))
        assert message is not None
        found = headers.read_trigger("test", message)
        assert isinstance(found, Trigger)
        return found

    async def queued(self) -> int:
        return sum(1 for subject in self.subjects() if ".trigger." in subject)

    def subjects(self) -> list[str]:
        stream = self.cluster.project("test").stream
        return [message.subject for message in stream.matching(">")]

    async def start(self, run: RunKey, **changes: Any) -> RunRecord:
        """Claim a run, as a host does."""
        record = replace(claimed(run, self.cluster.now()), **changes)
        await self.host.runs.create(record)
        return record

    async def write(self, run: RunKey, event: Event, **changes: Any) -> RunRecord:
        """Move a run on, and tell."""
        stored = await self.host.runs.get(run)
        assert stored is not None
        if event not in {Event.BEAT, Event.RETRY, Event.ASK_CANCEL, Event.CLAIM}:
            changes.setdefault("finished_at", self.cluster.now())
        record = advance(stored.record, event, **changes)
        await self.host.runs.update(record, stored.revision)
        if record.status.is_terminal:
            self.host.broker.announce_end(record)
        return record

    async def finish(self, run: RunKey, event: Event = Event.SUCCEED, **changes: Any) -> RunRecord:
        await self.start(run)
        return await self.write(run, event, **changes)


def present(address: JobAddress, now: datetime) -> HostPresence:
    """What host h1 says of itself, which takes runs of this job."""
    return HostPresence("h1", "box", 1, now, now, jobs=(str(address),))


def claimed(run: RunKey, now: datetime) -> RunRecord:
    """What host h1 stores of a run that it starts."""
    return RunRecord(
        run.run_id,
        run.module,
        run.job,
        RunStatus.RUNNING,
        starts=1,
        claim="host's",
        owner=Owner(1, now, 1, "h1"),
        created_at=now,
        started_at=now,
    )


def packed(value: Any) -> Body:
    return Body(codec.encode(value))


async def failed(world: World, name: str, payload: Any = 1, **changes: Any) -> RunKey:
    """A run of billing.send that ended with BOOM."""
    run = RunKey("billing", "send", name)
    await world.start(run, payload_body=packed(payload), **changes)
    await world.write(run, Event.FAIL, error=BOOM)
    return run


def outcomes(changes: Sequence[RunChange]) -> dict[str, str]:
    """What became of each run."""
    return {each.run_id: each.outcome.value for each in changes}
