"""One project's ports over a connection to a broker in memory."""

from __future__ import annotations

import asyncio

from jetjobs._ports import Backend
from jetjobs.testing.memory_broker import MemoryBroker
from jetjobs.testing.memory_cluster import MemoryCluster, MemoryLink
from jetjobs.testing.memory_event_source import MemoryEventSource
from jetjobs.testing.memory_schedules import MemoryScheduleStore
from jetjobs.testing.memory_stores import MemoryCatalog, MemoryPayloadStore, MemoryRunStore


class MemoryBackend(Backend):
    """The ports, and the plug of their connection."""

    link: MemoryLink

    def __init__(self, link: MemoryLink) -> None:
        async def close() -> None:
            link.close()
            await asyncio.sleep(0)

        super().__init__(
            broker=MemoryBroker(link),
            runs=MemoryRunStore(link),
            payloads=MemoryPayloadStore(link),
            catalog=MemoryCatalog(link),
            events=MemoryEventSource(link),
            schedules=MemoryScheduleStore(link),
            close=close,
        )
        object.__setattr__(self, "link", link)  # not one of the frozen fields

    def cut(self) -> None:
        """Let nothing in or out of this connection until `heal`."""
        self.link.cut()

    def heal(self) -> None:
        """Reconnect."""
        self.link.heal()


def memory_backend(cluster: MemoryCluster | None = None, project: str = "test") -> MemoryBackend:
    """A new connection to a project of a broker in memory; without `cluster`, of one made for it alone.

    Give several hosts one cluster and they share its jobs.
    """
    return MemoryBackend((cluster if cluster is not None else MemoryCluster()).connect(project))
