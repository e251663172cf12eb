"""Cron lines on a real broker: lines that fire in a moment, and what the broker says comes next."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import nats
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StreamConfig
from nats.js.errors import APIError

from jetjobs._core.cron import CronLine

SECOND = timedelta(seconds=1)
RANGES = {"second": (0, 59), "minute": (0, 59), "hour": (0, 23), "day": (1, 31), "month": (1, 12), "weekday": (0, 6)}
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["SUN", "Mon", "tue", "WED", "Thu", "fri", "Sat"]


@dataclass(frozen=True)
class Tick:
    """One firing: when the broker stored it, and its `Nats-Schedule-Next`."""

    stored_at: datetime
    next_at: datetime


@dataclass
class Watched:
    """A line, the instant it must fire first (if the test chose one), and its ticks."""

    line: CronLine
    due: datetime | None = None
    ticks: list[Tick] = field(default_factory=list[Tick])
    refused: int = 0


async def watch(url: str, stream: str, watched: Sequence[Watched], *, until: datetime) -> None:
    """Publish all lines as schedules, and gather their ticks until then, or until each has one and none is due."""
    client = await nats.connect(url)
    try:
        js = client.jetstream()
        await js.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], allow_msg_schedules=True))
        await _publish(js, stream, watched)
        ticks = await js.pull_subscribe(f"{stream}.t.*", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
        while datetime.now(UTC) < until:
            try:
                found = await ticks.fetch(500, timeout=1)
            except TimeoutError:  # nats-py has two; both are this one
                found = []
            for message in found:
                watched[int(message.subject.rpartition(".")[2])].ticks.append(_tick(message))
            if all(each.ticks or each.refused for each in watched) and not found and all(each.due for each in watched):
                break
        await js.delete_stream(stream)
    finally:
        await client.close()


async def _publish(js: JetStreamContext, stream: str, watched: Sequence[Watched]) -> None:
    async def publish(number: int, each: Watched) -> None:
        headers = {
            "Nats-Schedule": each.line.broker_text,
            "Nats-Schedule-Target": f"{stream}.t.{number}",
            "Nats-Schedule-Time-Zone": each.line.timezone,
        }
        try:
            await js.publish(f"{stream}.s.{number}", b"", headers=headers)
        except APIError as error:
            each.refused = error.err_code or -1

    for start in range(0, len(watched), 200):
        await asyncio.gather(*(publish(start + n, each) for n, each in enumerate(watched[start : start + 200])))


def _tick(message: Msg) -> Tick:
    assert message.headers is not None
    return Tick(
        message.metadata.timestamp.astimezone(UTC), datetime.fromisoformat(message.headers["Nats-Schedule-Next"])
    )


def line_through(chance: random.Random, wall: datetime) -> str:
    """A line of six fields, with names, lists, ranges and steps, that fires at that reading of the clocks.

    Below one unit, drawn by lot, all fields are single numbers: so the next firing is seconds, minutes, hours,
    days or months away.
    """
    varied = chance.randrange(5)
    fields: list[str] = []
    for place, (name, value) in enumerate([("second", wall.second), ("minute", wall.minute), ("hour", wall.hour)]):
        fields.append(str(value) if place < varied else _field(chance, name, value, loose=place > varied))
    date, weekday = wall.day, wall.isoweekday() % 7
    if varied > 3:
        days = [str(date), chance.choice("*?")] if chance.random() < 0.7 else [chance.choice("*?"), str(weekday)]
    else:
        days = _days(chance, date, weekday)
    month = _field(chance, "month", wall.month, loose=varied != 4)
    return " ".join([*fields, days[0], month, days[1]])


def _days(chance: random.Random, date: int, weekday: int) -> list[str]:
    match chance.randrange(5):
        case 0:
            return [_field(chance, "day", date), chance.choice(["*", "?", "*/1"])]
        case 1:
            return [chance.choice(["*", "?", "*/1"]), _field(chance, "weekday", weekday)]
        case 2:  # either fits: one of them need not
            return [_field(chance, "day", date), _field(chance, "weekday", chance.randrange(7))]
        case 3:
            return [_field(chance, "day", chance.randint(1, 31)), _field(chance, "weekday", weekday)]
        case _:
            return [chance.choice("*?"), chance.choice("*?")]


def _field(chance: random.Random, name: str, value: int, *, loose: bool = False) -> str:
    least, most = RANGES[name]
    if loose and chance.random() < 0.5:
        return "*"
    match chance.randrange(5):
        case 0:
            others = [chance.randint(least, most) for _ in range(chance.randint(1, 3))]
            items = [_word(chance, name, each) for each in {value, *others}]
            chance.shuffle(items)
            return ",".join(items)
        case 1:
            first, last = chance.randint(least, value), chance.randint(value, most)
            return f"{_word(chance, name, first)}-{_word(chance, name, last)}"
        case 2:
            step = chance.randint(2, 9)
            first = chance.choice(range(value, least - 1, -step))
            return f"{first}/{step}" if chance.random() < 0.5 else f"{first}-{chance.randint(value, most)}/{step}"
        case 3:
            step = chance.choice([step for step in range(1, most + 2) if (value - least) % step == 0])
            return f"*/{step}"
        case _:
            return _word(chance, name, value)


def _word(chance: random.Random, name: str, value: int) -> str:
    if name == "month" and chance.random() < 0.4:
        return MONTHS[value - 1]
    if name == "weekday" and chance.random() < 0.4:
        return DAYS[value]
    return str(value)
