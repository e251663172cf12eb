"""The values without parts: how each is stored in msgpack, what is refused, and how extension data is read back.

Writers raise `ValueError` with a reason; `codec` knows the path and turns it into a `PayloadError`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack

DATETIME, DATE, TIMEDELTA, DECIMAL, UUID_, SET = range(1, 7)

_LIMIT: Final = 1 << 63
_MICROSECOND: Final = timedelta(microseconds=1)
_DATETIME_TEXT: Final = re.compile(r"([^\[\]]+)(?:\[([^\[\]]+)\])?")
_NO_NUMBER: Final = "JSON and databases know no such number; store None or a str"


def write_int(value: int) -> int:
    """The int itself, if 64 bits hold it."""
    if not -_LIMIT <= value < 2 * _LIMIT:
        raise ValueError("it takes more than 64 bits; store it as a str or Decimal")
    return int.__index__(value)


def write_float(value: float) -> float:
    """The float itself, if it is finite."""
    if not math.isfinite(value):
        raise ValueError(_NO_NUMBER)
    return float.__float__(value)


def write_str(value: str) -> str:
    """The str itself, if UTF-8 can spell it."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError("half a character has no UTF-8; repair the text first") from error
    return str.__str__(value)


def write_datetime(value: datetime) -> str:
    """The datetime as text with its offset and the name of its zone, for `read_datetime`.

    >>> write_datetime(datetime(2026, 3, 1, 12, tzinfo=ZoneInfo("Europe/Paris")))
    '2026-03-01T12:00:00+01:00[Europe/Paris]'
    """
    text = value.isoformat()
    zone = value.tzinfo
    if isinstance(zone, ZoneInfo) and zone.key:
        text += f"[{zone.key}]"
    if type(value) is not datetime:
        read_datetime(text)  # a subclass may write anything, as pandas' NaT does
    return text


def read_datetime(text: str) -> datetime:
    """The datetime `write_datetime` wrote. A zone this machine doesn't know leaves the offset.

    >>> read_datetime("2026-03-01T12:00:00+01:00[Europe/Paris]").tzname()
    'CET'
    """
    found = _DATETIME_TEXT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:60]!a} is no datetime")
    value = datetime.fromisoformat(found[1])
    zone = _zone(found[2])
    if zone is None or value.tzinfo is None:
        return value
    for fold in (0, 1):
        local = value.replace(tzinfo=zone, fold=fold)
        if local.utcoffset() == value.utcoffset():
            return local
    return value.astimezone(zone)  # the zone's rules changed since: the instant counts


def _zone(name: str | None) -> ZoneInfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, LookupError, OSError):
        return None


def write_timedelta(value: timedelta) -> str:
    """The span in decimal seconds.

    >>> write_timedelta(timedelta(seconds=-1.5))
    '-1.500000'
    """
    count = value // _MICROSECOND
    whole, rest = divmod(abs(count), 1_000_000)
    return f"{'-' if count < 0 else ''}{whole}.{rest:06}"


def read_timedelta(text: str) -> timedelta:
    """The span `write_timedelta` wrote."""
    whole, _, rest = text.partition(".")
    if len(rest) != 6:
        raise ValueError(f"{text[:60]!a} is no span")
    return timedelta(microseconds=int(whole + rest))


def write_decimal(value: Decimal) -> str:
    """The number's text, if it is finite."""
    if not value.is_finite():
        raise ValueError(_NO_NUMBER)
    return str(value)


def read_decimal(text: str) -> Decimal:
    """The number `write_decimal` wrote."""
    value = Decimal(text)
    if not value.is_finite():
        raise ValueError(f"{text[:60]!a} is no number")
    return value


# The order matters where a value is a subclass of two: a datetime is a date.
WRITERS: Final[dict[type, Callable[[Any], object]]] = {
    str: write_str,
    int: write_int,
    float: write_float,
    bytes: bytes,
    bytearray: bytes,
    memoryview: bytes,
    datetime: lambda value: msgpack.ExtType(DATETIME, write_datetime(value).encode()),
    date: lambda value: msgpack.ExtType(DATE, value.isoformat().encode()),
    timedelta: lambda value: msgpack.ExtType(TIMEDELTA, write_timedelta(value).encode()),
    Decimal: lambda value: msgpack.ExtType(DECIMAL, write_decimal(value).encode()),
    UUID: lambda value: msgpack.ExtType(UUID_, value.bytes),
}

# Data to value, by extension type; a set is read by `codec`, because its parts are values.
READERS: Final[dict[int, Callable[[bytes], object]]] = {
    DATETIME: lambda data: read_datetime(data.decode()),
    DATE: lambda data: date.fromisoformat(data.decode()),
    TIMEDELTA: lambda data: read_timedelta(data.decode()),
    DECIMAL: lambda data: read_decimal(data.decode()),
    UUID_: lambda data: UUID(bytes=data),
}
