"""The `EventSource` port over a `MemoryCluster`: one instance a connection, as each host has its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from jetjobs._core.events import Event
from jetjobs._ports import OnDelivery
from jetjobs.testing.memory_broker import MemoryConsumption
from jetjobs.testing.memory_cluster import MemoryLink
from jetjobs.testing.memory_events import Listener


class MemorySubscription:
    """One member of a queue group."""

    def __init__(self, leave: Callable[[], None], problem: Callable[[], str | None]) -> None:
        self._leave = leave
        self._problem = problem

    @property
    def problem(self) -> str | None:
        """The right that was taken away."""
        return self._problem()

    async def stop(self) -> None:
        """Leave the group; what was published before has arrived on return."""
        self._leave()
        await asyncio.sleep(0)


class MemoryEventSource:
    """`_ports.EventSource`, seen through one connection."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link
        self._events = link.cluster.events

    async def subscribe(self, subject: str, group: str, on_event: Callable[[Event], None]) -> MemorySubscription:
        """Hear what is published on a subject from now on."""
        listener = Listener(self._link, subject, on_event)
        leave = await self._link.call(lambda: self._events.join(group, listener))
        return MemorySubscription(leave, partial(self._events.refusal, subject))

    async def consume(self, stream: str, subject: str, durable: str, on_delivery: OnDelivery) -> MemoryConsumption:
        """Begin to take the events of a stream, none before `allow`."""
        consumer = await self._link.call(lambda: self._events.durable(stream, subject, durable))
        return MemoryConsumption(self._link, consumer, on_delivery, problem=partial(self._events.missing, stream))
