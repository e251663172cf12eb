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
    """A line as a schedule on the broker: when it was stored there, or the error, and its ticks."""

    line: CronLine
    published_at: datetime | None = None
    ticks: list[Tick] = field(default_factory=list[Tick])
    error: int = 0

    def occurrences(self, until: datetime) -> list[datetime]:
        """When it should have fired by then."""
        assert self.published_at is not None
        found: list[datetime] = []
        at = self.line.next_after(self.published_at)
        while at is not None and at < until:
            found.append(at)
            at = self.line.next_after(at)
        return found

    def differences(self, until: datetime) -> list[str]:
        """What the broker did otherwise; a tick so late that others passed meanwhile ends the comparison."""
        if self.error:
            return [self._told(f"refused with {self.error}")]
        wrong: list[str] = []
        due = self.occurrences(until)
        for number, tick in enumerate(self.ticks[: len(due)]):
            if not timedelta(0) <= tick.stored_at - due[number] < SECOND:
                return [*wrong, self._told(f"due {due[number]}, came {tick.stored_at}")]
            if self.line.next_after(due[number]) != tick.next_at:
                wrong.append(self._told(f"after {due[number]} {self.line.next_after(due[number])}, not {tick.next_at}"))
            if self.line.previous_before(tick.next_at, not_after=tick.stored_at) != due[number]:
                wrong.append(self._told(f"the tick before {tick.next_at} is that of {due[number]}"))
        if len(self.ticks) < len(due):
            wrong.append(self._told(f"{len(due)} due, {len(self.ticks)} came"))
        return wrong

    def _told(self, what: str) -> str:
        return f"{self.line.broker_text!r} in {self.line.timezone} of {self.published_at}: {what}"


async def watch(url: str, stream: str, watched: Sequence[Watched], *, until: datetime) -> None:
    """Publish all lines as schedules, and gather their ticks until then."""
    client = await nats.connect(url)
    try:
        js = client.jetstream()
        await js.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], allow_msg_schedules=True))
        await _publish(js, stream, watched)
        messages = await js.pull_subscribe(f"{stream}.>", config=ConsumerConfig(ack_policy=AckPolicy.NONE))
        while (left := (until - datetime.now(UTC)).total_seconds()) > 0:
            try:
                found = await messages.fetch(500, timeout=min(left, 1))
            except TimeoutError:  # nats-py has two; both are this one
                continue
            for message in found:
                _, kind, number = message.subject.split(".")
                if kind == "t":
                    watched[int(number)].ticks.append(_tick(message))
                else:
                    watched[int(number)].published_at = _stored_at(message)
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
            each.error = error.err_code or -1

    for start in range(0, len(watched), 200):
        await asyncio.gather(*(publish(start + n, each) for n, each in enumerate(watched[start : start + 200])))


def _tick(message: Msg) -> Tick:
    assert message.headers is not None
    return Tick(_stored_at(message), datetime.fromisoformat(message.headers["Nats-Schedule-Next"]))


def _stored_at(message: Msg) -> datetime:
    return message.metadata.timestamp.astimezone(UTC)


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
