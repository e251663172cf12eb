"""The messages of other services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from jetjobs._core.events import Event
from jetjobs._ports.delivery import Consumption, OnDelivery


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
