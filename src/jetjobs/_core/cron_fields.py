"""The grammar of one cron field, and what to write instead of what it doesn't take.

Equal to nats-server's, with three differences, all to the user's good: `7` is Sunday and is written as 0,
`?` stands in the day fields only, and what the broker reads by accident (`1,,2`, `*-5`, `+3`) is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jetjobs.errors import ScheduleError

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class Kind:
    """One of the six fields: its name, its bounds, the words it knows."""

    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


SECOND: Final = Kind("second", 0, 59)
MINUTE: Final = Kind("minute", 0, 59)
HOUR: Final = Kind("hour", 0, 23)
DAY: Final = Kind("day of month", 1, 31)
MONTH: Final = Kind("month", 1, 12, _MONTHS)
WEEKDAY: Final = Kind("day of week", 0, 6, _DAYS)


@dataclass(frozen=True, slots=True)
class Field:
    """What one field allows.

    Attributes:
        text: As the broker takes it: names in upper case, Sunday as 0.
        values: The allowed numbers, ascending.
        starred: It holds `*` or `?` in steps of 1. Only such a day field leaves the choice to the other one.
    """

    text: str
    values: tuple[int, ...]
    starred: bool


def read_field(part: str, kind: Kind, line: str) -> Field:
    """One field of the line, in upper case.

    Raises:
        ScheduleError: it means nothing, or something the broker can't do; quotes the line.
    """
    values: set[int] = set()
    texts: list[str] = []
    starred = False
    for item in part.split(","):
        text, found, star = _item(item, kind, line)
        texts.append(text)
        values |= found
        starred |= star
    return Field(",".join(texts), tuple(sorted(values)), starred)


def _item(item: str, kind: Kind, line: str) -> tuple[str, set[int], bool]:
    span, slash, step_text = item.partition("/")
    step = _step(step_text, kind, line) if slash else 1
    if span in {"*", "?"}:
        if span == "?" and kind not in {DAY, WEEKDAY}:
            raise _refusal(kind, item, line, "? is for days only; write *")
        return item, set(range(kind.least, kind.most + 1, step)), step == 1
    first_text, dash, last_text = span.partition("-")
    first = _number(first_text, kind, line)
    open_end = max(kind.most, first) if slash else first  # 10/5 goes on to the end, 10 is only 10
    last = _number(last_text, kind, line) if dash else open_end
    if last < first:
        turned = f"{first_text}-{_shown(kind, kind.most)},{_shown(kind, kind.least)}-{last_text}"
        raise _refusal(kind, item, line, f"the range runs backwards; write {turned}")
    values = set(range(first, last + 1, step))
    if kind is WEEKDAY and last == 7:
        # The broker knows Sunday as 0 only, so the item becomes the list of its days.
        values = {value % 7 for value in values}
        return ",".join(map(str, sorted(values))), values, False
    return item, values, False


def _step(text: str, kind: Kind, line: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) or int(text) < 1:
        raise _refusal(kind, f"/{text}", line, "a step is a whole number from 1, as in */5")
    return int(text)


def _number(text: str, kind: Kind, line: str) -> int:
    if text in kind.words:
        return kind.words.index(text) + kind.least
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII):
        raise _refusal(kind, text, line, _instead(text, kind))
    value = int(text)
    if kind is WEEKDAY and value == 7:
        return value
    if not kind.least <= value <= kind.most:
        raise _refusal(kind, text, line, f"it goes from {kind.least} to {kind.most}")
    return value


def _instead(text: str, kind: Kind) -> str:
    if "#" in text or (kind is WEEKDAY and text.endswith("L")):
        return "# and L can't be said in one line; run daily and let the handler ctx.skip() the other days"
    if text in {"L", "LW"} or text.startswith("L-"):
        return "L (the last day) is unknown; run on 28-31 and let the handler ctx.skip() unless tomorrow is the 1st"
    if kind is DAY and text.endswith("W"):
        return "W (the nearest working day) is unknown; write days and weekdays, and ctx.skip() in the handler"
    names = f" or {kind.words[0]} to {kind.words[-1]}" if kind.words else ""
    return f"write {kind.least} to {kind.most}{names}, *, a range 1-5, a list 1,3 or a step */5"


def _shown(kind: Kind, value: int) -> str:
    return kind.words[value - kind.least] if kind.words else str(value)


def _refusal(kind: Kind, item: str, line: str, instead: str) -> ScheduleError:
    return ScheduleError(f"cron line {line!r}: {item!r} is no {kind.name}; {instead}")
