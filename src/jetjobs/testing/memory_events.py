"""The messages of other services in memory: subjects with queue groups, and streams that keep what passes by.

One `MemoryEvents` is shared by all connections of a `MemoryCluster`, across projects, as subjects are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from jetjobs._core.events import Event
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import NOTHING
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


class _EventStream:
    """A user's stream. Every durable has a copy of what it is owed, because an ack takes nothing from the others."""

    def __init__(self, cluster: MemoryCluster, subjects: tuple[str, ...]) -> None:
        self._cluster = cluster
        self._subjects = subjects
        self._kept: list[tuple[datetime, Outgoing]] = []
        self._durables: dict[str, tuple[MemoryStream, MemoryConsumer]] = {}
        self._storing_at = cluster.now()
        self.removed = False

    def takes(self, subject: str) -> bool:
        return not self.removed and any(subject_matches(pattern, subject) for pattern in self._subjects)

    def append(self, message: Outgoing) -> None:
        self._kept.append((self._cluster.now(), message))
        for owed, _ in self._durables.values():
            self._owe(owed, len(self._kept))

    def durable(self, subject: str, name: str, since: datetime) -> MemoryConsumer:
        if name not in self._durables:
            cluster = self._cluster
            owed = MemoryStream(subjects=(subject,), now=lambda: self._storing_at, call_later=cluster.call_later)
            for sequence, (at, _) in enumerate(self._kept, 1):
                if at >= since:
                    self._owe(owed, sequence)
            consumer = MemoryConsumer(
                owed,
                filters=(subject,),
                max_ack_pending=_MAX_ACK_PENDING,
                ack_wait=cluster.ack_wait.total_seconds(),
                call_later=cluster.call_later,
            )
            self._durables[name] = (owed, consumer)
        return self._durables[name][1]

    def serve(self) -> None:
        for _, consumer in self._durables.values():
            consumer.serve()

    def remove(self) -> None:
        self.removed = True
        self._kept.clear()
        for owed, _ in self._durables.values():
            for message in list(owed.matching(">")):
                owed.remove(message.sequence)

    def _owe(self, owed: MemoryStream, sequence: int) -> None:
        """Put a message into a durable's copy, with the place and time it has in the stream."""
        at, message = self._kept[sequence - 1]
        if owed.takes(message.subject):
            self._storing_at, owed.last_sequence = at, sequence - 1
            owed.store(message)


class MemoryEvents:
    """Subjects and streams outside of all projects. `forbidden` holds subjects that nobody may hear or take."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.forbidden: set[str] = set()
        self._cluster = cluster
        self._groups: dict[tuple[str, str], list[Listener]] = {}
        self._streams: dict[str, _EventStream] = {}
        self._asked_at: dict[str, datetime] = {}

    def add_stream(self, name: str, *subjects: str) -> None:
        """Have a stream keep what is published on its subjects from now on."""
        self._streams.setdefault(name, _EventStream(self._cluster, subjects)).removed = False

    def remove_stream(self, name: str) -> None:
        """Remove a stream with all it keeps. When it is added again, its durables are there again."""
        self._streams[name].remove()

    def missing(self, name: str) -> str | None:
        """That a stream isn't there, in words, or `None`."""
        found = self._streams.get(name)
        return f'there is no stream "{name}"' if found is None or found.removed else None

    def publish(self, subject: str, data: bytes = b"", headers: Mapping[str, str] = NOTHING) -> None:
        """Publish as another service does; lost to everybody while the broker is away."""
        if not self._cluster.up:
            return
        for stream in self._streams.values():
            if stream.takes(subject):
                stream.append(Outgoing(subject, headers, data))
        for (pattern, _), members in self._groups.items():
            reachable = [member for member in members if member.link.connected]
            if reachable and pattern not in self.forbidden and subject_matches(pattern, subject):
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
        since = self._asked_at.setdefault(name, self._cluster.now())
        problem = self.missing(stream)
        if problem is not None:
            raise BrokerError(f'{problem} to take "{subject}" from')
        return self._streams[stream].durable(subject, name, since)

    def check(self, subject: str) -> None:
        """Refuse what is forbidden."""
        problem = self.refusal(subject)
        if problem is not None:
            raise PermissionMissing(problem, subject)

    def refusal(self, subject: str) -> str | None:
        """That a subject is forbidden, in words, or `None`."""
        return f'this user may not subscribe to "{subject}"' if subject in self.forbidden else None

    def serve(self) -> None:
        """Hand out what waits for somebody to pull."""
        for stream in self._streams.values():
            stream.serve()
