"""The messages of other services in memory: subjects with queue groups, and streams that keep what passes by.

One `MemoryEvents` is shared by all connections of a `MemoryCluster`, across projects, as subjects are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from jetjobs._core.events import Event
from jetjobs._core.models import NOTHING, Outgoing
from jetjobs.errors import BrokerError, PermissionMissing
from jetjobs.testing.memory_consumer import MemoryConsumer
from jetjobs.testing.memory_stream import MemoryStream, subject_matches

if TYPE_CHECKING:
    from jetjobs.testing.memory_cluster import MemoryCluster, MemoryLink

_MAX_ACK_PENDING = 256


@dataclass(eq=False)
class Listener:
    """A member of a queue group, and the connection it hears through."""

    link: MemoryLink
    pattern: str
    on_event: Callable[[Event], None]


@dataclass
class _EventStream:
    """A user's stream. Every durable has a copy of what it is owed, because an ack takes nothing from the others."""

    subjects: tuple[str, ...]
    numbers: count[int] = field(default_factory=lambda: count(1))
    durables: dict[str, tuple[MemoryStream, MemoryConsumer]] = field(
        default_factory=dict[str, "tuple[MemoryStream, MemoryConsumer]"]
    )

    def takes(self, subject: str) -> bool:
        return any(subject_matches(pattern, subject) for pattern in self.subjects)

    def append(self, message: Outgoing) -> None:
        sequence = next(self.numbers)
        for owed, _ in self.durables.values():
            if owed.takes(message.subject):
                owed.last_sequence = sequence - 1
                owed.store(message)


class MemoryEvents:
    """Subjects and streams outside of all projects. `forbidden` holds subjects that nobody may hear or take."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.forbidden: set[str] = set()
        self._cluster = cluster
        self._groups: dict[tuple[str, str], list[Listener]] = {}
        self._streams: dict[str, _EventStream] = {}

    def add_stream(self, name: str, *subjects: str) -> None:
        """Have a stream keep what is published on its subjects from now on."""
        self._streams.setdefault(name, _EventStream(subjects))

    def publish(self, subject: str, data: bytes = b"", headers: Mapping[str, str] = NOTHING) -> None:
        """Publish as another service does; lost to everybody while the broker is away."""
        if not self._cluster.up:
            return
        for stream in self._streams.values():
            if stream.takes(subject):
                stream.append(Outgoing(subject, headers, data))
        for (pattern, _), members in self._groups.items():
            reachable = [member for member in members if member.link.connected]
            if reachable and subject_matches(pattern, subject):
                chosen = reachable[0]
                members.remove(chosen)
                members.append(chosen)
                asyncio.get_running_loop().call_soon(chosen.on_event, Event(subject, headers, data))

    def join(self, group: str, listener: Listener) -> Callable[[], None]:
        """Add a member to a queue group; returns what ends its membership."""
        self.check(listener.pattern)
        members = self._groups.setdefault((listener.pattern, group), [])
        members.append(listener)

        def leave() -> None:
            if listener in members:
                members.remove(listener)

        return leave

    def durable(self, stream: str, subject: str, name: str) -> MemoryConsumer:
        """A durable of a stream, made if it isn't there."""
        self.check(subject)
        found = self._streams.get(stream)
        if found is None:
            raise BrokerError(f'there is no stream "{stream}" to take "{subject}" from')
        if name not in found.durables:
            cluster = self._cluster
            owed = MemoryStream(subjects=(subject,), now=cluster.now, call_later=cluster.call_later)
            consumer = MemoryConsumer(
                owed,
                filters=(subject,),
                max_ack_pending=_MAX_ACK_PENDING,
                ack_wait=cluster.ack_wait.total_seconds(),
                call_later=cluster.call_later,
            )
            found.durables[name] = (owed, consumer)
        return found.durables[name][1]

    def check(self, subject: str) -> None:
        """Refuse what is forbidden."""
        if subject in self.forbidden:
            raise PermissionMissing(f'this user may not subscribe to "{subject}"', subject)

    def serve(self) -> None:
        """Hand out what waits for somebody to pull."""
        for stream in self._streams.values():
            for _, consumer in stream.durables.values():
                consumer.serve()
