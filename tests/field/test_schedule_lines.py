"""Cron lines and intervals as people write them: refused where they are declared, or fired by the broker as said."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from jetjobs import Cron, Every, JobContext, Module
from jetjobs._core import names
from jetjobs._core.cron import cron_line
from jetjobs._core.models import JobAddress
from jetjobs._core.triggers import schedule_id
from jetjobs.errors import ScheduleError
from tests.support.field import Field

pytestmark = pytest.mark.integration


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


async def stored(field: Field, *triggers: Cron | Every) -> Mapping[str, str]:
    """What the broker has for each of them, by name; a host that declares them serves."""
    module = Module("m")

    @module.job(timeout="5s", triggers=list(triggers))
    async def look(ctx: JobContext[Any]) -> None: ...

    await field.host(module)
    found: dict[str, str] = {}
    for trigger in triggers:
        address = JobAddress("m", "look")
        subject = names.schedule_subject(field.project, address, schedule_id(address, trigger.name))
        message = await field.nats.jetstream().get_last_msg(names.stream(field.project), subject)
        assert message.headers is not None
        found[trigger.name] = message.headers["Nats-Schedule"]
    return found


WRITTEN: Mapping[str, tuple[str, list[str]]] = {  # the text for the broker, and the next ones after the turn of 2027
    "*/5 * * * *": ("0 */5 * * * *", ["2027-01-01T00:05Z", "2027-01-01T00:10Z"]),
    "0 9 * * 1-5": ("0 0 9 * * 1-5", ["2027-01-01T09:00Z", "2027-01-04T09:00Z"]),
    "0 9 * * 7": ("0 0 9 * * 0", ["2027-01-03T09:00Z", "2027-01-10T09:00Z"]),
    "30 0 9 * * MON": ("30 0 9 * * MON", ["2027-01-04T09:00:30Z", "2027-01-11T09:00:30Z"]),
    "@Daily": ("@daily", ["2027-01-02T00:00Z", "2027-01-03T00:00Z"]),
    "0 0 0 29 2 *": ("0 0 0 29 2 *", ["2028-02-29T00:00Z"]),
    "0 0 0 13 * 5": ("0 0 0 13 * 5", ["2027-01-08T00:00Z", "2027-01-13T00:00Z", "2027-01-15T00:00Z"]),
    "  0\t12  1  1,7 * ": ("0 0 12 1 1,7 *", ["2027-01-01T12:00Z", "2027-07-01T12:00Z"]),
}


async def test_b09_lines_of_five_and_six_fields_are_taken_by_the_broker(field: Field):
    triggers = [Cron(line, name=f"line{number}") for number, line in enumerate(WRITTEN)]
    taken = await stored(field, *triggers)
    assert list(taken.values()) == [text for text, _ in WRITTEN.values()]
    for line, (_, expected) in WRITTEN.items():
        found = Cron(line).line.upcoming(at("2027-01-01T00:00Z"), len(expected))
        assert found == [at(text) for text in expected], line


REFUSED: Mapping[str, str] = {
    **dict.fromkeys(("* * * * * * *", "", " ", "*", "* * * *", "@reboot", "@Fortnightly"), "6 fields"),
    **dict.fromkeys(("TZ=UTC 0 9 * * *", "CRON_TZ=UTC 0 9 * * *", "*/5 * * * *;", "0 9 * * 1-5#"), "no "),
    "0 0 9 * * 1-5 2027": "years can't be given; write 5 fields",
    "0 9 * * 1-5 2027": "'2027' is no day of week",
    "0 9 * * L": "ctx.skip",
    "H 9 * * *": "is no minute",
    "@every 5m": 'write Every("5m")',
}


@pytest.mark.parametrize("line", REFUSED)
def test_b09_lines_of_other_fields_say_what_is_wrong(line: str):
    with pytest.raises(ScheduleError) as refused:
        Cron(line)
    assert REFUSED[line] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("line", ["0 0 0 30 2 *", "0 0 0 31 4,6,9,11 *", "0 0 31 2 *", "0 0 30-31 2 *"])
def test_b11_dates_that_never_come_are_refused_at_once(line: str):
    begun = time.process_time()
    with pytest.raises(ScheduleError, match="never fires"):
        Cron(line)
    assert time.process_time() - begun < 0.1


async def test_b11_a_date_that_is_rare_is_taken(field: Field):
    assert await stored(field, Cron("0 0 0 29 2 *")) == {"cron": "0 0 0 29 2 *"}
    assert Cron("0 0 0 29 2 *").line.next_after(at("2026-12-01T00:00Z")) == at("2028-02-29T00:00Z")


def test_b13_either_day_field_suffices():
    found = cron_line("0 0 0 13 * 5").upcoming(at("2027-01-01T00:00Z"), 6)
    days = ["2027-01-08", "2027-01-13", "2027-01-15", "2027-01-22", "2027-01-29", "2027-02-05"]
    assert found == [at(f"{day}T00:00Z") for day in days]


INTERVALS: Mapping[str, tuple[Any, str]] = {
    "day": ("1d", "86400s"),
    "span-of-a-day": (timedelta(days=1), "86400s"),
    "week": ("7d", "604800s"),
    "float": (2.0, "2s"),
    "mixed": ("1m30s", "90s"),
    "second": ("1s", "1s"),
    "year": (timedelta(days=365), "31536000s"),
}


@pytest.mark.parametrize(
    "interval",
    [
        *("1500ms", 2.4, 0.2, 0, -5, "5", True, False, None, "", "1.5s", "-1m", float("nan"), float("inf"), 1e300),
        *(timedelta(seconds=1.5), timedelta(0), timedelta(days=-1), "999ms", "1e3s", "٣s", b"5s", [5], 10**30),
    ],
    ids=repr,
)
def test_b15_intervals_the_broker_would_round_or_refuse(interval: Any):
    with pytest.raises(ScheduleError) as refused:
        Every(interval)
    assert "\n" not in str(refused.value)


async def test_b15_intervals_the_broker_takes(field: Field):
    triggers = [Every(given, name=name) for name, (given, _) in INTERVALS.items()]
    taken = await stored(field, *triggers)
    assert taken == {name: f"@every {text}" for name, (_, text) in INTERVALS.items()}
