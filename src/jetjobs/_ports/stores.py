"""Records of runs and schedules, and bodies too large for a message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from datetime import datetime, timedelta
from typing import Literal, NamedTuple, Protocol

from jetjobs._core.bodies import ClaimCheck
from jetjobs._core.glance import Wanted
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._core.schedule_record import ScheduleRecord


class Stored(NamedTuple):
    """A record as read: its revision for the next compare-and-set, and when the broker stored it."""

    record: RunRecord
    revision: int
    stored_at: datetime


class Slice(NamedTuple):
    """Some of the records of a scan from the last written to the first.

    No run still to come was made after `until`, but for those made since the scan began.
    """

    found: list[Stored]
    until: datetime


class StoredSchedule(NamedTuple):
    """A schedule as read, and its revision for the next compare-and-set."""

    schedule: ScheduleRecord
    revision: int


class Holding(NamedTuple):
    """How much a store holds: entries, and the revision of its last write. A removal is no write."""

    entries: int
    last_revision: int


class RunStore(Protocol):
    """One record per run. Reads here go to the leader, so they may decide a write."""

    def create(self, record: RunRecord, *, ttl: timedelta | None = None) -> Awaitable[int]:
        """Store a record that must not exist yet; gives its revision. `ttl` removes it by itself later.

        Raises:
            WrongRevision: there is one already.
        """
        ...

    def update(self, record: RunRecord, revision: int, *, ttl: timedelta | None = None) -> Awaitable[int]:
        """Replace the record last seen at `revision`; gives the new revision. `ttl` removes it by itself later.

        May be under way before it is awaited; await it once.

        Raises:
            WrongRevision: somebody else wrote.
        """
        ...

    async def get(self, run: RunKey) -> Stored | None:
        """The record, or `None`. Bytes that can't be read raise `PayloadInvalidError`."""
        ...

    async def find(self, run_id: str) -> list[Stored]:
        """All records with this id, of whatever job."""
        ...

    def scan(self, job: JobAddress | None = None, *, module: str | None = None) -> AsyncIterator[Stored]:
        """All records, or a module's or a job's, in no order; a page's view, may be late, may give one twice.

        Unreadable ones are left out.
        """
        ...

    def newest(
        self, job: JobAddress | None = None, *, module: str | None = None, wanted: Wanted | None = None
    ) -> AsyncIterator[Slice]:
        """The same from the last written to the first, in slices, so that whoever has enough can stop.

        One that is written again meanwhile comes at least once, perhaps as it was before.
        """
        ...

    def written_after(
        self, revision: int, job: JobAddress | None = None, *, module: str | None = None
    ) -> AsyncIterator[Stored]:
        """Those written after a revision, in the order they were written, each as it is now; may be late."""
        ...

    async def delete(self, run: RunKey, revision: int) -> bool:
        """Remove a record if it is still at `revision`, leaving no marker; says whether it went."""
        ...

    async def holding(self) -> Holding:
        """How much there is, in one cheap call."""
        ...


class ScheduleStore(Protocol):
    """One record per schedule, and an index of their names. Reads of one go to the leader."""

    async def create(self, schedule: ScheduleRecord) -> int:
        """Store a schedule that must not exist yet, under its id and its name; returns its revision.

        The name is taken first. What held it and is deleted, or was never finished, gives it up.

        Raises:
            WrongRevision: there is one of this id already.
            ScheduleNameTaken: another schedule has the name.
        """
        ...

    async def update(self, schedule: ScheduleRecord, revision: int, *, ttl: timedelta | None = None) -> int:
        """Replace the schedule last seen at `revision`; returns the new revision. Its name stays.

        `ttl` removes it by itself later.

        Raises:
            WrongRevision: somebody else wrote.
        """
        ...

    async def get(self, schedule_id: str) -> StoredSchedule | None:
        """The schedule, or `None`. Bytes that can't be read raise `PayloadInvalidError`."""
        ...

    async def find(self, name: str) -> StoredSchedule | None:
        """The schedule of that name, tombstones left out."""
        ...

    async def all(self) -> list[StoredSchedule]:
        """All schedules by name, tombstones among them; a page's view, may be late. Unreadable ones are left out."""
        ...

    async def delete(self, schedule_id: str, revision: int) -> bool:
        """Remove a schedule's record and name if it is still at `revision`; says whether it went."""
        ...


class PayloadStore(Protocol):
    """Bodies too large for a message."""

    async def put(self, run_id: str, direction: Literal["in", "out"], name: str, data: bytes) -> ClaimCheck:
        """Store bytes in chunks; the same name and bytes again is harmless. `name` is a digest or a claim."""
        ...

    async def get(self, claim: ClaimCheck) -> bytes:
        """The bytes, checked against their digest.

        Raises:
            PayloadInvalidError: gone, incomplete or changed.
        """
        ...

    async def purge(self, run_id: str) -> None:
        """Remove everything stored for a run."""
        ...

    async def holding(self) -> Holding:
        """How much there is, in one cheap call; an entry is a chunk."""
        ...

    def run_ids(self) -> AsyncIterator[str]:
        """The ids of all runs for which something is stored, in no order, perhaps twice; no bytes are read."""
        ...

    async def newest(self, run_id: str) -> datetime | None:
        """When the last chunk of a run was stored; `None` when there is none."""
        ...
