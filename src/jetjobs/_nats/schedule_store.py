"""Schedules in their bucket: a record under the id, and an entry under the name that says whose it is.

The name is written first. A crash between the two leaves a name that leads nowhere: `find` sees nothing there, and
the next `create` takes it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from jetjobs._core import names, wire
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._nats.bucket import Bucket
from jetjobs._nats.link import Link
from jetjobs._nats.pages import Entry
from jetjobs._ports import StoredSchedule
from jetjobs.errors import ScheduleNameTaken, WrongRevision

# Each conflict means that somebody else wrote the name: hosts of a deployment start together.
_ATTEMPTS: Final = 20


class NatsScheduleStore:
    """What is kept of each schedule."""

    def __init__(self, link: Link, project: str) -> None:
        self._bucket = Bucket(link, names.schedules_bucket(project))

    async def create(self, schedule: ScheduleRecord) -> int:
        """Store a schedule that must not exist yet, under its id and its name; returns its revision."""
        data = wire.pack_schedule(schedule)
        await self._take_name(schedule.name, schedule.schedule_id)
        return await self._bucket.create(self._record(schedule.schedule_id), data)

    async def update(self, schedule: ScheduleRecord, revision: int, *, ttl: timedelta | None = None) -> int:
        """Replace the schedule last seen at `revision`; returns the new revision."""
        subject = self._record(schedule.schedule_id)
        return await self._bucket.update(subject, wire.pack_schedule(schedule), revision, ttl=ttl)

    async def get(self, schedule_id: str) -> StoredSchedule | None:
        """The schedule, or `None`."""
        entry = await self._bucket.get(self._record(schedule_id))
        return _stored(entry) if entry is not None else None

    async def find(self, name: str) -> StoredSchedule | None:
        """The schedule of that name, tombstones left out."""
        entry = await self._bucket.get(self._name(name))
        return await self._holder(name, entry)

    async def all(self) -> list[StoredSchedule]:
        """All schedules by name, tombstones among them."""
        entries = await self._bucket.entries(self._bucket.subject("id.*"))
        read = [(self._bucket.read(entry, wire.unpack_schedule), entry.revision) for entry in entries]
        found = [StoredSchedule(schedule, revision) for schedule, revision in read if schedule is not None]
        return sorted(found, key=lambda stored: stored.schedule.name)

    async def delete(self, schedule_id: str, revision: int) -> bool:
        """Remove a schedule's record and name if it is still at `revision`; says whether it went."""
        stored = await self.get(schedule_id)
        if stored is None or not await self._bucket.remove(self._record(schedule_id), revision):
            return False
        entry = await self._bucket.get(self._name(stored.schedule.name))
        if entry is not None and entry.data == schedule_id.encode():
            await self._bucket.remove(entry.subject, entry.revision)
        return True

    async def _take_name(self, name: str, schedule_id: str) -> None:
        subject, data = self._name(name), schedule_id.encode()
        revision = 0  # mostly it is free, which one write finds out
        for _ in range(_ATTEMPTS):
            try:
                await self._bucket.replace(subject, data, revision)
            except WrongRevision:
                there = await self._bucket.get(subject)
                if there is not None and there.data == data:
                    return
                if await self._holder(name, there) is not None:
                    raise ScheduleNameTaken(f"there is a schedule {name} already; choose another name") from None
                revision = there.revision if there is not None else 0
            else:
                return
        raise ScheduleNameTaken(f"the name {name} is being taken by others again and again; choose another one")

    async def _holder(self, name: str, entry: Entry | None) -> StoredSchedule | None:
        """The living schedule that a name's entry leads to."""
        stored = await self.get(entry.data.decode("utf-8", "replace")) if entry is not None else None
        if stored is None or stored.schedule.name != name or stored.schedule.state is ScheduleState.DELETED:
            return None
        return stored

    def _record(self, schedule_id: str) -> str:
        return self._bucket.subject(names.schedule_key(schedule_id))

    def _name(self, name: str) -> str:
        return self._bucket.subject(names.schedule_name_key(name))


def _stored(entry: Entry) -> StoredSchedule:
    return StoredSchedule(wire.unpack_schedule(entry.data), entry.revision)
