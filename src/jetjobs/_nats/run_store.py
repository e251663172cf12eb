"""Run records in the runs bucket.

`create` and `update` are two of the four broker operations a run costs: no coroutine of its own stands between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import aclosing
from datetime import timedelta
from typing import Final

from jetjobs._core import names, wire
from jetjobs._core.glance import Wanted, glance
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._nats.bucket import Bucket
from jetjobs._nats.contents import holding
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.pages import EVERYTHING, Entry, entry_of
from jetjobs._ports import Holding, Slice, Stored

_HEADROOM: Final = 4 * 1024  # for the headers of a write


class NatsRunStore:
    """One record per run, under `<module>.<job>.<run_id>`."""

    def __init__(self, link: Link, project: str) -> None:
        self._project = project
        self._link = link
        self._bucket = Bucket(link, names.runs_bucket(project))

    def create(self, record: RunRecord, *, ttl: timedelta | None = None) -> Awaitable[int]:
        """Store a record that must not exist yet; returns its revision."""
        return self._bucket.create(self._subject(record.run_key), self._packed(record), ttl=ttl)

    def update(self, record: RunRecord, revision: int, *, ttl: timedelta | None = None) -> Awaitable[int]:
        """Replace the record last seen at `revision`; returns the new revision. Without `ttl` it stays."""
        return self._bucket.update(self._subject(record.run_key), self._packed(record), revision, ttl=ttl)

    async def get(self, run: RunKey) -> Stored | None:
        """The record, or `None`."""
        entry = await self._bucket.get(self._subject(run))
        return _stored(entry) if entry is not None else None

    async def find(self, run_id: str) -> list[Stored]:
        """All records with this id, of whatever job."""
        subjects = await self._bucket.subjects(names.record_id_pattern(self._project, run_id))
        entries = await asyncio.gather(*(self._bucket.get(subject) for subject in subjects))
        return self._readable(entry for entry in entries if entry is not None)

    async def scan(self, job: JobAddress | None = None, *, module: str | None = None) -> AsyncIterator[Stored]:
        """All records, or a module's or a job's; one that is written meanwhile may come twice."""
        async with aclosing(self._bucket.pages(self._pattern(job, module))) as pages:
            async for page in pages:
                for stored in self._readable(page):
                    yield stored

    async def newest(
        self, job: JobAddress | None = None, *, module: str | None = None, wanted: Wanted | None = None
    ) -> AsyncIterator[Slice]:
        """The same from the last written to the first, as far as wanted."""
        async with aclosing(self._bucket.newest(self._pattern(job, module))) as parts:
            async for messages, until in parts:
                yield Slice([found for each in messages if (found := self._wanted(each, wanted)) is not None], until)

    async def written_after(
        self, revision: int, job: JobAddress | None = None, *, module: str | None = None
    ) -> AsyncIterator[Stored]:
        """Those written after a revision, in the order they were written."""
        async with aclosing(self._bucket.pages(self._pattern(job, module), revision + 1)) as pages:
            async for page in pages:
                for stored in self._readable(page):
                    yield stored

    async def delete(self, run: RunKey, revision: int) -> bool:
        """Remove a record if it is still at `revision`, leaving no marker; says whether it went."""
        return await self._bucket.remove(self._subject(run), revision)

    async def holding(self) -> Holding:
        """How much there is, in one cheap call."""
        return await holding(self._link, self._bucket.stream)

    def _subject(self, run: RunKey) -> str:
        return names.record_subject(self._project, run)

    def _pattern(self, job: JobAddress | None, module: str | None) -> str:
        return names.record_pattern(self._project, job, module) if job or module else EVERYTHING

    def _wanted(self, message: Inbound, wanted: Wanted | None) -> Stored | None:
        if not message.data or (wanted is not None and not wanted(glance(message.data))):
            return None
        return next(iter(self._readable((entry_of(message),))), None)

    def _packed(self, record: RunRecord) -> bytes:
        # A record that the server won't take could never be saved, and its run would start again and again.
        return wire.pack_record(record, min(wire.MAX_RECORD, self._link.connection.max_payload - _HEADROOM))

    def _readable(self, entries: Iterable[Entry]) -> list[Stored]:
        read = [(entry, self._bucket.read(entry, wire.unpack_record)) for entry in entries]
        return [Stored(record, entry.revision, entry.stored_at) for entry, record in read if record is not None]


def _stored(entry: Entry) -> Stored:
    return Stored(wire.unpack_record(entry.data), entry.revision, entry.stored_at)
