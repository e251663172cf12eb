"""The `Broker` port over a `MemoryCluster`: one instance a connection, as each host has its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from jetjobs._core import names
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._ports import DrainAnswer, OnCall, OnDelivery
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable, ProjectNotPrepared
from jetjobs.testing.memory_calls import MemoryCallService
from jetjobs.testing.memory_cluster import MemoryLink
from jetjobs.testing.memory_consumer import MemoryConsumer


class MemoryBroker:
    """A project's stream and control subjects, seen through one connection."""

    def __init__(self, link: MemoryLink) -> None:
        self.link = link
        self._cluster = link.cluster
        self._stream = link.project.stream
        self._listeners = link.project.listeners
        self._offset = link.cluster.offset
        self._consumptions: dict[JobAddress, MemoryConsumption] = {}

    @property
    def project(self) -> str:
        """Name of the project."""
        return self.link.project.name

    def now(self) -> datetime:
        """Broker time, as far as this connection measured it."""
        return self._cluster.clock.now() + self._offset

    @property
    def clock_offset(self) -> timedelta:
        """Broker time minus local time, as last measured."""
        return self._offset

    @property
    def connected_since(self) -> float | None:
        """Monotonic seconds of the last (re)connect; `None` while disconnected."""
        return self.link.connected_since

    async def out_for_everybody(self) -> bool:
        """Whether the broker is down, and not this connection alone."""
        await asyncio.sleep(0)
        return not (self.link.connected or self._cluster.up)

    async def measure_clock(self) -> timedelta:
        """Measure the offset again."""
        self._offset = await self.link.call(lambda: self._cluster.offset)
        return self._offset

    async def ensure_project(self) -> None:
        """See that the broker can be reached; a project in memory is always there."""
        await self.measure_clock()

    async def ensure_consumer(
        self, job: JobAddress, max_concurrency: int, *, paused: bool = False, update: bool = True
    ) -> None:
        """Create the job's consumer, or bring its limit up to date, and whether it is paused."""
        project = self.link.project
        await self.link.call(lambda: project.ensure_consumer(job, max_concurrency, paused=paused, update=update))

    async def mend_consumer(self, job: JobAddress) -> None:  # noqa: ARG002
        """Nobody edits a consumer here; it fails where asking would."""
        await self.link.call(lambda: None)

    async def given_up(self, job: JobAddress, sequence: int) -> bool:
        """Whether it was delivered and is in nobody's hand, which no consumer here lets happen."""
        project = self.link.project
        return await self.link.call(lambda: not project.will_deliver(job, sequence))

    async def consume(self, job: JobAddress, on_delivery: OnDelivery) -> MemoryConsumption:
        """Begin to take deliveries of a job, none before `allow`."""
        before = self._consumptions.get(job)
        if before is not None and not before.stopped:
            raise BrokerError(f"{job} is already consumed over this connection")
        consumer = await self.link.call(lambda: self.link.project.consumer(job))
        taken = self._consumptions[job] = MemoryConsumption(self.link, consumer, on_delivery)
        return taken

    async def store(
        self,
        message: Outgoing,
        *,
        expected: int | None = None,
        expected_on: str | None = None,
        timeout: timedelta | None = None,  # noqa: ARG002 - the broker in memory answers at once or not at all
    ) -> int:
        """Store a message in the jobs stream and return its sequence."""
        self._must_take(message)
        return await self.link.call(lambda: self._stream.store(message, expected=expected, expected_on=expected_on))

    async def store_together(self, messages: Sequence[Outgoing], *, timeout: timedelta) -> None:  # noqa: ARG002
        """Store messages, each the first on a subject of its own: all of them or none."""
        for message in messages:
            self._must_take(message)
        await self.link.call(lambda: self._stream.store_together(messages))

    def _must_take(self, message: Outgoing) -> None:
        if not self._stream.takes(message.subject):
            raise ProjectNotPrepared(f"no stream takes {message.subject!r}")

    async def last(self, subject: str) -> Message | None:
        """The newest message on a subject, wildcards allowed."""
        return await self.link.call(lambda: self._stream.last(subject))

    async def message(self, sequence: int) -> Message | None:
        """The message with that sequence, while it is stored."""
        return await self.link.call(lambda: self._stream.get(sequence))

    async def in_stream(self, runs: Sequence[RunKey]) -> set[RunKey]:
        """Those of the runs with a message on a trigger or schedule subject of their own."""

        def there(run: RunKey) -> bool:
            subjects = (names.trigger_subject(self.project, run), names.run_schedules(self.project, run))
            return any(self._stream.last(subject) is not None for subject in subjects)

        return await self.link.call(lambda: {run for run in runs if there(run)})

    async def waiting(self, job: JobAddress | None = None, *, module: str | None = None) -> AsyncIterator[Message]:
        """The messages of runs on subjects of their own, schedules before triggers."""
        for pattern in names.run_patterns(self.project, job, module):
            for message in await self.link.call(lambda pattern=pattern: list(self._stream.matching(pattern))):
                yield message

    async def purge(self, subject: str, *, up_to: int) -> int:
        """Remove a subject's messages with sequences up to `up_to`; returns how many went."""
        return await self.link.call(lambda: self._stream.purge(subject, up_to=up_to))

    async def ask_owner(self, host_id: str, run: RunKey, claim: str | None) -> bool:
        """Whether that host says it still holds this run; out of reach on either side is a no."""

        def ask() -> bool:
            heard = (holds for link, who, holds in self._listeners.asks if who == host_id and link.connected)
            return any(holds(run, claim) for holds in heard)

        try:
            return await self.link.call(ask)
        except (BrokerUnavailable, AnswerUnknown):
            return False

    async def answer_asks(self, host_id: str, holds: Callable[[RunKey, str | None], bool]) -> None:
        """Answer the asks of others."""
        await self.link.call(lambda: self._listeners.asks.append((self.link, host_id, holds)))

    async def answer_calls(self, jobs: Iterable[JobAddress], on_call: OnCall) -> MemoryCallService:
        """Hear the calls to these jobs; of the hosts that do, one hears each."""
        return await self.link.call(lambda: self.link.project.calls.join(self.link, jobs, on_call))

    async def ring_cancel(self, run: RunKey) -> None:
        """Tell the hosts of a run that its record asks for a cancel."""

        def ring() -> None:
            for link, on_cancel in list(self._listeners.cancels):
                if link.connected:
                    asyncio.get_running_loop().call_soon(on_cancel, run)

        await self.link.call(ring)

    async def hear_cancels(self, on_cancel: Callable[[RunKey], None]) -> None:
        """Hear the doorbell of the project's runs."""
        await self.link.call(lambda: self._listeners.cancels.append((self.link, on_cancel)))

    async def ring_control(self, job: JobAddress) -> None:
        """Tell all hosts that something was ordered for a job."""

        def ring() -> None:
            for link, on_control in list(self._listeners.controls):
                if link.connected:
                    asyncio.get_running_loop().call_soon(on_control, job)

        await self.link.call(ring)

    async def hear_controls(self, on_control: Callable[[JobAddress], None]) -> None:
        """Hear that doorbell."""
        await self.link.call(lambda: self._listeners.controls.append((self.link, on_control)))

    async def ask_drain(self, host_id: str, actor: str | None) -> DrainAnswer | None:
        """Ask a host to stop taking runs; `None` when it isn't there, or out of reach."""

        def ask() -> DrainAnswer | None:
            heard = (drain for link, who, drain in self._listeners.drains if who == host_id and link.connected)
            return next((drain(actor) for drain in heard), None)

        return await self.link.call(ask)

    async def answer_drains(self, host_id: str, on_drain: Callable[[str | None], DrainAnswer]) -> None:
        """Let oneself be asked."""
        await self.link.call(lambda: self._listeners.drains.append((self.link, host_id, on_drain)))

    def announce_end(self, record: RunRecord) -> None:
        """Tell whoever listens that a run ended."""
        if not self.link.connected:
            return
        for link, run, hear in list(self._listeners.ends):
            if run == record.run_key and link.connected:
                asyncio.get_running_loop().call_soon(hear)

    @asynccontextmanager
    async def ended(self, run: RunKey) -> AsyncGenerator[Callable[[timedelta], Awaitable[bool]], None]:
        """Listen for one run's end."""
        heard = asyncio.Event()
        entry = (self.link, run, heard.set)
        await self.link.call(lambda: self._listeners.ends.append(entry))

        async def wait(span: timedelta) -> bool:
            over = asyncio.Event()
            timer = self._cluster.clock.call_later(span.total_seconds(), over.set)
            waiters = [asyncio.ensure_future(event.wait()) for event in (heard, over)]
            try:
                await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
                for waiter in waiters:
                    waiter.cancel()
            return heard.is_set()

        try:
            yield wait
        finally:
            self._listeners.ends.remove(entry)


class MemoryConsumption:
    """What one connection takes of one job."""

    def __init__(
        self,
        link: MemoryLink,
        consumer: MemoryConsumer,
        on_delivery: OnDelivery,
        *,
        problem: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._link = link
        self._consumer = consumer
        self._on_delivery = on_delivery
        self._problem = problem
        self._credit = 0
        self.stopped = False
        consumer.join(self)

    @property
    def problem(self) -> str | None:
        """Why nothing is given; a project's own stream is always there."""
        return self._problem()

    @property
    def wants(self) -> bool:
        """Whether one more delivery may come."""
        return self._credit > 0 and self._link.connected

    def allow(self, slots: int) -> None:
        """Take up to `slots` deliveries more."""
        self._credit += slots
        self._consumer.serve()

    async def stop(self) -> None:
        """Take no more; what is on its way goes back to the queue."""
        self.stopped = True
        self._credit = 0
        self._consumer.part(self)
        await asyncio.sleep(0)

    def take(self, message: Message) -> None:
        """Have a delivery arrive, in a turn of the loop of its own."""
        self._credit -= 1
        asyncio.get_running_loop().call_soon(self._arrive, message, self._link.epoch)

    def _arrive(self, message: Message, epoch: int) -> None:
        if epoch != self._link.epoch:
            # The connection broke under it: the ack wait runs, and the pull is asked for anew.
            self._credit += not self.stopped
            self._consumer.serve()
        elif self.stopped:
            self._consumer.nak(message.sequence)
        else:
            self._on_delivery(MemoryDelivery(self._link, self._consumer, message))


class MemoryDelivery:
    """One delivery; its answers reach the broker only while the connection is up."""

    __slots__ = ("_consumer", "_link", "_message")

    def __init__(self, link: MemoryLink, consumer: MemoryConsumer, message: Message) -> None:
        self._link = link
        self._consumer = consumer
        self._message = message

    @property
    def message(self) -> Message:
        """The message delivered, with its delivery number."""
        return self._message

    def ack(self) -> None:
        """Retire the message and free its slot; while disconnected, after the reconnect."""
        self._link.send(lambda: self._consumer.ack(self._message.sequence), keep=True)

    def nak(self, delay: timedelta | None = None) -> None:
        """Give the delivery back, unless disconnected: then the ack wait does it."""
        seconds = delay.total_seconds() if delay is not None else 0.0
        self._link.send(lambda: self._consumer.nak(self._message.sequence, seconds))

    def term(self, reason: str) -> None:  # noqa: ARG002 - nobody hears advisories in memory
        """Remove the message for good, unless disconnected."""
        self._link.send(lambda: self._consumer.ack(self._message.sequence))

    async def renew(self) -> None:
        """Extend the ack wait."""
        await self._link.call(lambda: self._consumer.renew(self._message.sequence))
