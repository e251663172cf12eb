"""What a cron line may say: five fields, or six with seconds first. Refusals tell what to write instead.

The broker reads the same grammar, except that it takes six fields only and tells nothing about what it refuses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from jetjobs.errors import ScheduleError

PREDEFINED: Final = ("@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually")
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_LONGEST: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_SHAPE: Final = "write 5 fields (minute hour day month weekday) or 6 fields (second first)"


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 6, _DAYS),
)


def check_cron(expression: object) -> str:
    """The line with single spaces and upper-case names, as given: 5 fields stay 5.

    >>> check_cron("0  2 * * mon-fri")
    '0 2 * * MON-FRI'

    Raises:
        ScheduleError: it means nothing, or something the broker can't do.
    """
    if not isinstance(expression, str):
        raise ScheduleError(f'a cron line is a text such as "0 2 * * *", not {expression!r}')
    text = expression.strip()
    if text.startswith("@"):
        return _predefined(text)
    parts = text.upper().split()
    if len(parts) not in {5, 6}:
        years = "; years can't be given" if len(parts) == 7 else ""
        raise ScheduleError(f"cron line {expression!r} has {len(parts)} fields{years}; {_SHAPE}")
    fields = _FIELDS[-len(parts) :]
    values = [_values(part, field, expression) for part, field in zip(parts, fields, strict=True)]
    _check_dates(expression, values[-3], values[-2], any_weekday=parts[-1] in {"*", "?"})
    return " ".join(parts)


def _predefined(text: str) -> str:
    if text.lower() in PREDEFINED:
        return text.lower()
    if text.lower().startswith("@every"):
        raise ScheduleError(f'{text!r} is an interval; write Every("{text[6:].strip() or "30s"}")')
    known = ", ".join(PREDEFINED)
    instead = "; to do something at every start write a lifespan" if text.lower() == "@reboot" else ""
    raise ScheduleError(f"cron line {text!r} is unknown{instead}; {_SHAPE}, or one of {known}")


def _values(part: str, field: _Field, expression: str) -> set[int]:
    found: set[int] = set()
    for item in part.split(","):
        found |= _item(item, field, expression)
    return found


def _item(item: str, field: _Field, expression: str) -> set[int]:
    span, slash, step_text = item.partition("/")
    step = _step(step_text, field, expression) if slash else 1
    if span in {"*", "?"}:
        if span == "?" and field.name not in {"day of month", "day of week"}:
            raise _refusal(field, item, expression, "? is for days only; write *")
        return set(range(field.least, field.most + 1, step))
    first_text, dash, last_text = span.partition("-")
    first = _number(first_text, field, expression)
    open_end = field.most if slash else first  # 10/5 goes on to the end, 10 is only 10
    last = _number(last_text, field, expression) if dash else open_end
    if last < first:
        turned = f"{first_text}-{_shown(field, field.most)},{_shown(field, field.least)}-{last_text}"
        raise _refusal(field, item, expression, f"the range runs backwards; write {turned}")
    return set(range(first, last + 1, step))


def _step(text: str, field: _Field, expression: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII) or int(text) < 1:
        raise _refusal(field, f"/{text}", expression, "a step is a whole number from 1, as in */5")
    return int(text)


def _number(text: str, field: _Field, expression: str) -> int:
    if text in field.words:
        return field.words.index(text) + field.least
    if not re.fullmatch(r"[0-9]{1,4}", text, re.ASCII):
        raise _refusal(field, text, expression, _instead(text, field))
    value = int(text)
    if field.name == "day of week" and value == 7:
        raise _refusal(field, text, expression, "Sunday is 0 or SUN")
    if not field.least <= value <= field.most:
        raise _refusal(field, text, expression, f"it goes from {field.least} to {field.most}")
    return value


def _instead(text: str, field: _Field) -> str:
    if "#" in text or (field.name == "day of week" and text.endswith("L")):
        return "# and L can't be said in one line; run daily and let the handler ctx.skip() the other days"
    if text in {"L", "LW"} or text.startswith("L-"):
        return "L (the last day) is unknown; run on 28-31 and let the handler ctx.skip() unless tomorrow is the 1st"
    if field.name == "day of month" and text.endswith("W"):
        return "W (the nearest working day) is unknown; write days and weekdays, and ctx.skip() in the handler"
    names = f" or {field.words[0]} to {field.words[-1]}" if field.words else ""
    return f"write {field.least} to {field.most}{names}, *, a range 1-5, a list 1,3 or a step */5"


def _shown(field: _Field, value: int) -> str:
    return field.words[value - field.least] if field.words else str(value)


def _refusal(field: _Field, item: str, expression: str, instead: str) -> ScheduleError:
    return ScheduleError(f"cron line {expression!r}: {item!r} is no {field.name}; {instead}")


def _check_dates(expression: str, days: set[int], months: set[int], *, any_weekday: bool) -> None:
    """A day no month of the line has never comes, unless weekdays are named too: those are OR-ed."""
    if any_weekday and min(days) > max(_LONGEST[month - 1] for month in months):
        raise ScheduleError(
            f"cron line {expression!r} never fires: no such month has a day {min(days)}; "
            "write a day the month has, or other months"
        )
