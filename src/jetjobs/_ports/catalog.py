"""What hosts publish, and what people order."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

from jetjobs._core.controls import JobControl
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.models import JobAddress


class StoredControl(NamedTuple):
    """What people ordered for a job, as read: its revision for the next compare-and-set."""

    control: JobControl
    revision: int


class Catalog(Protocol):
    """Descriptors of jobs and presence of hosts."""

    async def describe(
        self, descriptor: JobDescriptor, *, living: Collection[str] = frozenset()
    ) -> JobDescriptor | None:
        """Publish a descriptor where `rollout.may_describe` allows it; returns the one it replaced.

        `living` are the ids of the other hosts that are alive.
        """
        ...

    async def job(self, address: JobAddress) -> JobDescriptor | None:
        """One job's descriptor."""
        ...

    async def jobs(self) -> list[JobDescriptor]:
        """All descriptors of the project, by module and job."""
        ...

    async def control(self, address: JobAddress) -> StoredControl | None:
        """What people ordered for a job, read from the leader; `None` when nobody ever did."""
        ...

    async def controls(self) -> list[StoredControl]:
        """All orders of the project, by module and job; a page's view, may be late."""
        ...

    async def set_control(self, control: JobControl, revision: int) -> int:
        """Replace the orders for a job last seen at `revision` (0: none); returns the new revision.

        Raises:
            WrongRevision: somebody else wrote.
        """
        ...

    async def say(self, presence: HostPresence, ttl: timedelta) -> None:
        """Say that a host lives; the entry goes by itself after `ttl`."""
        ...

    async def leave(self, host_id: str) -> None:
        """Remove a host's entry."""
        ...

    async def hosts(self) -> Sequence[HostPresence]:
        """All hosts that said so within their TTL."""
        ...

    async def lease(self, name: str, holder: str, ttl: timedelta) -> bool:
        """Take a lease that nobody has; says whether it is this holder's now. It ends by itself, never sooner."""
        ...
