"""One event trigger on one host: from the event heard or taken to its trigger in the jobs stream.

A trigger is stored under "nothing there yet" on the run's own subject. Whatever was stored before, by this host, by
another one, by an earlier try whose answer was lost, is the same event's and needs no second message; a run that has
ended by then retires a late one. An event of a stream is acked after that and never before.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import deque
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from jetjobs._core.bodies import INLINE_LIMIT, Body
from jetjobs._core.events import Event, Filtered, Unreadable, Wanted, event_trigger, judge_event, stream_event
from jetjobs._core.models import RunKey
from jetjobs._core.renames import served_names
from jetjobs._core.run_ids import fresh_run_id
from jetjobs._engine.tasks import Tasks
from jetjobs._log import get_logger
from jetjobs.errors import (
    AnswerUnknown,
    BrokerError,
    BrokerUnavailable,
    JetJobsError,
    StorageFull,
    WrongRevision,
)

if TYPE_CHECKING:
    from jetjobs._core.events import Verdict
    from jetjobs._core.triggers import OnEvent
    from jetjobs._engine.engine import Engine
    from jetjobs._ports import Consumption, Delivery, EventSubscription
    from jetjobs.job import Job

log = get_logger("jetjobs.engine")

PLACES = 32_768  # wanted events of one trigger by core NATS, on one host, whose run isn't stored yet
BYTES = 64 * 1024 * 1024  # bodies of all of them together
WRITERS = 256  # of these so many are being stored at once: runs want to write too
STREAM_PLACES = 64  # the same by stream: what one host takes at once
STORE_WITHIN = 30.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
GIVE_BACK_FOR = timedelta(seconds=5)
MOST_SUBJECTS = 1000

_AGAIN = (BrokerUnavailable, AnswerUnknown, StorageFull)


@dataclass(slots=True)
class EventCounts:
    """What became of the events this host met.

    `dropped` (no place), `lost` (not stored in time) and `refused` (can't be stored) ones are gone; what was given back
    its stream delivers again.
    """

    stored: int = 0
    filtered: int = 0
    unreadable: int = 0
    dropped: int = 0
    lost: int = 0
    refused: int = 0
    given_back: int = 0

    @property
    def gone(self) -> int:
        """How many came and became no run although they were wanted."""
        return self.dropped + self.lost + self.refused


@dataclass(slots=True)
class EventFlow:
    """What all routes of a host share: the tasks that store, the bytes they hold, and the counts."""

    engine: Engine
    tasks: Tasks = field(default_factory=Tasks)
    counts: EventCounts = field(default_factory=EventCounts)
    bytes_held: int = 0
    last_error: str = ""
    _told_of: set[str] = field(default_factory=set[str])

    def unreadable(self, event: Event, reason: str) -> None:
        """Count an event whose filter can't be asked; each subject is told about once."""
        self.counts.unreadable += 1
        if event.subject not in self._told_of and len(self._told_of) < MOST_SUBJECTS:
            self._told_of.add(event.subject)
            log.warning("event_unreadable", subject=event.subject[:200], reason=reason)


class Route:
    """One event trigger on one host. `name` is its queue group's, or its durable's."""

    def __init__(self, flow: EventFlow, job: Job[Any, Any], trigger: OnEvent, *, name: str) -> None:
        self.address = job.origin
        self._others = frozenset(served_names(job.address, job.policy.aliases)) - {job.origin}
        self.trigger = trigger
        self.name = name
        self._flow = flow
        self._backend = flow.engine.backend
        self._clock = flow.engine.clock
        self._patience = STORE_WITHIN
        if trigger.stream is not None:  # else the stream gives it to another host meanwhile
            self._patience = min(STORE_WITHIN, flow.engine.settings.ack_wait.total_seconds() / 2)
        self._expires_in = job.policy.expiry("event")
        self._waiting: deque[tuple[Event, Wanted, float]] = deque()
        self._writers = 0
        self._taken: Consumption | None = None
        self._heard: EventSubscription | None = None
        self._stopped = False
        self._said = ""

    @property
    def waits_for_stream(self) -> bool:
        """Whether its stream wasn't there, or didn't let it in."""
        return self.trigger.stream is not None and self._taken is None

    @property
    def problem(self) -> str | None:
        """Why no events come, if that is known."""
        if self.waits_for_stream:
            return self._said or None
        source = self._heard or self._taken
        return None if source is None else source.problem

    @property
    def is_deaf(self) -> bool:
        """Whether the broker took its right to hear away. It doesn't give a subscription back with the right."""
        return self._heard is not None and self._heard.problem is not None

    def hear(self, subscription: EventSubscription) -> EventSubscription | None:
        """Note through what it hears; gives what it heard through before."""
        before, self._heard = self._heard, subscription
        return before

    def tell(self, problem: str) -> None:
        """Log why no events come, once for each reason."""
        if problem != self._said:
            self._said = problem
            log.warning("events_not_taken", job=str(self.address), stream=self.trigger.stream, problem=problem)

    def begin(self, taken: Consumption) -> None:
        """Take events of the stream."""
        if self._said:
            self._said = ""
            log.info("events_taken", job=str(self.address), stream=self.trigger.stream)
        self._taken = taken
        taken.allow(STREAM_PLACES)

    async def stop(self) -> None:
        """Take nothing more of the stream."""
        self._stopped = True
        if self._taken is not None:
            await self._taken.stop()

    # ------------------------------------------------------------------ core NATS

    def on_event(self, event: Event) -> None:
        """Judge an event heard; returns at once."""
        verdict = self._judge(event)
        match verdict:
            case Filtered():
                self._flow.counts.filtered += 1
            case Unreadable(reason):
                self._flow.unreadable(event, reason)
            case Wanted():
                self._take(event, verdict)

    def _take(self, event: Event, wanted: Wanted) -> None:
        flow, size = self._flow, len(event.data)
        if len(self._waiting) >= PLACES or flow.bytes_held + size > BYTES:
            flow.counts.dropped += 1
            return
        flow.bytes_held += size
        self._waiting.append((event, wanted, self._clock.monotonic()))
        if self._writers < WRITERS:
            self._writers += 1
            flow.tasks.start(self._store_waiting())

    async def _store_waiting(self) -> None:
        try:
            while self._waiting:
                await self._store_heard(*self._waiting.popleft())
        finally:
            self._writers -= 1

    async def _store_heard(self, event: Event, wanted: Wanted, heard_at: float) -> None:
        flow, stored = self._flow, False
        try:
            await self._store(event, wanted, heard_at)
            stored = True
        except JetJobsError as error:
            flow.last_error = str(error)
        finally:
            flow.bytes_held -= len(event.data)
            flow.counts.lost += not stored

    def abandon(self) -> None:
        """Count what waits as lost: nobody stores it any more."""
        self._flow.counts.lost += len(self._waiting)
        self._waiting.clear()

    # ------------------------------------------------------------------ stream

    def on_delivery(self, delivery: Delivery) -> None:
        """Judge an event taken from the stream; returns at once."""
        event = stream_event(delivery.message, self.trigger.stream or "")
        verdict = self._judge(event)
        match verdict:
            case Wanted():
                self._flow.tasks.start(self._store_taken(delivery, event, verdict))
                return
            case Filtered():
                self._flow.counts.filtered += 1
            case Unreadable(reason):
                self._flow.unreadable(event, reason)
        delivery.ack()
        self._allow_one()

    async def _store_taken(self, delivery: Delivery, event: Event, wanted: Wanted) -> None:
        flow = self._flow
        try:
            await self._store(event, wanted, self._clock.monotonic())
            delivery.ack()
        except BrokerError as error:
            # Nothing is known or nothing could be written: the stream keeps it, and the run's id is the same then.
            flow.last_error, flow.counts.given_back = str(error), flow.counts.given_back + 1
            delivery.nak(GIVE_BACK_FOR)
        except JetJobsError as error:
            flow.last_error, flow.counts.refused = str(error), flow.counts.refused + 1
            delivery.term(f"{type(error).__name__}: {error}")
        finally:
            self._allow_one()

    def _allow_one(self) -> None:
        if self._taken is not None and not self._stopped:
            self._taken.allow(1)

    # ------------------------------------------------------------------ both

    def _judge(self, event: Event) -> Verdict:
        return judge_event(event, self.trigger, self.address, self._backend.broker.project, others=self._others)

    async def _store(self, event: Event, wanted: Wanted, came_at: float) -> None:
        """Have the trigger in the stream: repeated under one run id while that may help.

        Raises:
            JetJobsError: it is refused, or the time is up.
        """
        run = RunKey(self.address.module, self.address.job, wanted.run_id or self._fresh_id())
        until, pause = came_at + self._patience, FIRST_PAUSE
        if self._clock.monotonic() > until:
            raise BrokerUnavailable(f"events waited for {self._patience:g} s to be stored")
        while True:
            try:
                await self._store_once(run, event, wanted)
            except _AGAIN:
                if self._clock.monotonic() + pause > until:
                    raise
                await self._clock.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
            else:
                self._flow.counts.stored += 1
                return

    async def _store_once(self, run: RunKey, event: Event, wanted: Wanted) -> None:
        body = await self._body(run, event, wanted)
        message = event_trigger(self._backend.broker.project, run, event, body, expires_in=self._expires_in)
        try:
            await self._backend.broker.store(message, expected=0)
        except WrongRevision:
            return  # this event's trigger is there already

    async def _body(self, run: RunKey, event: Event, wanted: Wanted) -> Body | None:
        data = event.data
        if len(data) <= INLINE_LIMIT:
            return Body(data, wanted.encoding) if data else None
        name = hashlib.sha256(data).hexdigest()
        claim = await self._backend.payloads.put(run.run_id, "in", name, data)
        return Body(b"", wanted.encoding, claim)

    def _fresh_id(self) -> str:
        epoch_ms = int(self._clock.now().timestamp() * 1000)
        return fresh_run_id(epoch_ms, secrets.token_bytes(10))
