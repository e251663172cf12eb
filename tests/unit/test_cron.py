from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs import Cron
from jetjobs._core.cron import PREDEFINED, check_cron, cron_line
from jetjobs.errors import ScheduleError

ZONES = [
    *("UTC", "Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kathmandu"),
    *("America/Santiago", "Africa/Cairo", "Africa/Casablanca", "Pacific/Apia", "Pacific/Chatham", "Europe/Dublin"),
]
SECOND = timedelta(seconds=1)


def moments(first: int, last: int) -> st.SearchStrategy[datetime]:
    """Any instant of those years."""
    start, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last, 1, 1, tzinfo=UTC)
    span = int((end - start).total_seconds() * 1000)
    return st.integers(0, span).map(lambda passed: start + timedelta(milliseconds=passed))


LINES = [
    *("* * * * * *", "*/7 * * * * *", "30 2 * * *", "0 0 * * *", "0 1-3 * * *", "45 1 * * *", "15,45 */6 * * *"),
    *("0 12 13 * 5", "0 12 */2 * *", "0 12 */2 * MON", "0 0 1 * *", "0 0 31 * *", "59 23 ? * SUN", "0 6 29 2 *"),
    *("0 0 1 jan,JUL *", "0 0 10-20/3 3-11 ?", "@weekly", "@hourly"),
]


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def texts(found: list[datetime]) -> list[str]:
    return [each.isoformat() for each in found]


def test_the_text_for_the_broker_has_six_fields() -> None:
    assert cron_line("0 2 * * 7").broker_text == "0 0 2 * * 0"
    assert cron_line("30 0 2 * * 1").broker_text == "30 0 2 * * 1"
    assert cron_line("@Daily").broker_text == "@daily"
    assert cron_line("@daily", "Europe/Paris").next_after(at("2027-07-01T12:00Z")) == at("2027-07-01T22:00Z")


@pytest.mark.parametrize("name, line", PREDEFINED.items())
def test_a_predefined_name_is_the_line_it_stands_for(name: str, line: str) -> None:
    assert cron_line(name).fields == cron_line(line).fields


def test_a_trigger_knows_its_line() -> None:
    assert Cron("0 2 * * *", timezone="Europe/Paris").line == cron_line("0 2 * * *", "Europe/Paris")


def test_a_zone_that_is_not_there_is_the_callers_to_check() -> None:
    with pytest.raises(ZoneInfoNotFoundError):
        cron_line("0 2 * * *", "Europe/Atlantis")


def test_either_day_field_is_enough_when_both_are_restricted() -> None:
    assert texts(cron_line("0 0 0 13 * 5").upcoming(at("2027-01-01T00:00Z"), 6)) == [
        f"2027-{day}T00:00:00+00:00" for day in ("01-08", "01-13", "01-15", "01-22", "01-29", "02-05")
    ]


@pytest.mark.parametrize(
    "line, days",
    [
        ("0 0 13 * *", [13]),
        ("0 0 13 * ?", [13]),
        ("0 0 13 * */1", [13]),  # a star in steps of one is a star
        ("0 0 13 * 0-6", list(range(1, 32))),  # all seven, but named: either is enough
        ("0 0 13 * */2", [2, 3, 5, 7, 9, 10, 12, 13, 14, 16, 17, 19, 21, 23, 24, 26, 28, 30, 31]),
        ("0 0 */15 * *", [1, 16, 31]),
        ("0 0 */15 * 1", [1, 4, 11, 16, 18, 25, 31]),  # a star in steps restricts
        ("0 0 *,13 * 1", [4, 11, 18, 25]),
        ("0 0 * * 1", [4, 11, 18, 25]),
    ],
)
def test_which_days_of_january_2027_fit(line: str, days: list[int]) -> None:
    start = at("2026-12-31T23:00Z")
    found: list[int] = []
    for each in cron_line(line).after(start):
        if each >= at("2027-02-01T00:00Z"):
            break
        found.append(each.day)
    assert found == days


def test_the_29th_of_february() -> None:
    line = cron_line("0 0 0 29 2 *")
    assert line.next_after(at("2026-12-01T00:00Z")) == at("2028-02-29T00:00Z")
    assert line.previous_before(at("2026-12-01T00:00Z")) == at("2024-02-29T00:00Z")


def test_nothing_in_five_years_ends_a_line() -> None:
    line = cron_line("0 0 0 29 2 *")
    assert line.next_after(at("2096-02-29T00:00Z")) is None  # 2100 is no leap year, 2104 too far
    assert texts(line.upcoming(at("2090-01-01T00:00Z"), 5)) == [
        "2092-02-29T00:00:00+00:00",
        "2096-02-29T00:00:00+00:00",
    ]
    assert line.previous_before(at("2104-02-29T00:00Z")) == at("2096-02-29T00:00Z")
    assert cron_line("@yearly").next_after(at("9995-01-01T00:00Z")) is None


@pytest.mark.parametrize(
    "line",
    ["0 0 0 30 2 *", "0 0 0 31 4,6,9,11 *", "0 0 0 30 2 */1", "0 0 0 30-31 FEB ?", "0 0 31 2,4 *,1"],
)
def test_a_date_that_never_comes_is_refused_at_once(line: str) -> None:
    started = time.process_time()
    with pytest.raises(ScheduleError, match="never fires"):
        check_cron(line)
    assert time.process_time() - started < 0.1


def test_clocks_that_go_forward_skip_a_time() -> None:
    line = cron_line("30 2 * * *", "Europe/Paris")
    assert texts(line.upcoming(at("2027-03-27T00:00Z"), 3)) == [
        "2027-03-27T02:30:00+01:00",
        "2027-03-29T02:30:00+02:00",
        "2027-03-30T02:30:00+02:00",
    ]


def test_clocks_that_go_back_show_a_time_twice_and_it_fires_twice() -> None:
    line = cron_line("30 1 * * *", "America/New_York")
    twice = line.upcoming(at("2027-11-06T12:00Z"), 2)
    assert texts(twice) == ["2027-11-07T01:30:00-04:00", "2027-11-07T01:30:00-05:00"]
    assert twice[1] - twice[0] == timedelta(hours=1)
    assert twice[0] < twice[1]
    assert line.previous_before(twice[1]) == twice[0]


def test_minutes_go_on_through_both_changes() -> None:
    for start in (at("2027-03-28T00:30Z"), at("2027-10-31T00:30Z")):
        found = cron_line("*/10 * * * *", "Europe/Paris").upcoming(start, 20)
        assert found == [start + timedelta(minutes=10 * n) for n in range(1, 21)]


def test_half_an_hour_in_lord_howe() -> None:
    # On 3 October 2027 clocks go from 2:00 to 2:30. Minutes run over it without a look at the hour, as the broker's do.
    line = cron_line("45 1 * * *", "Australia/Lord_Howe")
    assert texts(line.upcoming(at("2027-10-02T00:00Z"), 3)) == [
        "2027-10-03T01:45:00+10:30",
        "2027-10-03T02:45:00+11:00",
        "2027-10-04T01:45:00+11:00",
    ]
    found = line.upcoming(at("2027-10-02T00:00Z"), 2)
    assert line.previous_before(at("2027-10-04T01:45:00+11:00")) == found[1]


def test_a_day_that_has_no_midnight() -> None:
    # In Santiago 5 September 2027 begins at 1:00. Looking for Sunday from the Sunday before, the broker goes on at
    # 23:00 of Saturday, so at 23:00 of Sunday, past noon.
    line = cron_line("0 12 * * SUN", "America/Santiago")
    chain = line.upcoming(at("2027-08-22T20:00Z"), 2)
    assert texts(chain) == ["2027-08-29T12:00:00-04:00", "2027-09-12T12:00:00-03:00"]
    on_the_day = line.next_after(at("2027-09-05T06:00Z"))
    assert on_the_day is not None
    assert on_the_day == at("2027-09-05T12:00:00-03:00")
    # Both have the same next one: when the tick was stored tells which of them it is.
    assert line.previous_before(chain[1], not_after=chain[0] + SECOND) == chain[0]
    assert line.previous_before(chain[1], not_after=on_the_day + SECOND) == on_the_day


def test_a_day_that_begins_at_one() -> None:
    # In Cairo 30 April 2027. The search for Saturday goes on at 1:00 from there, past midnight.
    line = cron_line("0 0 * * SAT", "Africa/Cairo")
    assert texts(line.upcoming(at("2027-04-20T00:00Z"), 2)) == [
        "2027-04-24T00:00:00+02:00",
        "2027-05-08T00:00:00+03:00",
    ]


def test_the_day_apia_left_out() -> None:
    daily = cron_line("0 12 * * *", "Pacific/Apia")
    assert texts(daily.upcoming(at("2011-12-29T00:00Z"), 2)) == [
        "2011-12-29T12:00:00-10:00",
        "2011-12-31T12:00:00+14:00",
    ]
    last = cron_line("0 12 31 * *", "Pacific/Apia")  # the broker would never come back from this search
    assert last.next_after(at("2011-12-28T00:00Z")) == at("2011-12-31T12:00:00+14:00")


def test_back_from_the_middle_of_an_hour_in_chatham() -> None:
    # On 4 April 2027 clocks go from 3:45 to 2:45. The broker fires again and again then; we name only what is ahead.
    line = cron_line("0 3 * * *", "Pacific/Chatham")
    found = line.upcoming(at("2027-04-03T00:00Z"), 3)
    assert texts(found) == [
        "2027-04-04T03:00:00+13:45",
        "2027-04-04T03:00:00+12:45",
        "2027-04-05T03:00:00+12:45",
    ]
    assert line.next_after(at("2027-04-04T02:50:00+12:45")) == found[1]


def test_instants_show_the_offset_and_its_name() -> None:
    found = cron_line("0 2 * * *", "Europe/Paris").next_after(at("2027-07-01T00:00Z"))
    assert found is not None
    assert (found.tzname(), found.utcoffset(), found.fold) == ("CEST", timedelta(hours=2), 0)
    assert found == found.astimezone(ZoneInfo("Europe/Paris"))


@pytest.mark.parametrize(
    "before, last",
    [
        ("2027-01-01T10:20Z", "2027-01-01T10:15Z"),
        ("2027-01-01T10:15Z", "2027-01-01T10:10Z"),
        ("2027-01-01T10:15:00.5Z", "2027-01-01T10:15Z"),
        ("2027-01-01T10:00:00.000001Z", "2027-01-01T10:00Z"),
        ("2027-01-01T00:00Z", "2026-12-31T23:15Z"),
    ],
)
def test_the_last_one_before_any_instant(before: str, last: str) -> None:
    assert cron_line("0,10,15 * * * *").previous_before(at(before)) == at(last)


@pytest.mark.parametrize(
    "field, values",
    [
        ("10/20", (10, 30, 50)),
        ("10-40/20", (10, 30)),
        ("*/20", (0, 20, 40)),
        ("10", (10,)),
        ("59/2,3", (3, 59)),
        ("5-7,6", (5, 6, 7)),
    ],
)
def test_what_a_field_allows(field: str, values: tuple[int, ...]) -> None:
    assert cron_line(f"{field} * * * *").fields.minute.values == values


@given(st.sampled_from(LINES), st.sampled_from(ZONES), moments(1999, 2060))
def test_the_next_is_strictly_later_whole_seconds_and_soon_found(line: str, zone: str, start: datetime) -> None:
    began = time.process_time()
    found = cron_line(line, zone).next_after(start)
    assert time.process_time() - began < 0.1
    assert found is not None
    assert found > start
    assert found.microsecond == 0


@given(st.sampled_from(LINES), st.sampled_from(ZONES), moments(1999, 2060))
def test_before_the_next_one_comes_this_one(line: str, zone: str, start: datetime) -> None:
    asked = cron_line(line, zone)
    for this, following in zip(chain := asked.upcoming(start, 4), chain[1:], strict=False):
        assert this < following
        assert asked.previous_before(following, not_after=this) == this
        assert asked.previous_before(following, not_after=this + timedelta(milliseconds=3)) == this


@given(st.sampled_from(LINES), moments(1999, 2060))
def test_without_changes_of_the_clocks_nothing_is_between(line: str, start: datetime) -> None:
    asked = cron_line(line)
    found = asked.next_after(start)
    assert found is not None
    assert asked.next_after(found - SECOND) == found
    assert asked.next_after(found - timedelta(microseconds=1)) == found
    before = asked.previous_before(found)
    assert before <= start
    assert asked.next_after(before) == found


@given(
    st.lists(st.sampled_from(["*", "1", "*/2", "1-5", "2,3", "2/3"]), min_size=5, max_size=5).map(" ".join),
    moments(2027, 2029),
)
def test_the_next_is_the_first_that_a_plain_look_at_each_minute_finds(line: str, start: datetime) -> None:
    fields = cron_line(line).fields
    moment = start.replace(second=0, microsecond=0)
    for _ in range(3 * 24 * 60):
        moment += timedelta(minutes=1)
        by_date, by_weekday = moment.day in fields.day.values, moment.isoweekday() % 7 in fields.weekday.values
        day = (by_date or by_weekday) if fields.either_day else (by_date and by_weekday)
        times = moment.minute in fields.minute.values and moment.hour in fields.hour.values
        if day and times and moment.month in fields.month.values:
            break
    else:
        moment = None
    found = cron_line(line).next_after(start)
    assert found is not None
    assert found == moment or (moment is None and found > start + timedelta(days=2))
