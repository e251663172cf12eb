"""`_ports.Broker` over NATS: the jobs stream, its consumers, and the control subjects beside it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from jetjobs._clock import Clock, SystemClock
from jetjobs._core import names, signal_subjects
from jetjobs._core.controls import Standing
from jetjobs._core.gateway_calls import is_inbox
from jetjobs._core.headers import EXPECTED_LAST, EXPECTED_LAST_ON
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import NOTHING, JobAddress, RunKey, RunRecord
from jetjobs._log import get_logger
from jetjobs._nats.calls import NatsCalls
from jetjobs._nats.contents import runs_in_stream
from jetjobs._nats.delivery import ACK_PREFIX, consumer_at
from jetjobs._nats.faults import NotFound
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.mending import given_up
from jetjobs._nats.operator_signals import OperatorSignals
from jetjobs._nats.pages import read_messages
from jetjobs._nats.provision import Provisioner, ProvisionSettings, wanted_streams
from jetjobs._nats.pull import ContinuousPull
from jetjobs._nats.rights import prove_deliveries
from jetjobs._nats.share import Share
from jetjobs._nats.together import FirstBlocks, store_together
from jetjobs._nats.tuned import Headers
from jetjobs._ports import DrainAnswer, OnCall, OnDelivery
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable

_log = get_logger("jetjobs.nats")

_WRITE_TIMEOUT: Final = 5.0
_ASK_TIMEOUT: Final = 1.0
_CLOCK_TOLERANCE: Final = timedelta(seconds=1)
_PRECISE: Final = timedelta(milliseconds=20)
_CLOCK_TRIES: Final = 3

_HOLDS: Final = b'{"holds":true}'
_HOLDS_NOT: Final = b'{"holds":false}'


class NatsBroker:
    """One project's triggers, consumers and signals over one connection."""

    def __init__(
        self, link: Link, project: str, settings: ProvisionSettings | None = None, *, clock: Clock | None = None
    ) -> None:
        self._link = link
        self._project = project
        self._clock = clock or SystemClock()
        self._offset = timedelta(0)
        # Broker time when the monotonic clock stood at zero: a wall clock set meanwhile moves nothing.
        self._epoch = self._clock.now() - timedelta(seconds=self._clock.monotonic())
        self._stream = names.stream(project)
        self._first_blocks = FirstBlocks()
        self._provisioner = Provisioner(link, project, settings or ProvisionSettings())
        self._pull = ContinuousPull(link, self._stream)
        self._signals = OperatorSignals(link, project)
        self._standings: dict[JobAddress, Standing] = {}
        everything = (wanted.needed["subjects"] for wanted in wanted_streams(project, self._provisioner.settings))
        self._stored_on = tuple(subject.removesuffix(">") for subjects in everything for subject in subjects)

    @property
    def project(self) -> str:
        """Name of the project."""
        return self._project

    # -- time

    def now(self) -> datetime:
        """Broker time as last measured, carried on by the monotonic clock."""
        return self._epoch + timedelta(seconds=self._clock.monotonic())

    @property
    def clock_offset(self) -> timedelta:
        """Broker time minus local time, as last measured."""
        return self._offset

    @property
    def connected_since(self) -> float | None:
        """Monotonic seconds of the last (re)connect; `None` while disconnected."""
        return self._link.connection.connected_since

    async def out_for_everybody(self) -> bool:
        """While disconnected: whether every known server actively refuses connections."""
        return await self._link.connection.refused_everywhere()

    async def measure_clock(self) -> timedelta:
        """Measure the offset again; of a few slow answers the quickest counts."""
        best: timedelta | None = None
        for _ in range(_CLOCK_TRIES):
            before = self._clock.monotonic()
            answer = await self._link.ask_stream("STREAM.INFO", self._stream, about=self._stream)
            after = self._clock.monotonic()
            took = timedelta(seconds=after - before)
            if best is None or took < best:
                best = took
                self._epoch = datetime.fromisoformat(answer["ts"]) - timedelta(seconds=(before + after) / 2)
                self._offset = self.now() - self._clock.now()
            if best <= _PRECISE:
                break
        if abs(self._offset) > _CLOCK_TOLERANCE:
            _log.warning("clock differs from the broker's", seconds=self._offset.total_seconds())
        return self._offset

    # -- what must exist

    async def ensure_project(self) -> None:
        """Create the stream and buckets, or adapt them to a higher configuration version."""
        await self._provisioner.ensure_project()
        self._link.writer.on_nobody = self._nobody_takes

    def _nobody_takes(self, subject: str) -> None:
        """A consumer, the stream or a bucket may have gone while this host is at work: somebody must make it again."""
        if subject.startswith(ACK_PREFIX):
            tokens = subject.split(".")
            self._pull.doubt_consumer(tokens[consumer_at(tokens)])
        elif subject.startswith(self._stored_on):
            self._pull.restore_soon(self._restore)

    async def _restore(self) -> None:
        _log.warning("nobody stores what is written, looking for streams that have gone", project=self._project)
        await self._provisioner.ensure_project()

    async def ensure_consumer(
        self, job: JobAddress, max_concurrency: int, *, paused: bool = False, update: bool = True
    ) -> None:
        """Create the job's durable consumer; with `update`, bring what differs in place up to date."""
        self._standings[job] = Standing(max_concurrency, paused)
        await self._provisioner.ensure_consumer(job, max_concurrency, paused=paused, update=update)

    async def mend_consumer(self, job: JobAddress) -> None:
        """Put right what somebody edited at the job's consumer that is never to be other than it is."""
        await self._provisioner.mend_consumer(job)

    async def given_up(self, job: JobAddress, sequence: int) -> bool:
        """Whether the job's consumer will never again deliver a message that is stored and was delivered."""
        return await given_up(self._link.api, self._stream, names.consumer(job), sequence)

    async def consume(self, job: JobAddress, on_delivery: OnDelivery) -> Share:
        """Begin to take deliveries of a job, none before `allow`."""
        consumer = names.consumer(job)
        await prove_deliveries(self._link, self._stream, consumer)
        return await self._pull.add(consumer, on_delivery, partial(self._recreate, job))

    async def _recreate(self, job: JobAddress) -> None:
        standing = self._standings.get(job)
        if standing is None:
            return  # never ensured here: whoever made the consumer makes it again
        create = partial(self._provisioner.ensure_consumer, job, standing.limit, paused=standing.paused, update=False)
        try:
            await create()
        except NotFound:
            # The stream itself is gone. What lay in it is lost; what comes need not be.
            _log.error("jobs stream has gone, creating it again", stream=self._stream)
            await self._provisioner.ensure_project()
            await create()

    # -- messages

    def store(
        self,
        message: Outgoing,
        *,
        expected: int | None = None,
        expected_on: str | None = None,
        timeout: timedelta | None = None,
    ) -> Awaitable[int]:
        """Store a message in the jobs stream; gives its sequence. Sent before it is awaited."""
        headers: Headers = message.headers
        if expected == 0 and expected_on is None:
            headers = self._first_blocks.of(message)
        elif expected is not None:
            headers = {**message.headers, EXPECTED_LAST: str(expected)}
            if expected_on is not None:
                headers[EXPECTED_LAST_ON] = expected_on
        seconds = _WRITE_TIMEOUT if timeout is None else timeout.total_seconds()
        return self._link.writer.send(message.subject, message.data, headers, timeout=seconds)

    async def store_together(self, messages: Sequence[Outgoing], *, timeout: timedelta) -> None:
        """Store messages, each the first on a subject of its own: all of them or none."""
        await store_together(self._link, messages, timeout=timeout.total_seconds())

    async def last(self, subject: str) -> Message | None:
        """The newest message on a subject (wildcards allowed), read from the stream's leader."""
        return await self._read({"last_by_subj": subject}, subject)

    async def message(self, sequence: int) -> Message | None:
        """The message with that sequence, read from the stream's leader; `None` when it has gone."""
        return await self._read({"seq": sequence}, self._stream)

    async def _read(self, which: dict[str, Any], about: str) -> Message | None:
        try:
            answer = await self._link.ask_stream("STREAM.MSG.GET", self._stream, which, about=about)
        except NotFound:
            return None
        found: dict[str, Any] = answer["message"]
        return Message(
            found["subject"],
            _headers(base64.b64decode(found.get("hdrs") or "")),
            base64.b64decode(found.get("data") or ""),
            found["seq"],
            datetime.fromisoformat(found["time"]),
        )

    async def in_stream(self, runs: Sequence[RunKey]) -> set[RunKey]:
        """Those of the runs with a message on a trigger or schedule subject of their own, as the leader has it."""
        return await runs_in_stream(self._link, self._project, runs)

    async def waiting(self, job: JobAddress | None = None, *, module: str | None = None) -> AsyncIterator[Message]:
        """The messages of runs on subjects of their own, schedules before triggers."""
        for pattern in names.run_patterns(self._project, job, module):
            async with aclosing(read_messages(self._link, self._stream, pattern)) as pages:
                async for page in pages:
                    for message in page:
                        yield message

    async def purge(self, subject: str, *, up_to: int) -> int:
        """Remove a subject's messages with sequences ≤ `up_to`; returns how many went."""
        wanted = {"filter": subject, "seq": up_to + 1}  # the broker removes what lies before `seq`
        return int((await self._link.ask_stream("STREAM.PURGE", self._stream, wanted, about=subject)).get("purged", 0))

    # -- signals between processes, over core NATS

    async def ask_owner(self, host_id: str, run: RunKey, claim: str | None) -> bool:
        """Whether that host says it still holds this run. No answer, or nobody there, is False."""
        question = json.dumps({**run._asdict(), "claim": claim}).encode()
        subject = signal_subjects.host_subject(self._project, host_id)
        try:
            answer = await self._link.writer.request(subject, question, timeout=_ASK_TIMEOUT)
        except (BrokerUnavailable, AnswerUnknown):
            return False
        return answer == _HOLDS

    async def answer_asks(self, host_id: str, holds: Callable[[RunKey, str | None], bool]) -> None:
        """Answer the asks of others for as long as the connection is open."""

        def answer(message: Inbound) -> None:
            asked = _asked(message.data)
            # Only an inbox is answered: the reply is written with this host's rights, wherever the asker wants it.
            if asked is not None and is_inbox(message.reply):
                self._link.connection.post(message.reply, _HOLDS if holds(*asked) else _HOLDS_NOT)

        await self._link.connection.listen(signal_subjects.host_subject(self._project, host_id), answer)

    async def answer_calls(self, jobs: Iterable[JobAddress], on_call: OnCall) -> NatsCalls:
        """Hear the calls to these jobs; of the hosts that do, one hears each."""
        calls = NatsCalls(self._link, self._project)
        await calls.hear(jobs, on_call)
        return calls

    async def ring_cancel(self, run: RunKey) -> None:
        """Tell the hosts of a run, at once and without guarantee, that its record asks for a cancel."""
        self._link.connection.post(signal_subjects.cancel_subject(self._project, run))

    async def hear_cancels(self, on_cancel: Callable[[RunKey], None]) -> None:
        """Hear the doorbell of all the project's runs for as long as the connection is open."""

        def rung(message: Inbound) -> None:
            run = signal_subjects.parse_cancel_subject(self._project, message.subject)
            if run is not None:
                on_cancel(run)

        await self._link.connection.listen(signal_subjects.all_cancels(self._project), rung)

    async def ring_control(self, job: JobAddress) -> None:
        """Tell all hosts, at once and without guarantee, that something was ordered for a job."""
        await self._signals.ring_control(job)

    async def hear_controls(self, on_control: Callable[[JobAddress], None]) -> None:
        """Hear that doorbell for all the project's jobs for as long as the connection is open."""
        await self._signals.hear_controls(on_control)

    async def ask_drain(self, host_id: str, actor: str | None) -> DrainAnswer | None:
        """Ask a host to stop taking runs; its answer, or `None` when nobody of that id is there."""
        return await self._signals.ask_drain(host_id, actor)

    async def answer_drains(self, host_id: str, on_drain: Callable[[str | None], DrainAnswer]) -> None:
        """Let oneself be asked for as long as the connection is open."""
        await self._signals.answer_drains(host_id, on_drain)

    def announce_end(self, record: RunRecord) -> None:
        """Tell whoever listens that a run ended."""
        # By hand: every part is of an alphabet that JSON needn't escape, and this is once per run.
        body = (
            f'{{"status":"{record.status.value}","run_id":"{record.run_id}","module":"{record.module}",'
            f'"job":"{record.job}","attempt":{record.attempt}}}'
        )
        subject = signal_subjects.ended_subject(self._project, record.status, record.run_key)
        self._link.connection.post(subject, body.encode())

    @asynccontextmanager
    async def ended(self, run: RunKey) -> AsyncGenerator[Callable[[timedelta], Awaitable[bool]]]:
        """Listen for one run's end; the value inside waits up to a span and says whether it was announced."""
        announced = asyncio.Event()

        async def wait(span: timedelta) -> bool:
            try:
                async with asyncio.timeout(span.total_seconds()):
                    await announced.wait()
            except TimeoutError:
                return announced.is_set()
            return True

        pattern = signal_subjects.ended_pattern(self._project, run)
        heard = await self._link.connection.listen(pattern, lambda _: announced.set())
        try:
            yield wait
        finally:
            await self._link.connection.forget(heard)

    async def close(self) -> None:
        """Stop taking deliveries and let the connection go."""
        try:
            await self._pull.close()
        except BrokerError as failure:
            _log.info("pull not closed cleanly", error=str(failure))
        finally:
            await self._link.connection.close()


def _headers(raw: bytes) -> Mapping[str, str]:
    """The headers of a stored message: a status line, then `Name: value` lines."""
    if not raw:
        return NOTHING
    lines = raw.decode("utf-8", "replace").split("\r\n")[1:]
    parted = (line.partition(":") for line in lines if line)
    return {name.strip(): value.strip() for name, _, value in parted}


def _asked(data: bytes) -> tuple[RunKey, str | None] | None:
    """The question in an ask; `None` if somebody sent something else."""
    try:
        asked = json.loads(data)
        return RunKey(asked["module"], asked["job"], asked["run_id"]), asked.get("claim")
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
