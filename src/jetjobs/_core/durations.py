"""Spans and instants as people write them, turned into `timedelta` and aware UTC `datetime`, or refused."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from jetjobs.errors import ConfigError

DurationLike = timedelta | float | str
"""A span of time: a `timedelta`, a number of seconds, or a text such as `"250ms"`, `"30s"`, `"5m"`, `"2h"`, `"1d"`,
`"1h30m"`.
"""

InstantLike = datetime | float
"""An instant: a `datetime` with a time zone, or seconds since 1970. A naive `datetime` is refused."""

_UNITS: Final = {"d": 86_400_000_000, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000}
_TEXT: Final = re.compile("".join(rf"(?:([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?){unit})?" for unit in _UNITS), re.ASCII)
_WRITE: Final = 'write a timedelta, a number of seconds, or a text as "250ms", "30s", "5m", "2h", "1d", "1h30m"'


def duration(value: object, what: str) -> timedelta:
    """The span a user wrote; zero is one.

    >>> duration("1h30m", "timeout")
    datetime.timedelta(seconds=5400)

    Raises:
        ConfigError: it isn't a span, or a negative one; names `what`.
    """
    try:
        span = _span(value)
    except (OverflowError, ValueError) as error:
        raise ConfigError(f"{what}: {_shown(value)} is no span of time that can be kept; {_WRITE}") from error
    if span is None:
        raise ConfigError(f"{what}: {_shown(value)} is not a duration; {_WRITE}")
    if span < timedelta(0):
        raise ConfigError(f"{what}: {_shown(value)} is negative; {_WRITE}")
    return span


def optional_duration(value: object, what: str) -> timedelta | None:
    """The same, with `None` for `None`."""
    return None if value is None else duration(value, what)


# The server counts lifetimes in nanoseconds of 64 bits, 292 years, and refuses a write with a longer one.
_LONGEST_LIFETIME: Final = 36_500 * 86_400


def lifetime_seconds(ttl: timedelta) -> int:
    """The whole seconds for which the broker keeps an entry that is to go by itself: a part of one counts as one.

    >>> lifetime_seconds(timedelta(milliseconds=1200)), lifetime_seconds(timedelta(0))
    (2, 1)
    """
    seconds = ttl.days * 86_400 + ttl.seconds + (ttl.microseconds > 0)
    return max(1, min(seconds, _LONGEST_LIFETIME))


def instant(value: object, what: str) -> datetime:
    """The instant a user wrote, as an aware datetime or in epoch seconds, in UTC.

    Raises:
        ConfigError: it isn't one, or a datetime without a zone, which would mean something else on each machine.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ConfigError(f"{what}: {value.isoformat()} has no zone; write it with tzinfo=UTC or a ZoneInfo")
        return _utc(value, what)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what}: {_shown(value)} is no instant; write an aware datetime or epoch seconds")
    return _utc(value, what)


def format_duration(span: timedelta) -> str:
    """The span as people write it, exact: `duration` reads it back.

    >>> format_duration(timedelta(hours=1, seconds=2.5))
    '1h2s500ms'
    """
    rest = span // timedelta(microseconds=1)
    sign, rest = ("-", -rest) if rest < 0 else ("", rest)
    parts: list[str] = []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if unit == "ms" and rest:
            parts.append(f"{count}.{rest:03}".rstrip("0") + unit)
        elif count:
            parts.append(f"{count}{unit}")
    return sign + "".join(parts) if parts else "0s"


def _span(value: object) -> timedelta | None:
    match value:
        case bool():
            return None
        case timedelta():
            return value
        case int() | float():
            return timedelta(seconds=value) if math.isfinite(value) else None
        case str():
            found = _TEXT.fullmatch(value.strip())
            return _sum(found) if found is not None and any(found.groups()) else None
        case _:
            return None


def _sum(found: re.Match[str]) -> timedelta:
    counts = zip(found.groups("0"), _UNITS.values(), strict=True)
    return timedelta(microseconds=int(sum(Decimal(count) * size for count, size in counts)))


def _utc(value: datetime | float, what: str) -> datetime:
    try:
        return value.astimezone(UTC) if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
    except (OverflowError, OSError, ValueError) as error:
        raise ConfigError(f"{what}: {_shown(value)} is outside the years 1 to 9999; epochs are in seconds") from error


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
