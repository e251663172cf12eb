"""What the engine and the client need from the outside world, as protocols.

Two implementers each, `jetjobs._nats` and `jetjobs.testing`, held together by one conformance suite.
Every coroutine here ends within its deadline and raises only errors of `jetjobs.errors`:

* `BrokerUnavailable`: not sent, nothing happened, safe to repeat;
* `AnswerUnknown`: sent, no answer in time, it may have happened: read before repeating;
* `WrongRevision`: a compare-and-set lost;
* `StorageFull`, `PermissionMissing`: refused, nothing happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from jetjobs._core.bodies import ClaimCheck
from jetjobs._core.controls import JobControl
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.events import Event
from jetjobs._core.glance import Wanted
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._core.schedule_record import ScheduleRecord


class Stored(NamedTuple):
    """A record as read: its revision for the next compare-and-set, and when the broker stored it."""

    record: RunRecord
    revision: int
    stored_at: datetime


class Slice(NamedTuple):
    """Some of the records of a scan from the last written to the first.

    No run still to come was made after `until`, but for those made since the scan began.
    """

    found: list[Stored]
    until: datetime


class StoredSchedule(NamedTuple):
    """A schedule as read, and its revision for the next compare-and-set."""

    schedule: ScheduleRecord
    revision: int


class Holding(NamedTuple):
    """How much a store holds: entries, and the revision of its last write. A removal is no write."""

    entries: int
    last_revision: int


class Delivery(Protocol):
    """One delivery of one trigger message. Everything sent for it reaches only the stream's consumer."""

    @property
    def message(self) -> Message:
        """The message delivered, with its delivery number."""
        ...

    def ack(self) -> None:
        """Retire the message and free its slot. Fire and forget; a lost one is redelivered."""
        ...

    def nak(self, delay: timedelta | None = None) -> None:
        """Give the delivery back. Only before a claim: the broker obeys it for old deliveries too."""
        ...

    def term(self, reason: str) -> None:
        """Remove the message from the stream for good, with a reason in the broker's advisory."""
        ...

    async def renew(self) -> None:
        """Extend the ack wait, and return only when the broker confirmed it.

        Raises:
            AnswerUnknown: no confirmation in time.
            BrokerUnavailable: not connected.
        """
        ...


class Consumption(Protocol):
    """One job's share of the host's continuous pull."""

    @property
    def problem(self) -> str | None:
        """Why the broker, connected as it is, gives nothing; `None` while nothing is known to be wrong."""
        ...

    def allow(self, slots: int) -> None:
        """Take up to `slots` deliveries more. Never more arrive than were allowed."""
        ...

    async def stop(self) -> None:
        """Deliveries stop arriving once this returns. Idempotent."""
        ...


OnDelivery = Callable[[Delivery], None]


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a job's call gateway. `answer` sends an answer, or nothing where nobody waits for one."""

    job: JobAddress
    headers: Mapping[str, str]
    data: bytes
    answer: Callable[[bytes], None]


OnCall = Callable[[Call], None]


class CallService(Protocol):
    """One host's answering of calls."""

    async def stop(self) -> None:
        """No call arrives once this returns; what the broker had sent has arrived. Idempotent."""
        ...


class Broker(Protocol):
    """The jobs stream, its consumers, and the control subjects beside it."""

    @property
    def project(self) -> str:
        """Name of the project."""
        ...

    def now(self) -> datetime:
        """Broker time: the local clock corrected by the offset last measured."""
        ...

    @property
    def clock_offset(self) -> timedelta:
        """Broker time minus local time, as last measured."""
        ...

    @property
    def connected_since(self) -> float | None:
        """Monotonic seconds of the last (re)connect; `None` while disconnected."""
        ...

    async def out_for_everybody(self) -> bool:
        """While disconnected: whether every known server actively refuses connections.

        Then nobody can be handed this host's deliveries at this moment; a silent or unreachable server
        proves nothing, because others may reach it.
        """
        ...

    async def measure_clock(self) -> timedelta:
        """Measure the offset again (STREAM.INFO carries the broker's time)."""
        ...

    async def ensure_project(self) -> None:
        """Create the stream and buckets, or adapt them to a higher configuration version. Idempotent.

        Raises:
            StreamMismatch: something exists that we may not change; names the difference.
        """
        ...

    async def ensure_consumer(
        self, job: JobAddress, max_concurrency: int, *, paused: bool = False, update: bool = True
    ) -> None:
        """Create the job's durable consumer; with `update`, bring what differs in place up to date.

        A paused one hands out nothing, redeliveries included, whoever pulls; acks and renewals it takes.
        """
        ...

    async def consume(self, job: JobAddress, on_delivery: OnDelivery) -> Consumption:
        """Begin to take deliveries of a job, none before `allow`.

        Survives reconnects, and recreates the consumer when it was deleted.

        Raises:
            PermissionMissing: this user may not take or retire them; names the subject.
        """
        ...

    def store(
        self,
        message: Outgoing,
        *,
        expected: int | None = None,
        expected_on: str | None = None,
        timeout: timedelta | None = None,
    ) -> Awaitable[int]:
        """Store a message in the jobs stream; gives its sequence.

        May be under way before it is awaited; await it once.

        `expected` is the last sequence that must be on the message's subject (0: none),
        or on the subject `expected_on` when given.

        Raises:
            WrongRevision: another sequence is there.
        """
        ...

    async def store_together(self, messages: Sequence[Outgoing], *, timeout: timedelta) -> None:
        """Store up to 1,000 messages, each the first on a subject of its own: all of them or none.

        Raises:
            WrongRevision: one of the subjects has a message already.
            BrokerError: refused or not sent: none is stored.
            AnswerUnknown: all of them are stored, or none.
        """
        ...

    async def last(self, subject: str) -> Message | None:
        """The newest message on a subject (wildcards allowed), read from the stream's leader."""
        ...

    async def message(self, sequence: int) -> Message | None:
        """The message with that sequence, read from the stream's leader; `None` when it has gone."""
        ...

    async def in_stream(self, runs: Sequence[RunKey]) -> set[RunKey]:
        """Those of the runs with a message on a trigger or schedule subject of their own, as the leader has it.

        A message on its way from schedule to trigger counts.
        """
        ...

    def waiting(self, job: JobAddress | None = None, *, module: str | None = None) -> AsyncIterator[Message]:
        """The messages of runs on subjects of their own, in no order; may be late. What has started is among them.

        Schedules come before triggers, so that a run that moves from one to the other meanwhile isn't missed.
        """
        ...

    async def purge(self, subject: str, *, up_to: int) -> int:
        """Remove a subject's messages with sequences ≤ `up_to`; returns how many went."""
        ...

    async def ask_owner(self, host_id: str, run: RunKey, claim: str | None) -> bool:
        """Whether that host says it still holds this run (1 s). No answer, or nobody there, is False."""
        ...

    async def answer_asks(self, host_id: str, holds: Callable[[RunKey, str | None], bool]) -> None:
        """Answer the asks of others for as long as the connection is open."""
        ...

    async def answer_calls(self, jobs: Iterable[JobAddress], on_call: OnCall) -> CallService:
        """Hear the calls to these jobs; of the hosts that do, one hears each. Survives reconnects.

        A call whose answer would go to anything but an inbox isn't heard. `on_call` must neither block nor await.
        A user without the right hears none, and that is logged.
        """
        ...

    async def ring_cancel(self, run: RunKey) -> None:
        """Tell the hosts of a run, at once and without guarantee, that its record asks for a cancel."""
        ...

    async def hear_cancels(self, on_cancel: Callable[[RunKey], None]) -> None:
        """Hear the doorbell of all the project's runs for as long as the connection is open."""
        ...

    async def ring_control(self, job: JobAddress) -> None:
        """Tell all hosts, at once and without guarantee, that something was ordered for a job."""
        ...

    async def hear_controls(self, on_control: Callable[[JobAddress], None]) -> None:
        """Hear that doorbell for all the project's jobs for as long as the connection is open."""
        ...

    async def ask_drain(self, host_id: str, actor: str | None) -> DrainAnswer | None:
        """Ask a host to stop taking runs; its answer, or `None` when nobody of that id is there.

        Raises:
            AnswerUnknown: somebody is there and doesn't answer (2 s).
        """
        ...

    async def answer_drains(self, host_id: str, on_drain: Callable[[str | None], DrainAnswer]) -> None:
        """Let oneself be asked for as long as the connection is open; `on_drain` is given who asks."""
        ...

    def announce_end(self, record: RunRecord) -> None:
        """Tell whoever listens that a run ended. Fire and forget."""
        ...

    def ended(self, run: RunKey) -> AbstractAsyncContextManager[Callable[[timedelta], Awaitable[bool]]]:
        """Listen for one run's end; the value inside waits up to a span and says whether it was announced."""
        ...


class RunStore(Protocol):
    """One record per run. Reads here go to the leader, so they may decide a write."""

    async def create(self, record: RunRecord, *, ttl: timedelta | None = None) -> int:
        """Store a record that must not exist yet; returns its revision. `ttl` removes it by itself later.

        Raises:
            WrongRevision: there is one already.
        """
        ...

    def update(self, record: RunRecord, revision: int, *, ttl: timedelta | None = None) -> Awaitable[int]:
        """Replace the record last seen at `revision`; gives the new revision. `ttl` removes it by itself later.

        May be under way before it is awaited; await it once.

        Raises:
            WrongRevision: somebody else wrote.
        """
        ...

    async def get(self, run: RunKey) -> Stored | None:
        """The record, or `None`. Bytes that can't be read raise `PayloadInvalidError`."""
        ...

    async def find(self, run_id: str) -> list[Stored]:
        """All records with this id, of whatever job."""
        ...

    def scan(self, job: JobAddress | None = None, *, module: str | None = None) -> AsyncIterator[Stored]:
        """All records, or a module's or a job's, in no order; a page's view, may be late, may give one twice.

        Unreadable ones are left out.
        """
        ...

    def newest(
        self, job: JobAddress | None = None, *, module: str | None = None, wanted: Wanted | None = None
    ) -> AsyncIterator[Slice]:
        """The same from the last written to the first, in slices, so that whoever has enough can stop.

        One that is written again meanwhile comes at least once, perhaps as it was before.
        """
        ...

    def written_after(
        self, revision: int, job: JobAddress | None = None, *, module: str | None = None
    ) -> AsyncIterator[Stored]:
        """Those written after a revision, in the order they were written, each as it is now; may be late."""
        ...

    async def delete(self, run: RunKey, revision: int) -> bool:
        """Remove a record if it is still at `revision`, leaving no marker; says whether it went."""
        ...

    async def holding(self) -> Holding:
        """How much there is, in one cheap call."""
        ...


class StoredControl(NamedTuple):
    """What people ordered for a job, as read: its revision for the next compare-and-set."""

    control: JobControl
    revision: int


@dataclass(frozen=True, slots=True)
class DrainAnswer:
    """What a host says that was asked to stop taking runs.

    `running` are those it still has. `closes` tells whether its process ends when they have; `again` that it was
    asked, or closing, before.
    """

    running: int
    closes: bool
    again: bool = False


class ScheduleStore(Protocol):
    """One record per schedule, and an index of their names. Reads of one go to the leader."""

    async def create(self, schedule: ScheduleRecord) -> int:
        """Store a schedule that must not exist yet, under its id and its name; returns its revision.

        The name is taken first. What held it and is deleted, or was never finished, gives it up.

        Raises:
            WrongRevision: there is one of this id already.
            ScheduleNameTaken: another schedule has the name.
        """
        ...

    async def update(self, schedule: ScheduleRecord, revision: int, *, ttl: timedelta | None = None) -> int:
        """Replace the schedule last seen at `revision`; returns the new revision. Its name stays.

        `ttl` removes it by itself later.

        Raises:
            WrongRevision: somebody else wrote.
        """
        ...

    async def get(self, schedule_id: str) -> StoredSchedule | None:
        """The schedule, or `None`. Bytes that can't be read raise `PayloadInvalidError`."""
        ...

    async def find(self, name: str) -> StoredSchedule | None:
        """The schedule of that name, tombstones left out."""
        ...

    async def all(self) -> list[StoredSchedule]:
        """All schedules by name, tombstones among them; a page's view, may be late. Unreadable ones are left out."""
        ...

    async def delete(self, schedule_id: str, revision: int) -> bool:
        """Remove a schedule's record and name if it is still at `revision`; says whether it went."""
        ...


class PayloadStore(Protocol):
    """Bodies too large for a message."""

    async def put(self, run_id: str, direction: Literal["in", "out"], name: str, data: bytes) -> ClaimCheck:
        """Store bytes in chunks; the same name and bytes again is harmless. `name` is a digest or a claim."""
        ...

    async def get(self, claim: ClaimCheck) -> bytes:
        """The bytes, checked against their digest.

        Raises:
            PayloadInvalidError: gone, incomplete or changed.
        """
        ...

    async def purge(self, run_id: str) -> None:
        """Remove everything stored for a run."""
        ...

    async def holding(self) -> Holding:
        """How much there is, in one cheap call; an entry is a chunk."""
        ...

    def run_ids(self) -> AsyncIterator[str]:
        """The ids of all runs for which something is stored, in no order, perhaps twice; no bytes are read."""
        ...

    async def newest(self, run_id: str) -> datetime | None:
        """When the last chunk of a run was stored; `None` when there is none."""
        ...


class Catalog(Protocol):
    """Descriptors of jobs and presence of hosts."""

    async def describe(
        self, descriptor: JobDescriptor, *, living: Collection[str] = frozenset()
    ) -> JobDescriptor | None:
        """Publish a descriptor where `rollout.may_describe` allows it; returns the one it replaced.

        `living` are the ids of the other hosts that are alive.
        """
        ...

    async def job(self, address: JobAddress) -> JobDescriptor | None:
        """One job's descriptor."""
        ...

    async def jobs(self) -> list[JobDescriptor]:
        """All descriptors of the project, by module and job."""
        ...

    async def control(self, address: JobAddress) -> StoredControl | None:
        """What people ordered for a job, read from the leader; `None` when nobody ever did."""
        ...

    async def controls(self) -> list[StoredControl]:
        """All orders of the project, by module and job; a page's view, may be late."""
        ...

    async def set_control(self, control: JobControl, revision: int) -> int:
        """Replace the orders for a job last seen at `revision` (0: none); returns the new revision.

        Raises:
            WrongRevision: somebody else wrote.
        """
        ...

    async def say(self, presence: HostPresence, ttl: timedelta) -> None:
        """Say that a host lives; the entry goes by itself after `ttl`."""
        ...

    async def leave(self, host_id: str) -> None:
        """Remove a host's entry."""
        ...

    async def hosts(self) -> Sequence[HostPresence]:
        """All hosts that said so within their TTL."""
        ...

    async def lease(self, name: str, holder: str, ttl: timedelta) -> bool:
        """Take a lease that nobody has; says whether it is this holder's now. It ends by itself, never sooner."""
        ...


class EventSubscription(Protocol):
    """One member of a queue group that hears events."""

    @property
    def problem(self) -> str | None:
        """Why the broker, connected as it is, lets it hear nothing any more; `None` while all is well."""
        ...

    async def stop(self) -> None:
        """No event arrives once this returns; what the broker had sent has arrived. Idempotent."""
        ...


class EventSource(Protocol):
    """The messages of other services: heard as they pass by, or taken from a stream that keeps them."""

    async def subscribe(self, subject: str, group: str, on_event: Callable[[Event], None]) -> EventSubscription:
        """Hear what is published on a subject (wildcards allowed) from now on, at most once.

        Of the members of a group one hears each event. Survives reconnects; what passes by meanwhile is lost.
        `on_event` must neither block nor await.

        Raises:
            PermissionMissing: this user may not hear the subject.
        """
        ...

    async def consume(self, stream: str, subject: str, durable: str, on_delivery: OnDelivery) -> Consumption:
        """Begin to take the events of a stream on a subject, none before `allow`; each until it is acked.

        `durable` names who shares them and remembers what was acked. Made here, it begins with what is stored from
        the first call on, even if that call found no stream; if another durable of the same job takes the same subject
        (its filter was another one), where that one got to. A work-queue stream gives all it holds. It is made again
        when somebody removes it, and removed by nobody here. Survives reconnects.

        Raises:
            BrokerError: there is no such stream (yet); names it.
            StreamMismatch: the stream allows no second consumer on the subject; says what to do.
            PermissionMissing: this user may not do that; names the subject.
        """
        ...


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a lifeline does in the place of a blocked event loop. All of it is called from the lifeline's thread.

    `due` gives deliveries to renew, each with what to call when the broker has confirmed it. `over` says that the
    loop is back; it is asked every `pause` seconds.
    """

    host_id: str
    due: Callable[[], Sequence[tuple[Delivery, Callable[[], None]]]]
    holds: Callable[[RunKey, str | None], bool]
    over: Callable[[], bool]
    pause: float


class Lifeline(Protocol):
    """A second way to the broker for the time in which the event loop is blocked."""

    def keep(self, keeping: Keeping) -> None:
        """Renew what is due and answer asks until it is over. Blocks; call it from a thread of its own.

        Raises:
            BrokerError: it can't.
        """
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """One project's ports over one connection, and how to let go of it; `lifeline` where there can be one."""

    broker: Broker
    runs: RunStore
    payloads: PayloadStore
    catalog: Catalog
    events: EventSource
    schedules: ScheduleStore
    close: Callable[[], Awaitable[None]]
    lifeline: Lifeline | None = None
