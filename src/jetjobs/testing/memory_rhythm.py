"""When a message schedule fires, by its headers: once at an instant, each so many seconds, or by a cron line."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from jetjobs._core.cron import cron_line
from jetjobs._core.intervals import IntervalTimetable, Timetable, anchor_of
from jetjobs._core.timetables import CronTimetable
from jetjobs.errors import BrokerError, ScheduleError

_LINE, _ZONE = "Nats-Schedule", "Nats-Schedule-Time-Zone"
_AT, _EVERY = "@at ", "@every "


def first_due(headers: Mapping[str, str], now: datetime) -> datetime:
    """When a schedule stored now fires first.

    Raises:
        BrokerError: the pattern means nothing to the broker.
    """
    line = headers[_LINE]
    if not line.startswith(_AT):
        return _upcoming(headers, now, now)
    try:
        due = datetime.fromisoformat(line.removeprefix(_AT))
    except ValueError:
        due = None
    if due is None or due.tzinfo is None:
        raise _invalid(line)
    return due


def next_due(headers: Mapping[str, str], due: datetime, now: datetime) -> datetime | None:
    """When a schedule that was due fires again, missed instants left out; `None` for one that fires once.

    In the schedule's own zone, as the broker writes it into the tick.
    """
    if headers[_LINE].startswith(_AT):
        return None
    upcoming = _upcoming(headers, max(due, now), due)
    return upcoming.astimezone(ZoneInfo(headers[_ZONE])) if headers.get(_ZONE, "UTC") != "UTC" else upcoming


def _upcoming(headers: Mapping[str, str], after: datetime, grid: datetime) -> datetime:
    found = _timetable(headers, grid).next_after(after)
    if found is None:
        raise _invalid(headers[_LINE])
    return found


def _timetable(headers: Mapping[str, str], grid: datetime) -> Timetable:
    line = headers[_LINE]
    if not line.startswith(_EVERY):
        try:
            return CronTimetable(cron_line(line, headers.get(_ZONE, "UTC")))
        except ScheduleError:
            raise _invalid(line) from None
    seconds = line.removeprefix(_EVERY).removesuffix("s")
    if not seconds.isdigit() or int(seconds) < 1:
        raise _invalid(line)
    return IntervalTimetable(timedelta(seconds=int(seconds)), anchor_of(grid))


def _invalid(line: str) -> BrokerError:
    return BrokerError(f"message schedules pattern is invalid: {line!r} (10189)")
