"""Where a cron line fires next in a zone, found the way nats-server finds it, its rough edges included.

The broker doesn't ask "which instants match?". It takes the second after the last one and, from months down
to seconds, moves forward until a field fits; whoever passes the end of a larger unit starts over from the
top. The first move also cuts the smaller fields to their start; later moves don't. Away from changes of the
clocks this is the plain meaning of the line. Near one, four things follow, which a preview must follow too:

- Days and months move on the calendar, hours and below by real time. So a time that the clocks jump over is
  passed by, and one they show twice fires twice.
- If the day starts in the jump (Santiago, Cairo, Beirut), the search goes on at 23:00 or at 01:00 instead
  of midnight, and stays at that hour from day to day: a line for earlier hours can miss that day, or a week.
- If the jump is half an hour (Lord Howe), the minutes stay at 30 while hours move, and minutes that run over
  the jump don't come by the hour again: "45 1" fires at 01:45 and, that one day, at 02:45 as well.
- What comes next thus depends on where the search starts. Follow the chain of ticks and it is the broker's.

Only here the larger moves are jumps, where no change of the clocks lies between: the same answer in microseconds.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Final

from jetjobs._core.cron_fields import Field

YEARS_AHEAD: Final = 5  # the broker's limit: a line with nothing in so many years is refused, or dropped
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BARE_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a reading of the clock on the wall
_SECOND: Final = timedelta(seconds=1)
_DAY: Final = 86_400
_LAST_YEAR: Final = 9_990  # datetime ends at 9999
_LAST_START: Final = (_LAST_YEAR - 1970) * 365 * _DAY  # some years before that, which no leap days make up for


@dataclass(frozen=True, slots=True)
class Fields:
    """The six fields of a line."""

    second: Field
    minute: Field
    hour: Field
    day: Field
    month: Field
    weekday: Field

    @property
    def either_day(self) -> bool:
        """Whether a day needs to fit only one of the two day fields: both are restricted."""
        return not (self.day.starred or self.weekday.starred)


def following(fields: Fields, zone: tzinfo, after: int) -> int | None:
    """The epoch second of the next firing after `after`, or `None` if five years have none.

    >>> from jetjobs._core.cron import cron_line
    >>> following(cron_line("0 0 29 2 *").fields, UTC, 0)  # 29 February 1972
    68169600
    """
    if after >= _LAST_START:
        return None
    start = after + 1
    found = _first(fields, zone, start)
    while found is not None and found <= after:
        # Where clocks go back in the middle of an hour (Chatham), cutting the hour can land before the change, and
        # the broker fires at once, again and again until that hour is over. No hour of that reading is in the line.
        wall = on_the_wall(start, zone)
        start += 3600 - wall.minute * 60 - wall.second
        found = _first(fields, zone, start)
    return found


def _first(fields: Fields, zone: tzinfo, start: int) -> int | None:
    search = _Search(fields, zone, start)
    last_year = min(search.wall.year + YEARS_AHEAD, _LAST_YEAR)
    while search.wall.year <= last_year:
        if search.months() or search.days() or search.hours() or search.minutes() or search.seconds():
            continue  # it ran into the next larger unit, whose field must be looked at again
        return search.at
    return None


def on_the_wall(at: int, zone: tzinfo) -> datetime:
    """What clocks of the zone show at that epoch second."""
    return (_EPOCH + timedelta(seconds=at)).astimezone(zone)


class _Search:
    """A place in time that only moves forward; each method moves one unit and tells whether it left the larger one."""

    def __init__(self, fields: Fields, zone: tzinfo, start: int) -> None:
        self.fields = fields
        self.zone = zone
        self.at = start
        self.wall = on_the_wall(start, zone)
        self.cut = False

    def months(self) -> bool:
        allowed = self.fields.month.values
        while self.wall.month not in allowed:
            if not self.cut:
                self._cut_to(self._reading(self.wall.year, self.wall.month, timedelta()))
            wall = self.wall
            year, month = (wall.year, wall.month + 1) if wall.month < 12 else (wall.year + 1, 1)
            self._forward(self._reading(year, month, _into_month(wall)))
            if self.wall.month == 1:
                return True
        return False

    def days(self) -> bool:
        while not self._day_fits():
            wall = self.wall
            if not self.cut:
                self._cut_to(self._reading(wall.year, wall.month, timedelta(days=wall.day - 1)))
                wall = self.wall
            self._forward(self._reading(wall.year, wall.month, _into_month(wall) + timedelta(days=1)))
            if self.wall.day == 1:
                return True
        return False

    def hours(self) -> bool:
        allowed = self.fields.hour.values
        while self.wall.hour not in allowed:
            if not self.cut:
                wall = self.wall
                self._cut_to(self._reading(wall.year, wall.month, timedelta(days=wall.day - 1, hours=wall.hour)))
            self._step(3600, _ahead(allowed, self.wall.hour, 24))
            if self.wall.hour == 0:
                return True
        return False

    def minutes(self) -> bool:
        allowed = self.fields.minute.values
        while self.wall.minute not in allowed:
            if not self.cut:
                self._cut_to(self.at - self.at % 60)
            self._step(60, _ahead(allowed, self.wall.minute, 60))
            if self.wall.minute == 0:
                return True
        return False

    def seconds(self) -> bool:
        allowed = self.fields.second.values
        while self.wall.second not in allowed:
            self.cut = True
            self._step(1, _ahead(allowed, self.wall.second, 60))
            if self.wall.second == 0:
                return True
        return False

    def _day_fits(self) -> bool:
        fields, wall = self.fields, self.wall
        by_date = wall.day in fields.day.values
        by_weekday = wall.isoweekday() % 7 in fields.weekday.values
        return (by_date or by_weekday) if fields.either_day else (by_date and by_weekday)

    def _step(self, unit: int, count: int) -> None:
        # Many steps at once give the same as one by one, unless the clocks change on the way.
        there = on_the_wall(self.at + unit * count, self.zone)
        if there.utcoffset() != self.wall.utcoffset():
            count = 1
            there = on_the_wall(self.at + unit, self.zone)
        self.at += unit * count
        self.wall = there

    def _cut_to(self, at: int) -> None:
        self.cut = True
        self.at = at
        self.wall = on_the_wall(at, self.zone)

    def _forward(self, at: int) -> None:
        # A zone that leaves out a whole day reads that day as the one before: the broker's search would stand
        # still for ever. Nothing to be equal to, so we go on.
        self._cut_to(at if at > self.at else self.at + _DAY)

    def _reading(self, year: int, month: int, into: timedelta) -> int:
        """The epoch second at which clocks show so long after the start of that month.

        As Go's time.Date: of a reading that comes twice, or never, one of the two neighbouring offsets is taken.
        """
        bare = (datetime(year, month, 1) + into - _BARE_EPOCH) // _SECOND  # noqa: DTZ001 - a reading, not an instant
        return bare - self._offset(bare - self._offset(bare))

    def _offset(self, at: int) -> int:
        offset = on_the_wall(at, self.zone).utcoffset()
        assert offset is not None
        return offset // _SECOND


def _into_month(wall: datetime) -> timedelta:
    return timedelta(days=wall.day - 1, hours=wall.hour, minutes=wall.minute, seconds=wall.second)


def _ahead(allowed: tuple[int, ...], value: int, end: int) -> int:
    """How many steps, one at least, to the next allowed value or to the end of the larger unit."""
    place = bisect_right(allowed, value)
    return (allowed[place] if place < len(allowed) else end) - value
