"""Descriptors of jobs in the `_jobs` bucket, presence of hosts in `_hosts`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Final, TypeVar

from jetjobs._core import names, wire
from jetjobs._core.controls import JobControl
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.models import JobAddress
from jetjobs._core.rollout import may_describe
from jetjobs._nats.bucket import Bucket
from jetjobs._nats.link import Link
from jetjobs._ports import StoredControl
from jetjobs.errors import WrongRevision

T = TypeVar("T")

# Hosts of a deployment start together; each conflict means that one of them has written.
_ATTEMPTS: Final = 20


class NatsCatalog:
    """What jobs there are, and who runs them."""

    def __init__(self, link: Link, project: str) -> None:
        self._jobs = Bucket(link, names.jobs_bucket(project))
        self._hosts = Bucket(link, names.hosts_bucket(project))

    async def describe(
        self, descriptor: JobDescriptor, *, living: Collection[str] = frozenset()
    ) -> JobDescriptor | None:
        """Publish a descriptor where the one that is there may be replaced; returns that one."""
        subject = self._jobs.subject(names.job_key(descriptor.address))
        data = wire.pack_descriptor(descriptor)
        left = _ATTEMPTS
        while True:
            entry = await self._jobs.get(subject)
            known = self._jobs.read(entry, wire.unpack_descriptor) if entry is not None else None
            if known is not None and not may_describe(descriptor, known, theirs_lives=known.host_id in living):
                return None
            try:
                await self._jobs.replace(subject, data, entry.revision if entry is not None else 0)
            except WrongRevision:
                left -= 1
                if not left:
                    raise
            else:
                return known

    async def job(self, address: JobAddress) -> JobDescriptor | None:
        """One job's descriptor."""
        entry = await self._jobs.get(self._jobs.subject(names.job_key(address)))
        return self._jobs.read(entry, wire.unpack_descriptor) if entry is not None else None

    async def jobs(self) -> list[JobDescriptor]:
        """All descriptors of the project, by module and job."""
        found = await _all(self._jobs, names.DESCRIPTOR_KEYS, wire.unpack_descriptor)
        return sorted(found, key=lambda descriptor: descriptor.address)

    async def control(self, address: JobAddress) -> StoredControl | None:
        """What people ordered for a job, as the leader has it; what can't be read counts as nothing ordered yet."""
        entry = await self._jobs.get(self._jobs.subject(names.control_key(address)))
        if entry is None:
            return None
        found = self._jobs.read(entry, wire.unpack_control)
        return StoredControl(found or JobControl(*address), entry.revision)

    async def controls(self) -> list[StoredControl]:
        """All orders of the project, by module and job."""
        entries = await self._jobs.entries(self._jobs.subject(names.CONTROL_KEYS))
        found = [(self._jobs.read(entry, wire.unpack_control), entry.revision) for entry in entries]
        read = [StoredControl(control, revision) for control, revision in found if control is not None]
        return sorted(read, key=lambda stored: stored.control.address)

    async def set_control(self, control: JobControl, revision: int) -> int:
        """Replace the orders for a job last seen at `revision` (0: none); returns the new revision."""
        subject = self._jobs.subject(names.control_key(control.address))
        return await self._jobs.replace(subject, wire.pack_control(control), revision)

    async def say(self, presence: HostPresence, ttl: timedelta) -> None:
        """Say that a host lives; the entry goes by itself after `ttl`."""
        await self._hosts.put(self._host(presence.host_id), wire.pack_presence(presence), ttl=ttl)

    async def leave(self, host_id: str) -> None:
        """Remove a host's entry."""
        await self._hosts.remove(self._host(host_id))

    async def hosts(self) -> Sequence[HostPresence]:
        """All hosts that said so within their TTL, by id."""
        found = await _all(self._hosts, "*", wire.unpack_presence)
        return sorted(found, key=lambda presence: presence.host_id)

    async def lease(self, name: str, holder: str, ttl: timedelta) -> bool:
        """Take a lease that nobody has; says whether it is this holder's now."""
        try:
            await self._hosts.create(self._hosts.subject(names.lease_key(name)), holder.encode(), ttl=ttl)
        except WrongRevision:
            return False
        return True

    def _host(self, host_id: str) -> str:
        return self._hosts.subject(names.host_key(host_id))


async def _all(bucket: Bucket, keys: str, unpack: Callable[[bytes], T]) -> list[T]:
    found = (bucket.read(entry, unpack) for entry in await bucket.entries(bucket.subject(keys)))
    return [value for value in found if value is not None]
