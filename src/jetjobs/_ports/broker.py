"""The jobs stream, its consumers, and what hosts say to each other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._ports.delivery import CallService, Consumption, OnCall, OnDelivery


@dataclass(frozen=True, slots=True)
class DrainAnswer:
    """What a host says that was asked to stop taking runs.

    `running` are those it still has. `closes` tells whether its process ends when they have; `again` that it was
    asked, or closing, before.
    """

    running: int
    closes: bool
    again: bool = False


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

    async def mend_consumer(self, job: JobAddress) -> None:
        """Put right what somebody edited at the job's consumer that is never to be other than it is."""
        ...

    async def given_up(self, job: JobAddress, sequence: int) -> bool:
        """Whether the job's consumer will never again deliver a message that is stored and was delivered.

        The broker gives up what used up its deliveries, which only an edited consumer limits. False while that isn't
        certain.
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
