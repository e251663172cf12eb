"""A real broker crosses changes of the clocks while it ticks: every tick is where the preview has it.

The zones are the test's own, with the shape of real ones and a change some seconds away. The server's clock
is the machine's; only what clocks show there changes.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from jetjobs._core.cron import cron_line
from tests.support.cron_ticks import Watched, watch
from tests.support.servers import RealServer
from tests.support.zones import private_zones, zone_changing

pytestmark = pytest.mark.faults

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)

# Name, what clocks show at the change, how far they move, west of Greenwich.
SHAPES = [
    ("Test/ParisSpring", 2 * HOUR, HOUR, False),
    ("Test/ParisAutumn", 3 * HOUR, -HOUR, False),
    ("Test/NewYorkSpring", 2 * HOUR, HOUR, True),
    ("Test/NewYorkAutumn", 2 * HOUR, -HOUR, True),
    ("Test/LordHoweSpring", 2 * HOUR, 30 * MINUTE, False),
    ("Test/LordHoweAutumn", 2 * HOUR, -30 * MINUTE, False),
    ("Test/SantiagoSpring", timedelta(), HOUR, True),
    ("Test/CairoSpring", timedelta(), HOUR, False),
    ("Test/HavanaAutumn", HOUR, -HOUR, True),
    ("Test/ApiaSkipsADay", timedelta(), 24 * HOUR, True),
    ("Test/OneMinuteBack", 2 * HOUR, -MINUTE, False),
    ("Test/OneMinuteOn", 2 * HOUR, MINUTE, False),
]


@contextmanager
def crossing(folder: Path, monkeypatch: pytest.MonkeyPatch, change_at: datetime) -> Generator[RealServer]:
    """A server whose private zones change at that instant."""
    zones = [zone_changing(name, change_at, reading=at, shift=shift, west=west) for name, at, shift, west in SHAPES]
    with private_zones(folder / "zones", zones) as path:
        monkeypatch.setenv("ZONEINFO", str(path))
        with RealServer(folder / "nats") as server:
            yield server


def lines_around(zone: str, change_at: datetime) -> list[str]:
    """A dozen lines of six fields which meet the change: any time, before, inside, after it, by hour and by day."""
    shown = cron_line("* * * * *", zone).zone
    before, after = (change_at - SECOND).astimezone(shown), change_at.astimezone(shown)
    soon = (change_at + 10 * SECOND).astimezone(shown)
    return [
        "*/5 * * * * *",
        "0 * * * * *",
        f"*/4 * {before.hour} * * *",
        f"*/4 * {after.hour} * * *",
        f"*/4 * {(before.hour + 1) % 24} * * ?",
        f"*/4 {before.minute} * * * *",
        f"*/4 {after.minute} * * * *",
        f"{before.second - before.second % 2} {before.minute} {before.hour} * * *",
        f"{before.second}/2 {before.minute} {before.hour},{after.hour} * * *",
        f"{soon.second} {soon.minute} {soon.hour} ? * *",
        f"{soon.second} {soon.minute},{before.minute} */1 * * *",
        f"*/7 * * {soon.day} * {before:%a}",
    ]


def schedules(change_at: datetime) -> list[Watched]:
    lines = [(line, name) for name, *_ in SHAPES for line in lines_around(name, change_at)]
    # Looking for a day across one that is left out, the broker would stand still for ever: only lines of every day.
    safe = [(line, name) for line, name in lines if name != "Test/ApiaSkipsADay" or line.split()[3] in {"*", "?"}]
    return [Watched(cron_line(line, name)) for line, name in safe]


def first_of(watched: list[Watched], zone: str) -> Watched:
    return next(each for each in watched if each.line.timezone == zone)


@pytest.mark.long
async def test_b06_ticks_cross_a_change_of_the_clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In 24 s, so the change isn't on a full minute.

    Back from then the broker's search for an hour lands before the change and fires again and again, as it does in
    Chatham: those lines are for the long test.
    """
    change_at = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=11)
    until = change_at + timedelta(seconds=13)
    with crossing(tmp_path, monkeypatch, change_at) as server:
        back = {name for name, _, shift, _ in SHAPES if shift < timedelta()}
        watched = [
            each
            for each in schedules(change_at)
            if each.line.timezone not in back or len(each.line.fields.hour.values) == 24
        ]
        await watch(server.url, "DST", watched, until=until + SECOND)

        wrong = [text for each in watched for text in each.differences(until)]
        assert not wrong, "\n".join(wrong)
        assert len(watched) > 100
        for zone, *_ in SHAPES:
            each = first_of(watched, zone)  # each five seconds, without a hole and without a double
            stored = [tick.stored_at.replace(microsecond=0) for tick in each.ticks]
            assert {later - sooner for sooner, later in pairwise(stored)} == {5 * SECOND}
            assert stored[0] < change_at < stored[-1]
        skipped = cron_line("*/4 * 2 * * *", "Test/ParisSpring")
        passed = skipped.next_after(change_at)
        assert passed is not None
        assert passed > change_at + 20 * HOUR  # not in the hour that isn't there


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_b06_minutes_that_come_twice_fire_twice_and_missing_ones_never(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    change_at = datetime.now(UTC).replace(second=0, microsecond=0) + 2 * MINUTE
    until = change_at + 100 * SECOND
    with crossing(tmp_path, monkeypatch, change_at) as server:
        twice = Watched(cron_line("30 59 1 * * *", "Test/OneMinuteBack"))
        never = Watched(cron_line("30 0 2 * * *", "Test/OneMinuteOn"))
        minutely = [Watched(cron_line("* * * * *", name)) for name, *_ in SHAPES]
        watched = [twice, never, *minutely, *schedules(change_at)]
        await watch(server.url, "DST", watched, until=until + SECOND)

        wrong = [text for each in watched for text in each.differences(until)]
        assert not wrong, "\n".join(wrong)
        assert [tick.stored_at.replace(microsecond=0) for tick in twice.ticks] == [
            change_at - 30 * SECOND,
            change_at + 30 * SECOND,
        ]
        assert never.ticks == []
        for each in minutely:
            stored = [tick.stored_at.replace(microsecond=0) for tick in each.ticks]
            assert {later - sooner for sooner, later in pairwise(stored)} == {MINUTE}
