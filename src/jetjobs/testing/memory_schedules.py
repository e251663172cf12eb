"""The `ScheduleStore` port over a `MemoryCluster`."""

from __future__ import annotations

from datetime import timedelta

from jetjobs._core import wire
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._ports import StoredSchedule
from jetjobs.errors import PayloadInvalidError, ScheduleNameTaken
from jetjobs.testing.memory_cluster import MemoryLink
from jetjobs.testing.memory_table import Row


class MemoryScheduleStore:
    """Schedules as bytes, so that what can't be stored is found out here too."""

    def __init__(self, link: MemoryLink) -> None:
        self._link = link
        self._table = link.project.schedules
        self._names = link.project.schedule_names

    async def create(self, schedule: ScheduleRecord) -> int:
        """Store a schedule that must not exist yet, under its id and its name; returns its revision."""
        data = wire.pack_schedule(schedule)

        def store() -> int:
            holder = self._holder(schedule.name)
            if holder is not None and holder.schedule.schedule_id != schedule.schedule_id:
                raise ScheduleNameTaken(f"there is a schedule {schedule.name} already; choose another name")
            self._names.put(schedule.name, schedule.schedule_id)
            return self._table.put(schedule.schedule_id, data, expected=0)

        return await self._link.call(store)

    async def update(self, schedule: ScheduleRecord, revision: int, *, ttl: timedelta | None = None) -> int:
        """Replace the schedule last seen at `revision`; returns the new revision."""
        data = wire.pack_schedule(schedule)
        return await self._link.call(lambda: self._table.put(schedule.schedule_id, data, expected=revision, ttl=ttl))

    async def get(self, schedule_id: str) -> StoredSchedule | None:
        """The schedule, or `None`."""
        row = await self._link.call(lambda: self._table.get(schedule_id))
        return _stored(row) if row is not None else None

    async def find(self, name: str) -> StoredSchedule | None:
        """The schedule of that name, tombstones left out."""
        return await self._link.call(lambda: self._holder(name))

    async def all(self) -> list[StoredSchedule]:
        """All schedules by name, tombstones among them."""
        rows = await self._link.call(self._table.items)
        found = [stored for _, row in rows if (stored := _readable(row)) is not None]
        return sorted(found, key=lambda stored: stored.schedule.name)

    async def delete(self, schedule_id: str, revision: int) -> bool:
        """Remove a schedule's record and name if it is still at `revision`; says whether it went."""

        def remove() -> bool:
            row = self._table.get(schedule_id)
            if row is None or not self._table.remove(schedule_id, revision):
                return False
            name = _stored(row).schedule.name
            index = self._names.get(name)
            if index is not None and index.value == schedule_id:
                self._names.remove(name)
            return True

        return await self._link.call(remove)

    def _holder(self, name: str) -> StoredSchedule | None:
        index = self._names.get(name)
        row = self._table.get(index.value) if index is not None else None
        stored = _readable(row) if row is not None else None
        if stored is None or stored.schedule.name != name or stored.schedule.state is ScheduleState.DELETED:
            return None
        return stored


def _stored(row: Row[bytes]) -> StoredSchedule:
    return StoredSchedule(wire.unpack_schedule(row.value), row.revision)


def _readable(row: Row[bytes]) -> StoredSchedule | None:
    try:
        return _stored(row)
    except PayloadInvalidError:
        return None
