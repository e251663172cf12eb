"""A host's descriptions of its jobs in the catalog, and what follows where another host's description stands.

Several releases may describe the same job; `rollout` says which of them counts. All hosts go by that one where it
concerns them together: the limit of the job's consumer. What another host's word forbids now is tried again while this
host lives: without releases a rollout is complete when the last old host has gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jetjobs._core.rollout import why_it_stands
from jetjobs._engine.tasks import in_batches
from jetjobs._log import get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetjobs._core.descriptors import JobDescriptor
    from jetjobs._core.models import JobAddress
    from jetjobs._engine.engine import Engine

log = get_logger("jetjobs.engine")

AGAIN_EVERY: Final = 5.0


class Describing:
    """Describes one host's jobs. `limits` holds the limit of each as the description that stands declares it."""

    interval = AGAIN_EVERY

    def __init__(self, engine: Engine, descriptors: Sequence[JobDescriptor]) -> None:
        self._engine = engine
        self._mine = {descriptor.address: descriptor for descriptor in descriptors}
        self.limits = {address: descriptor.max_concurrency for address, descriptor in self._mine.items()}
        self._waiting: set[JobAddress] = set()  # another host's word stands there, for as long as that host lives
        self._warned: set[tuple[JobAddress, str]] = set()
        self._looked_at = -1

    async def describe(self) -> list[JobAddress]:
        """Publish what may be published, then `look`."""
        catalog, me = self._engine.backend.catalog, self._engine.host_id
        living = {host.host_id for host in await catalog.hosts()} - {me}
        await in_batches(catalog.describe(descriptor, living=living) for descriptor in self._mine.values())
        return await self.look()

    async def look(self) -> list[JobAddress]:
        """Read which descriptions stand; the jobs whose limit is another one by that than it was."""
        catalog = self._engine.backend.catalog
        standing = {found.address: found for found in await catalog.jobs()}
        return [address for address, mine in self._mine.items() if self._note(mine, standing.get(address, mine))]

    async def one_pass(self) -> list[JobAddress]:
        """Describe again, if there is anything to wait for, or to bring back."""
        return await self.describe() if self._waiting or await self._one_is_gone() else []

    async def _one_is_gone(self) -> bool:
        """Whether the next description in turn is missing: removed by somebody, or lost with the broker's storage.

        Nobody can call a job without one. One in turn is enough to notice the loss of all, and costs one request.
        """
        if not self._mine:
            return False
        self._looked_at = (self._looked_at + 1) % len(self._mine)
        address = list(self._mine)[self._looked_at]
        return await self._engine.backend.catalog.job(address) is None

    def _note(self, mine: JobDescriptor, stands: JobDescriptor) -> bool:
        """Note which description counts; True when the limit has changed with it."""
        address, why = mine.address, why_it_stands(mine, stands)
        if why is None:
            self._waiting.discard(address)
        else:
            if mine.version is None and stands.version is None:
                self._waiting.add(address)
            self._warn(mine, stands, why)
        before, self.limits[address] = self.limits[address], stands.max_concurrency
        return before != stands.max_concurrency

    def _warn(self, mine: JobDescriptor, stands: JobDescriptor, why: str) -> None:
        if (mine.address, why) not in self._warned:
            self._warned.add((mine.address, why))
            said = {"mine": mine.max_concurrency, "max_concurrency": stands.max_concurrency}
            log.warning("job_description_stands", job=str(mine.address), reason=why, **said)
