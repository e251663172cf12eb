"""The timetable of a schedule's record: `Every` on its grid, cron by the search that follows the broker's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Final

from jetjobs._core.cron import CronLine, cron_line
from jetjobs._core.intervals import IntervalTimetable, Timetable
from jetjobs._core.retry import sooner
from jetjobs._core.schedule_record import ScheduleRecord

_MOMENT: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class CronTimetable:
    """The instants of a cron line, each found by a search."""

    line: CronLine

    def next_after(self, at: datetime) -> datetime | None:
        """The next instant, strictly later; `None` when five years have none."""
        found = self.line.next_after(at)
        return None if found is None else found.astimezone(UTC)

    def last_before(self, at: datetime, not_after: datetime | None = None) -> datetime | None:
        """The last instant strictly earlier, and not after `not_after`."""
        return self.line.previous_before(at, not_after=not_after).astimezone(UTC)

    def between(self, start: datetime, end: datetime, limit: int) -> Sequence[datetime]:
        """The first `limit` instants in (start, end]."""
        return tuple(
            at.astimezone(UTC) for at in islice(takewhile(lambda at: at <= end, self.line.after(start)), limit)
        )


def timetable_of(schedule: ScheduleRecord) -> Timetable:
    """When the schedule fires.

    Raises:
        ScheduleError: its line means nothing here, though it did where it was written.
        ZoneInfoNotFoundError: this machine doesn't know its zone.
    """
    if schedule.interval is not None:
        return IntervalTimetable(schedule.interval, schedule.anchor)
    return CronTimetable(cron_line(schedule.line, schedule.timezone))


def broker_line(schedule: ScheduleRecord) -> str:
    """The schedule as the broker takes it.

    >>> broker_line(ScheduleRecord("s", "s", "m", "j", "every", "20s", timedelta(seconds=20)))
    '@every 20s'
    """
    if schedule.interval is not None:
        return f"@every {schedule.interval // timedelta(seconds=1)}s"
    return cron_line(schedule.line, schedule.timezone).broker_text


def within(schedule: ScheduleRecord, start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The window (start, end] cut to what the schedule's `start_at` and `end_at` leave of it."""
    if schedule.start_at is not None:
        start = max(start, sooner(schedule.start_at, _MOMENT))
    if schedule.end_at is not None:
        end = min(end, sooner(schedule.end_at, _MOMENT))
    return start, end


def next_occurrence(schedule: ScheduleRecord, timetable: Timetable) -> datetime | None:
    """The first occurrence that isn't decided yet; `None` when none will come."""
    start, end = within(schedule, schedule.cursor, datetime.max.replace(tzinfo=UTC))
    # From the last tick on, not from the cursor: near a change of the clocks the broker's chain depends on its start.
    found = timetable.next_after(schedule.last_occurrence or start)
    if found is not None and found <= start:
        found = timetable.next_after(start)
    return found if found is not None and found <= end else None
