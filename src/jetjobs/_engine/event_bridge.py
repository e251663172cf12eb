"""Events become triggers: heard or taken by the source, judged by the core, stored in the jobs stream.

::

    core NATS ──▶ judge ──▶ place free? ──▶ store the trigger (again while the broker is away, 30 s at most)
                    │            └─▶ no: dropped, counted
                    └─▶ filtered, unreadable: nothing is written
    stream    ──▶ judge ──▶ store the trigger ──▶ ack;  not stored: given back for later

Events are judged in the turn of the loop in which they came, so what the filter turns away costs no task and no
memory. What is wanted takes a place until its trigger is stored. Core NATS can't be told to wait: with all places
taken an event is lost, as it would be with no host there, and that is counted and logged. A stream can: no more is
taken than places are free.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jetjobs._core import names
from jetjobs._core.triggers import OnEvent
from jetjobs._engine.event_route import EventCounts, EventFlow, Route
from jetjobs._engine.service import Service
from jetjobs._engine.tasks import in_batches
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError, PermissionMissing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from jetjobs._engine.engine import Engine
    from jetjobs._ports import EventSubscription
    from jetjobs.job import Job

log = get_logger("jetjobs.engine")

LOOK_EVERY = 5.0
LONGEST_STOP, SHORTEST_STOP = 5.0, 1.0

_LOSSES = ("dropped", "lost", "refused", "given_back")


class EventBridge:
    """All event triggers of one host."""

    def __init__(self, engine: Engine, jobs: Iterable[Job[Any, Any]]) -> None:
        self._engine = engine
        self._flow = EventFlow(engine)
        self._routes = list(_routes(self._flow, jobs))
        self._subscriptions: list[EventSubscription] = []
        self._service = Service("events", self._pass, LOOK_EVERY, clock=engine.clock)
        self._told = EventCounts()

    @property
    def counts(self) -> EventCounts:
        """What became of the events this host met."""
        return self._flow.counts

    @property
    def routes(self) -> Sequence[Route]:
        """Each event trigger."""
        return self._routes

    @property
    def service(self) -> Service:
        """The loop that looks for streams that weren't there."""
        return self._service

    async def start(self) -> None:
        """Hear and take events. A stream that isn't there yet is looked for again and again.

        Raises:
            PermissionMissing: this user may not hear a subject, or take from a stream; nothing is heard then.
        """
        if not self._routes:
            return
        try:
            await in_batches(self._attach(route) for route in self._routes)
        except BaseException:
            await self.stop()
            raise
        self._service.start()

    async def stop(self, patience: float | None = None) -> None:
        """Hear and take nothing more; return when what came is stored, or its time is up, here or given. Idempotent."""
        await self._service.stop()
        subscriptions, self._subscriptions = self._subscriptions, []
        for subscription in subscriptions:
            await subscription.stop()
        for route in self._routes:
            await route.stop()
        if patience is None:
            patience = self._engine.drain_within(SHORTEST_STOP, LONGEST_STOP)
        if not await self._flow.tasks.wait_idle(patience):
            await self._flow.tasks.cancel_all()
            for route in self._routes:
                route.abandon()
        self._tell_losses()

    async def _attach(self, route: Route) -> None:
        events, trigger = self._engine.backend.events, route.trigger
        if trigger.stream is None:
            heard = await events.subscribe(trigger.subject, route.name, route.on_event)
            self._subscriptions.append(heard)
            if (before := route.hear(heard)) is not None:
                self._subscriptions.remove(before)
                await before.stop()
            return
        try:
            taken = await events.consume(trigger.stream, trigger.subject, route.name, route.on_delivery)
        except PermissionMissing:
            raise
        except BrokerError as error:
            route.tell(str(error))
            return
        route.begin(taken)

    async def _pass(self) -> None:
        for route in self._routes:
            if route.waits_for_stream or route.is_deaf:
                try:
                    await self._attach(route)
                except PermissionMissing as error:
                    route.tell(str(error))
        self._tell_losses()

    def _tell_losses(self) -> None:
        """Log what went wrong since the last time, all of it in one line: floods are when it happens."""
        now = replace(self._flow.counts)
        since = {name: getattr(now, name) - getattr(self._told, name) for name in _LOSSES}
        self._told = now
        if any(since.values()):
            log.error("events_not_stored", **since, last_error=self._flow.last_error)


def _routes(flow: EventFlow, jobs: Iterable[Job[Any, Any]]) -> Iterable[Route]:
    """One for each event trigger; two of a job that say the same are one, as they are to the broker."""
    project = flow.engine.backend.broker.project
    for job in jobs:
        triggers = {each.digest: each for each in job.triggers if isinstance(each, OnEvent)}
        for digest, trigger in triggers.items():
            name = names.event_consumer(project, job.origin, digest)
            yield Route(flow, job, trigger, name=name)
