from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import cron_search
from jetjobs._core.cron import cron_line
from jetjobs._core.cron_search import Fields, following

# Clocks change there at these instants: whole hours and half ones, by day, at midnight, by more than a day.
CHANGES = [
    ("Europe/Paris", "2027-03-28T01:00Z"),
    ("Europe/Paris", "2027-10-31T01:00Z"),
    ("America/New_York", "2027-03-14T07:00Z"),
    ("America/New_York", "2027-11-07T06:00Z"),
    ("Australia/Lord_Howe", "2027-04-03T15:00Z"),
    ("Australia/Lord_Howe", "2027-10-02T15:30Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("America/Sao_Paulo", "2018-02-18T02:00Z"),
    ("Africa/Cairo", "2027-04-29T22:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Pacific/Chatham", "2027-04-03T14:00Z"),
    ("Antarctica/Troll", "2027-10-31T01:00Z"),
]
FIELD = st.sampled_from(["*", "*/2", "*/7", "0", "1", "2", "3", "0,30", "1-3", "45"])
HOUR = st.sampled_from(["*", "*/2", "0", "1", "2", "3", "1-3", "23", "12"])


class OneByOne(cron_search._Search):
    """The broker's own way: no jumps."""

    def _step(self, unit: int, count: int) -> None:
        assert count >= 1
        super()._step(unit, 1)


def one_by_one(fields: Fields, zone: ZoneInfo, after: int) -> int | None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cron_search, "_Search", OneByOne)
        return following(fields, zone, after)


@given(st.sampled_from(CHANGES), st.integers(-200_000, 100_000), FIELD, FIELD, HOUR, st.sampled_from(["*", "*/2", "7"]))
def test_jumps_find_what_single_steps_find(
    change: tuple[str, str], away: int, second: str, minute: str, hour: str, day: str
) -> None:
    zone = ZoneInfo(change[0])
    fields = cron_line(f"{second} {minute} {hour} {day} * *").fields
    after = int(datetime.fromisoformat(change[1]).timestamp()) + away
    found = following(fields, zone, after)
    assert found is not None
    assert found > after
    assert found == one_by_one(fields, zone, after)


def test_the_hour_that_the_clocks_jump_into_is_left_by_a_whole_step() -> None:
    # 3:00 to 3:59 are cut to 3:00; where that doesn't exist the broker reads 2:00 or 4:00, and moves on from there.
    zone = ZoneInfo("Australia/Lord_Howe")
    change = int(datetime(2027, 10, 2, 15, 30, tzinfo=UTC).timestamp())
    for hour in range(24):
        fields = cron_line(f"0 15 {hour} * * *").fields
        found = following(fields, zone, change)
        assert found is not None
        assert found > change


def test_a_search_is_short_even_for_what_never_comes() -> None:
    fields = cron_line("0 0 0 29 2 *").fields
    steps = 0

    class Counting(cron_search._Search):
        def _reading(self, year: int, month: int, into: timedelta) -> int:
            nonlocal steps
            steps += 1
            return super()._reading(year, month, into)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cron_search, "_Search", Counting)
        assert following(fields, UTC, int(datetime(2096, 3, 1, tzinfo=UTC).timestamp())) is None
    assert steps < 300
