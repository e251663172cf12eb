"""What a cron line means in a zone: when it fires, next and before, exactly as nats-server has it.

The grammar of a field and its refusals are in `cron_fields`, the broker's way of searching in `cron_search`.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Final

from jetjobs._core.cron_fields import DAY, HOUR, MINUTE, MONTH, SECOND, WEEKDAY, read_field
from jetjobs._core.cron_search import Fields, following, on_the_wall
from jetjobs.errors import ScheduleError

PREDEFINED: Final = {
    "@hourly": "0 0 * * * *",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@weekly": "0 0 0 * * 0",
    "@monthly": "0 0 0 1 * *",
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
}
_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SHAPE: Final = "write 5 fields (minute hour day month weekday) or 6 fields (second first)"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_SECOND: Final = timedelta(seconds=1)
_UNITS: Final = (1, 60, 3600, 86_400)


@dataclass(frozen=True, slots=True)
class CronLine:
    """A cron line in a zone; make it with `cron_line`.

    The instants it gives are aware, with the offset the zone has then and that offset's abbreviation as a
    fixed zone. So they print as `Nats-Schedule-Next` does, and compare and subtract as instants: two of one
    `ZoneInfo` would compare by the clock on the wall, and the hour that comes twice would be equal to itself.

    Attributes:
        expression: The line as kept: 5 fields stay 5.
        timezone: Name of the zone it is read in.
        fields: What its six fields allow.
        zone: That zone's rules on this machine.
    """

    expression: str
    timezone: str
    fields: Fields
    zone: tzinfo

    @property
    def broker_text(self) -> str:
        """The line as the broker takes it: six fields, or one of the predefined names.

        >>> cron_line("0 2 * * *").broker_text
        '0 0 2 * * *'
        """
        return f"0 {self.expression}" if self.expression.count(" ") == 4 else self.expression

    def next_after(self, instant: datetime) -> datetime | None:
        """The next firing, strictly later; `None` if five years have none: the broker would drop the schedule.

        After the timestamp of a schedule message it is that schedule's first tick; after a tick, the next one.

        >>> cron_line("0 2 * * *", "Europe/Paris").next_after(datetime(2027, 7, 1, tzinfo=UTC)).isoformat()
        '2027-07-02T02:00:00+02:00'
        """
        found = following(self.fields, self.zone, _second(instant))
        return None if found is None else self._shown(found)

    def previous_before(self, instant: datetime, *, not_after: datetime | None = None) -> datetime:
        """The last firing, strictly earlier; before `Nats-Schedule-Next` it is the occurrence of that tick.

        `not_after` (the tick's own timestamp) decides between two that have the same next one, which happens
        where a change of the clocks at midnight or by half an hour makes the broker pass one by.

        >>> cron_line("0 0 29 2 *").previous_before(datetime(2027, 1, 1, tzinfo=UTC)).isoformat()
        '2024-02-29T00:00:00+00:00'
        """
        end = _second(instant, up=True)
        if not_after is not None:
            end = min(end, _second(not_after) + 1)
        return self._shown(self._last_before(end))

    def upcoming(self, start: datetime, n: int) -> list[datetime]:
        """The next n firings after `start`, fewer when the line ends.

        >>> line = cron_line("30 2 * * *", "Europe/Paris")  # on 31 October 2027 clocks go back from 3 to 2
        >>> [str(at) for at in line.upcoming(datetime(2027, 10, 30, 12, tzinfo=UTC), 3)]
        ['2027-10-31 02:30:00+02:00', '2027-10-31 02:30:00+01:00', '2027-11-01 02:30:00+01:00']
        """
        return list(islice(self.after(start), n))

    def after(self, start: datetime) -> Iterator[datetime]:
        """All firings after `start`, each found when asked for."""
        at = following(self.fields, self.zone, _second(start))
        while at is not None:
            yield self._shown(at)
            at = following(self.fields, self.zone, at)

    def _last_before(self, end: int) -> int:
        guess = self._guess(end)
        if guess is not None:
            return guess
        # The last start from which a firing before `end` is found: double the distance, then halve the doubt. There
        # is one within eight years: no line is rarer than the 29th of February.
        near, far = 1, 2
        while (found := following(self.fields, self.zone, end - far)) is None or found >= end:
            near, far = far, far * 2
        best = found
        while far - near > 1:
            middle = (near + far) // 2
            found = following(self.fields, self.zone, end - middle)
            if found is None or found >= end:
                near = middle
            else:
                best, far = found, middle
        return best

    def _guess(self, end: int) -> int | None:
        # Most lines fire each second, minute, hour or day: two searches instead of dozens.
        fields = self.fields
        for unit, field in zip(_UNITS, (fields.second, fields.minute, fields.hour, fields.day), strict=True):
            if len(field.values) > 1:
                guess = end - unit * (field.values[1] - field.values[0])
                fires = following(fields, self.zone, guess - 1) == guess
                return guess if fires and (following(fields, self.zone, guess) or end) >= end else None
        return None

    def _shown(self, at: int) -> datetime:
        wall = on_the_wall(at, self.zone)
        offset, name = wall.utcoffset(), wall.tzname()
        assert offset is not None
        return wall.replace(tzinfo=UTC if self.zone is UTC else timezone(offset, name or ""), fold=0)


@lru_cache(maxsize=4096)
def cron_line(expression: str, timezone: str = "UTC") -> CronLine:
    """The line of that expression in that zone, as checked by `check_cron` and `check_zone`.

    Raises:
        ScheduleError: the line means nothing.
        ZoneInfoNotFoundError: this machine doesn't know the zone.
    """
    kept, fields = _read(expression)
    return CronLine(kept, timezone, fields, UTC if timezone == "UTC" else zoneinfo.ZoneInfo(timezone))


def check_cron(expression: object) -> str:
    """The line as it is kept: single spaces, upper-case names, Sunday as 0; 5 fields stay 5.

    >>> check_cron("0  2 * * mon-fri,7")
    '0 2 * * MON-FRI,0'

    Raises:
        ScheduleError: it means nothing, or something the broker can't do.
    """
    return _read(expression)[0]


def _read(expression: object) -> tuple[str, Fields]:
    if not isinstance(expression, str):
        raise ScheduleError(f'a cron line is a text such as "0 2 * * *", not {expression!r}')
    text = expression.strip()
    if text.startswith("@"):
        name = _predefined(text)
        return name, _fields(PREDEFINED[name].split(), expression)
    parts = text.upper().split()
    if len(parts) not in {5, 6}:
        years = "; years can't be given" if len(parts) == 7 else ""
        raise ScheduleError(f"cron line {expression!r} has {len(parts)} fields{years}; {_SHAPE}")
    fields = _fields(parts if len(parts) == 6 else ["0", *parts], expression)
    _check_dates(expression, fields)
    texts = [each.text for each in (fields.second, fields.minute, fields.hour, fields.day, fields.month)]
    return " ".join([*texts, fields.weekday.text][-len(parts) :]), fields


def _fields(parts: list[str], expression: str) -> Fields:
    kinds = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)
    return Fields(*(read_field(part, kind, expression) for part, kind in zip(parts, kinds, strict=True)))


def _predefined(text: str) -> str:
    if text.lower() in PREDEFINED:
        return text.lower()
    if text.lower().startswith("@every"):
        raise ScheduleError(f'{text!r} is an interval; write Every("{text[6:].strip() or "30s"}")')
    known = ", ".join(PREDEFINED)
    instead = "; to do something at every start write a lifespan" if text.lower() == "@reboot" else ""
    raise ScheduleError(f"cron line {text!r} is unknown{instead}; {_SHAPE}, or one of {known}")


def _check_dates(expression: str, fields: Fields) -> None:
    """A day no month of the line has never comes, unless weekdays are named too: those are OR-ed."""
    first = fields.day.values[0]
    if not fields.either_day and first > max(_LONGEST[month - 1] for month in fields.month.values):
        raise ScheduleError(
            f"cron line {expression!r} never fires: no such month has a day {first}; "
            "write a day the month has, or other months"
        )


def _second(instant: datetime, *, up: bool = False) -> int:
    """The whole epoch second at or before the instant; at or after it with `up`."""
    since = instant - _EPOCH
    return -(-since // _SECOND) if up else since // _SECOND
