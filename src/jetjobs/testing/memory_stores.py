"""The `RunStore`, `PayloadStore` and `Catalog` ports over a `MemoryCluster`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

from jetjobs._core import payload_subjects, wire
from jetjobs._core.bodies import MAX_PAYLOAD, ClaimCheck
from jetjobs._core.controls import JobControl
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.glance import Wanted, glance
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._core.rollout import may_describe
from jetjobs._ports import Holding, Slice, Stored, StoredControl
from jetjobs.errors import PayloadInvalidError, PayloadTooLargeError, WrongRevision
from jetjobs.testing.memory_cluster import MemoryLink
from jetjobs.testing.memory_table import Row

_PAGE = 100
_LATEST = datetime.max.replace(tzinfo=UTC)
_CHUNK = 512 * 1024


class MemoryRunStore:
    """Records as bytes, so that what can't be stored is found out here too."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link
        self._table = link.project.runs

    async def create(self, record: RunRecord, *, ttl: timedelta | None = None) -> int:
        """Store a record that must not exist yet; returns its revision."""
        data = wire.pack_record(record)
        return await self._link.call(lambda: self._table.put(record.run_key, data, expected=0, ttl=ttl))

    async def update(self, record: RunRecord, revision: int, *, ttl: timedelta | None = None) -> int:
        """Replace the record last seen at `revision`; returns the new revision."""
        data = wire.pack_record(record)
        return await self._link.call(lambda: self._table.put(record.run_key, data, expected=revision, ttl=ttl))

    async def get(self, run: RunKey) -> Stored | None:
        """The record, or `None`."""
        row = await self._link.call(lambda: self._table.get(run))
        return _stored(row) if row is not None else None

    async def find(self, run_id: str) -> list[Stored]:
        """All records with this id, of whatever job."""
        rows = await self._link.call(lambda: [row for key, row in self._table.items() if key.run_id == run_id])
        return _readable(rows)

    async def scan(self, job: JobAddress | None = None, *, module: str | None = None) -> AsyncIterator[Stored]:
        """All records, or a module's or a job's; each page is read when it is reached."""
        keys = await self._link.call(lambda: [key for key, _ in self._table.items() if _within(key, job, module)])
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            rows = await self._link.call(lambda page=page: [self._table.get(key) for key in page])
            for stored in _readable([row for row in rows if row is not None]):
                yield stored

    async def newest(
        self, job: JobAddress | None = None, *, module: str | None = None, wanted: Wanted | None = None
    ) -> AsyncIterator[Slice]:
        """The same from the last written to the first, as far as wanted."""
        keys = [key for key, _ in reversed(await self._written(job, module))]
        for start in range(0, len(keys), _PAGE):
            page = keys[start : start + _PAGE]
            rows = await self._link.call(lambda page=page: [self._table.get(key) for key in page])
            there = [row for row in rows if row is not None]
            found = _readable([row for row in there if wanted is None or wanted(glance(row.value))])
            yield Slice(found, there[-1].stored_at if there else _LATEST)

    async def written_after(
        self, revision: int, job: JobAddress | None = None, *, module: str | None = None
    ) -> AsyncIterator[Stored]:
        """Those written after a revision, in the order they were written."""
        rows = [row for _, row in await self._written(job, module) if row.revision > revision]
        for stored in _readable(rows):
            yield stored

    async def _written(self, job: JobAddress | None, module: str | None) -> list[tuple[RunKey, Row[bytes]]]:
        rows = await self._link.call(self._table.items)
        return sorted([(key, row) for key, row in rows if _within(key, job, module)], key=lambda item: item[1].revision)

    async def delete(self, run: RunKey, revision: int) -> bool:
        """Remove a record if it is still at `revision`; says whether it went."""
        return await self._link.call(lambda: self._table.remove(run, revision))

    async def holding(self) -> Holding:
        """How much there is."""
        return await self._link.call(lambda: self._table.holding)


def _within(key: RunKey, job: JobAddress | None, module: str | None) -> bool:
    return (job is None or key.address == job) and (module is None or key.module == module)


def _stored(row: Row[bytes]) -> Stored:
    return Stored(wire.unpack_record(row.value), row.revision, row.stored_at)


def _readable(rows: list[Row[bytes]]) -> list[Stored]:
    found: list[Stored] = []
    for row in rows:
        try:
            found.append(_stored(row))
        except PayloadInvalidError:
            continue
    return found


class MemoryPayloadStore:
    """Large bodies in chunks."""

    def __init__(self, link: MemoryLink, *, max_payload: int = MAX_PAYLOAD) -> None:
        self._link = link
        self._chunks = link.project.chunks
        self._max_payload = max_payload

    async def put(self, run_id: str, direction: Literal["in", "out"], name: str, data: bytes) -> ClaimCheck:
        """Store bytes in chunks; the same name and bytes again is harmless."""
        if len(data) > self._max_payload:
            raise PayloadTooLargeError(f"{len(data)} bytes, and max_payload allows {self._max_payload}")
        subject = payload_subjects.payload_subject(self._link.project.name, run_id, direction, name)
        pieces = [data[start : start + _CHUNK] for start in range(0, len(data), _CHUNK)] or [b""]

        def keep() -> None:
            for number, piece in enumerate(pieces):
                if self._chunks.get(f"{subject}.{number}") is None:
                    self._chunks.put(f"{subject}.{number}", piece)

        await self._link.call(keep)
        return ClaimCheck(subject, len(pieces), len(data), hashlib.sha256(data).hexdigest())

    async def get(self, claim: ClaimCheck) -> bytes:
        """The bytes, checked against their digest."""
        rows = await self._link.call(
            lambda: [self._chunks.get(f"{claim.subject}.{number}") for number in range(claim.chunks)]
        )
        pieces = [None if row is None else row.value for row in rows]
        data = b"".join(piece for piece in pieces if piece is not None)
        if None in pieces or len(data) != claim.size or hashlib.sha256(data).hexdigest() != claim.sha256:
            raise PayloadInvalidError(f"what was stored at {claim.subject} is gone, incomplete or changed")
        return data

    async def purge(self, run_id: str) -> None:
        """Remove everything stored for a run."""

        def drop() -> None:
            for subject, _ in self._of(run_id):
                self._chunks.remove(subject)

        await self._link.call(drop)

    async def holding(self) -> Holding:
        """How much there is."""
        return await self._link.call(lambda: self._chunks.holding)

    async def run_ids(self) -> AsyncIterator[str]:
        """The ids of all runs for which something is stored."""
        for subject, _ in await self._link.call(self._chunks.items):
            yield payload_subjects.payload_run_id(subject)

    async def newest(self, run_id: str) -> datetime | None:
        """When the last chunk of a run was stored."""
        rows = await self._link.call(lambda: self._of(run_id))
        return max((row.stored_at for _, row in rows), default=None)

    def _of(self, run_id: str) -> list[tuple[str, Row[bytes]]]:
        prefix = payload_subjects.payload_pattern(self._link.project.name, run_id).removesuffix(">")
        return [(subject, row) for subject, row in self._chunks.items() if subject.startswith(prefix)]


class MemoryCatalog:
    """Descriptors and presence."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link
        self._jobs = link.project.jobs
        self._controls = link.project.controls
        self._hosts = link.project.hosts
        self._leases = link.project.leases

    async def describe(
        self, descriptor: JobDescriptor, *, living: Collection[str] = frozenset()
    ) -> JobDescriptor | None:
        """Publish a descriptor where the one that is there may be replaced; returns that one."""

        def publish() -> JobDescriptor | None:
            row = self._jobs.get(descriptor.address)
            if row is not None and not may_describe(descriptor, row.value, theirs_lives=row.value.host_id in living):
                return None
            self._jobs.put(descriptor.address, descriptor)
            return row.value if row is not None else None

        return await self._link.call(publish)

    async def job(self, address: JobAddress) -> JobDescriptor | None:
        """One job's descriptor."""
        row = await self._link.call(lambda: self._jobs.get(address))
        return row.value if row is not None else None

    async def jobs(self) -> list[JobDescriptor]:
        """All descriptors of the project, by module and job."""
        rows = await self._link.call(self._jobs.items)
        return [row.value for _, row in sorted(rows, key=lambda item: item[0])]

    async def control(self, address: JobAddress) -> StoredControl | None:
        """What people ordered for a job."""
        row = await self._link.call(lambda: self._controls.get(address))
        return StoredControl(wire.unpack_control(row.value), row.revision) if row is not None else None

    async def controls(self) -> list[StoredControl]:
        """All orders of the project, by module and job."""
        rows = await self._link.call(self._controls.items)
        found = [StoredControl(wire.unpack_control(row.value), row.revision) for _, row in rows]
        return sorted(found, key=lambda stored: stored.control.address)

    async def set_control(self, control: JobControl, revision: int) -> int:
        """Replace the orders for a job last seen at `revision` (0: none); returns the new revision."""
        data = wire.pack_control(control)
        return await self._link.call(lambda: self._controls.put(control.address, data, expected=revision))

    async def say(self, presence: HostPresence, ttl: timedelta) -> None:
        """Say that a host lives; the entry goes by itself after `ttl`."""
        await self._link.call(lambda: self._hosts.put(presence.host_id, presence, ttl=ttl))

    async def leave(self, host_id: str) -> None:
        """Remove a host's entry."""
        await self._link.call(lambda: self._hosts.remove(host_id))

    async def hosts(self) -> Sequence[HostPresence]:
        """All hosts that said so within their TTL."""
        rows = await self._link.call(self._hosts.items)
        return [row.value for _, row in sorted(rows, key=lambda item: item[0])]

    async def lease(self, name: str, holder: str, ttl: timedelta) -> bool:
        """Take a lease that nobody has; says whether it is this holder's now."""
        try:
            await self._link.call(lambda: self._leases.put(name, holder, expected=0, ttl=ttl))
        except WrongRevision:
            return False
        return True
