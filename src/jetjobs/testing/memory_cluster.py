"""A broker in memory that several connections share, and what a test may do to it.

Nothing here reads real time: one `ManualClock` drives schedules, ack waits and lifetimes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

from jetjobs._clock import Timer
from jetjobs._core import names
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._ports import DrainAnswer
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable
from jetjobs.testing.clock import ManualClock
from jetjobs.testing.memory_calls import MemoryCalls
from jetjobs.testing.memory_consumer import MemoryConsumer
from jetjobs.testing.memory_events import MemoryEvents
from jetjobs.testing.memory_stream import MemoryStream
from jetjobs.testing.memory_table import MemoryTable

T = TypeVar("T")

# After a restart the server needs a moment before overdue schedules and redeliveries go out.
_AFTER_START = 0.25


class MemoryCluster:
    """The broker: every project in it, its clock, and whether it is up.

    `offset` is broker time minus local time; set it before what it is to act on.
    """

    def __init__(self, clock: ManualClock | None = None, *, ack_wait: timedelta = timedelta(seconds=30)) -> None:
        self.clock = clock if clock is not None else ManualClock()
        self.ack_wait = ack_wait
        self.offset = timedelta(0)
        self.up = True
        self.events = MemoryEvents(self)
        self._projects: dict[str, MemoryProject] = {}
        self._links: list[MemoryLink] = []
        self._overdue: list[Callable[[], object]] = []

    def now(self) -> datetime:
        """Broker time."""
        return self.clock.now() + self.offset

    def project(self, name: str) -> MemoryProject:
        """What the broker holds of one project."""
        if name not in self._projects:
            self._projects[name] = MemoryProject(self, name)
        return self._projects[name]

    def connect(self, name: str) -> MemoryLink:
        """A new connection to a project."""
        link = MemoryLink(self, self.project(name))
        self._links.append(link)
        return link

    def stop(self) -> None:
        """Take the broker away. What is stored, in flight and scheduled stays."""
        self.up = False
        for link in self._links:
            link.lost()

    def start(self) -> None:
        """Bring it back: connections reconnect, what came due meanwhile happens."""
        self.up = True
        overdue, self._overdue = self._overdue, []
        for callback in overdue:
            self.call_later(_AFTER_START, callback)
        for link in self._links:
            link.found()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Have the broker do something later; if it is away then, when it is back."""
        return _BrokerTimer(self, seconds, callback)

    def postpone(self, callback: Callable[[], object]) -> None:
        """Keep what came due while the broker is away."""
        self._overdue.append(callback)


class _BrokerTimer:
    __slots__ = ("_callback", "_cluster", "_timer")

    def __init__(self, cluster: MemoryCluster, seconds: float, callback: Callable[[], object]) -> None:
        self._cluster = cluster
        self._callback: Callable[[], object] | None = callback
        self._timer = cluster.clock.call_later(seconds, self._due)

    def cancel(self) -> None:
        self._callback = None
        self._timer.cancel()

    def _due(self) -> None:
        if self._callback is None:
            return
        if self._cluster.up:
            self._callback()
        else:
            self._cluster.postpone(self._due)


class MemoryProject:
    """One project's stream, consumers, buckets and listeners."""

    def __init__(self, cluster: MemoryCluster, name: str) -> None:
        self.name = name
        self.stream = MemoryStream(
            subjects=(names.all_triggers(name), names.all_schedules(name)),
            now=cluster.now,
            call_later=cluster.call_later,
        )
        self.runs = MemoryTable[RunKey, bytes](cluster.now, cluster.call_later)
        self.jobs = MemoryTable[JobAddress, JobDescriptor](cluster.now, cluster.call_later)
        self.controls = MemoryTable[JobAddress, bytes](cluster.now, cluster.call_later)
        self.hosts = MemoryTable[str, HostPresence](cluster.now, cluster.call_later)
        self.chunks = MemoryTable[str, bytes](cluster.now, cluster.call_later)
        self.schedules = MemoryTable[str, bytes](cluster.now, cluster.call_later)
        self.schedule_names = MemoryTable[str, str](cluster.now, cluster.call_later)
        self.leases = MemoryTable[str, str](cluster.now, cluster.call_later)
        self.listeners = Listeners()
        self.calls = MemoryCalls()
        self._cluster = cluster
        self._consumers: dict[JobAddress, MemoryConsumer] = {}

    def consumer(self, job: JobAddress) -> MemoryConsumer:
        """A job's consumer.

        Raises:
            BrokerError: nobody called `ensure_consumer` for it.
        """
        found = self._consumers.get(job)
        if found is None:
            raise BrokerError(f"{job} has no consumer in project {self.name!r}; call ensure_consumer first")
        return found

    def ensure_consumer(self, job: JobAddress, max_ack_pending: int, *, paused: bool, update: bool) -> None:
        """Create a job's consumer, or bring its limit up to date, and whether it is paused."""
        found = self._consumers.get(job)
        if found is None:
            self._consumers[job] = found = MemoryConsumer(
                self.stream,
                filters=names.consumer_filters(self.name, job),
                max_ack_pending=max_ack_pending,
                ack_wait=self._cluster.ack_wait.total_seconds(),
                call_later=self._cluster.call_later,
            )
            found.paused = paused
        elif update:
            found.max_ack_pending, found.paused = max_ack_pending, paused
            found.serve()

    def will_deliver(self, job: JobAddress, sequence: int) -> bool:
        """Whether a message has a delivery before it; one without a consumer waits for that."""
        found = self._consumers.get(job)
        return found is None or found.will_deliver(sequence)

    def serve(self) -> None:
        """Hand out what waits for somebody to pull."""
        for consumer in self._consumers.values():
            consumer.serve()


@dataclass
class Listeners:
    """Who listens on the control subjects, each with the connection it listens through."""

    asks: list[tuple[MemoryLink, str, Callable[[RunKey, str | None], bool]]] = field(default_factory=list)
    cancels: list[tuple[MemoryLink, Callable[[RunKey], None]]] = field(default_factory=list)
    ends: list[tuple[MemoryLink, RunKey, Callable[[], None]]] = field(default_factory=list)
    controls: list[tuple[MemoryLink, Callable[[JobAddress], None]]] = field(default_factory=list)
    drains: list[tuple[MemoryLink, str, Callable[[str | None], DrainAnswer]]] = field(default_factory=list)


class MemoryLink:
    """One connection. `cut` it and nothing goes in or out until `heal`."""

    def __init__(self, cluster: MemoryCluster, project: MemoryProject) -> None:
        self.cluster = cluster
        self.project = project
        self.connected_since: float | None = cluster.clock.monotonic() if cluster.up else None
        self.epoch = 0
        self._kept: list[Callable[[], object]] = []
        self._cut = False
        self._closed = False

    @property
    def connected(self) -> bool:
        """Whether something sent now arrives."""
        return self.connected_since is not None

    def cut(self) -> None:
        """Pull the plug of this connection alone; the broker notices at once."""
        self._cut = True
        self.lost()

    def heal(self) -> None:
        """Plug it in again."""
        self._cut = False
        self.found()

    def close(self) -> None:
        """Leave for good."""
        self._closed = True
        self.lost()

    def lost(self) -> None:
        """Take note that the broker is out of reach; what it had sent and nobody has taken is lost."""
        if self.connected:
            self.connected_since = None
            self.epoch += 1

    def found(self) -> None:
        """Take note that the broker can be reached again, if so."""
        if self.cluster.up and not (self._cut or self._closed or self.connected):
            self.connected_since = self.cluster.clock.monotonic()
            kept, self._kept = self._kept, []
            for effect in kept:
                effect()
            self.project.serve()
            self.cluster.events.serve()

    def send(self, effect: Callable[[], object], *, keep: bool = False) -> None:
        """Have the broker do something without an answer; with `keep`, after the reconnect when it is away now."""
        if self.connected:
            effect()
        elif keep:
            self._kept.append(effect)

    async def call(self, effect: Callable[[], T]) -> T:
        """Have the broker do something, with a turn of the loop on the way there and on the way back."""
        await asyncio.sleep(0)
        if not self.connected:
            raise BrokerUnavailable("not connected")
        epoch = self.epoch
        result = effect()
        await asyncio.sleep(0)
        if self.epoch != epoch:
            raise AnswerUnknown("the connection went down before the answer came")
        return result
