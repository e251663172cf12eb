"""What a cron line means here is what it means to the broker: asked line by line, over changes of the clocks."""

from __future__ import annotations

import os
import random
import secrets
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import nats
import pytest
from nats.js.api import StreamConfig
from nats.js.errors import APIError

from jetjobs._core.cron import CronLine, check_cron, cron_line
from jetjobs.errors import ScheduleError
from tests.support.cron_ticks import Watched, line_through, watch
from tests.support.servers import RealServer
from tests.support.zones import PrivateZone, private_zones, zone_changing

pytestmark = pytest.mark.integration

PATTERN_INVALID = 10189
MINUTE = timedelta(minutes=1)
REAL_ZONES = [
    *("UTC", "America/Sao_Paulo", "Australia/Lord_Howe", "Pacific/Apia", "Europe/Paris", "America/New_York"),
    *("Asia/Kathmandu", "America/Santiago", "Africa/Cairo", "Asia/Beirut", "America/Havana", "Atlantic/Azores"),
    *("Europe/London", "Europe/Dublin", "Africa/Casablanca", "America/Nuuk", "Asia/Gaza", "Pacific/Chatham"),
    *("America/St_Johns", "Antarctica/Troll"),
]
SHIFTS = (60, -60, 30, -30, 120, 20, -20)
READINGS = (0, 30, 105, 120, 180, 23 * 60 + 30)  # midnight as in Santiago, 2 and 3 as in most, and mid-hour
WAITS = (  # until the change: between publishing and the tick, within the hour, the day, the month
    timedelta(seconds=7),
    timedelta(minutes=7),
    timedelta(minutes=50),
    timedelta(hours=5),
    timedelta(hours=26),
    timedelta(days=40),
)


def zones_around_now() -> list[PrivateZone]:
    """Both changes, of whole and of broken hours, by day and at midnight, near and far.

    Not back from the middle of an hour, as in Chatham alone: there the broker fires several times a second until
    that hour is over, with a next instant in the past. For the same reason on a full minute.
    """
    now = datetime.now(UTC)
    return [
        zone_changing(
            f"Test/Z{number}",
            now + wait if shift > 0 else (now + wait).replace(second=0),
            reading=reading * MINUTE,
            shift=shift * MINUTE,
            west=number % 2 == 1,
        )
        for number, (shift, wait, reading) in enumerate(product(SHIFTS, WAITS, READINGS))
        if shift > 0 or reading % 60 == 0
    ]


@pytest.fixture
def zones(tmp_path: Path) -> Iterator[list[PrivateZone]]:
    made = zones_around_now()
    with private_zones(tmp_path / "zones", made):
        yield made


@pytest.fixture
def zoned_server(tmp_path: Path, zones: list[PrivateZone], monkeypatch: pytest.MonkeyPatch) -> Iterator[RealServer]:
    """A server that knows the private zones too."""
    monkeypatch.setenv("ZONEINFO", str(tmp_path / "zones"))
    with RealServer(tmp_path / "nats") as server:
        yield server


def due_line(chance: random.Random, zone: str, due: datetime) -> CronLine:
    """A line of that zone that may fire at that instant."""
    wall = due.astimezone(cron_line("* * * * *", zone).zone)
    for _ in range(1000):
        try:
            line = cron_line(line_through(chance, wall), zone)
        except ScheduleError:  # a 31st of November, where the weekday was to fit
            continue
        if line.next_after(due - timedelta(seconds=1)) == due:
            return line
    raise AssertionError(f"no line of {zone} fires at {due}")


async def test_the_broker_names_the_same_next_instants(zoned_server: RealServer, zones: list[PrivateZone]):
    seed = int(os.environ.get("JETJOBS_CRON_SEED", "0")) or secrets.randbelow(1_000_000)
    chance = random.Random(seed)
    start = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=7)
    names = [*REAL_ZONES * 20, *[zone.name for zone in zones] * 3]
    watched = [Watched(due_line(chance, name, start + timedelta(seconds=chance.randrange(4)))) for name in names]
    assert datetime.now(UTC) < start - timedelta(seconds=1), "the machine is too slow to make the lines in time"

    until = start + timedelta(seconds=5)
    await watch(zoned_server.url, "CRON", watched, until=until + timedelta(seconds=1))

    wrong = [text for each in watched for text in each.differences(until)]
    assert not wrong, f"JETJOBS_CRON_SEED={seed}: {len(wrong)} of {len(watched)}\n" + "\n".join(wrong[:20])
    compared = [(each, tick) for each in watched for tick in each.ticks]
    spans = Counter(min(len(str((tick.next_at - tick.stored_at) // MINUTE)), 5) for _, tick in compared)
    assert len({each.line.timezone for each, _ in compared}) > 150
    assert len({(each.line.broker_text, each.line.timezone) for each, _ in compared}) > 700
    assert min(spans[digits] for digits in (1, 2, 3, 4, 5)) > 20, spans  # minutes to months ahead


KEPT = [
    *("0 2 * * *", "*/5 * * * *", "0 9 * * 1-5", "@Daily", "@weekly", "@hourly", "@midnight", "@monthly", "@yearly"),
    *("@annually", "0 0 0 29 2 *", "0 0 0 29 2 ?", "0 0 30 2 1", "0 0 30 2 */2", "0 0 */31 2 *", "0 0 * * 7"),
    *("0 0 * * 5-7", "0 0 * * sun-7/2", "0 0 ? jan-MAR mon,Wed", "59/2 * * * * *", "*/99 * * * *", "05 0 1/100 * *"),
    *("0 0 1-31/40 * *", "  1   2 3 4  5 ", "0 0 ?/2 * ?", "0 0 13 * 5", "0 0 * dec *"),
]
REFUSED = [
    *("", "* * * *", "* * * * * * *", "60 * * * * *", "0 60 * * * *", "0 0 24 * * *", "0 0 0 0 * *", "0 0 0 32 * *"),
    *("0 0 0 1 13 *", "0 0 0 1 0 *", "0 0 0 * * 8", "0 0 0 * * 5-1", "0 0 22-4 * * *", "0 0 0 L * *", "0 0 0 15W * *"),
    *("0 0 0 * * 5L", "0 0 0 * * 2#1", "0 0 0 30 2 *", "0 0 0 30 2 */1", "0 0 0 30 2 *,1", "0 0 0 31 4,6,9,11 ?"),
    *(
        "*/0 * * * * *",
        "0 0 0 , * *",
        "0-5-7 * * * * *",
        "0/5/5 * * * * *",
        "@reboot",
        "@minutely",
        "@every",
        "0 0 0 1",
    ),
    *("TZ=UTC 0 0 0 * * *", "0 0 0 sunday * *", "0 0 0 30-31 2 *", "-1 * * * * *", "1.5 * * * * *", "0 0 0 * * L"),
]


async def refused_with(url: str, lines: list[str], stream: str) -> list[int]:
    """The broker's error for each line, 0 for none."""
    client = await nats.connect(url)
    js = client.jetstream()
    await js.add_stream(StreamConfig(name=stream, subjects=[f"{stream}.>"], allow_msg_schedules=True))
    errors: list[int] = []
    for number, line in enumerate(lines):
        headers = {"Nats-Schedule": line, "Nats-Schedule-Target": f"{stream}.t"}
        try:
            await js.publish(f"{stream}.s.{number}", b"", headers=headers)
            errors.append(0)
        except APIError as error:
            errors.append(error.err_code or -1)
    await js.delete_stream(stream)
    await client.close()
    return errors


async def test_the_broker_takes_what_is_kept(nats_url: str, project: str):
    chance = random.Random()
    near = [line_through(chance, datetime(2024, 2, 29, tzinfo=UTC) + timedelta(hours=7 * n)) for n in range(300)]
    kept = [cron_line(line).broker_text for line in [*KEPT, *near] if line in KEPT or "31" not in line]

    errors = await refused_with(nats_url, kept, project)

    assert [line for line, error in zip(kept, errors, strict=True) if error] == []
    assert len(errors) > 200


async def test_what_the_broker_refuses_is_refused_at_the_declaration(nats_url: str, project: str):
    for line in REFUSED:
        with pytest.raises(ScheduleError):
            check_cron(line)
    sent = [line for line in REFUSED if line]  # without a line the message is no schedule at all

    errors = await refused_with(nats_url, sent, project)

    assert errors == [PATTERN_INVALID] * len(sent)
