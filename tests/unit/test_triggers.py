from __future__ import annotations

import zoneinfo
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs import Cron, Every, OnEvent
from jetjobs._core.cron import check_cron
from jetjobs._core.models import JobAddress
from jetjobs._core.triggers import check_triggers, schedule_id
from jetjobs.errors import ConfigError, DeclarationError, InvalidNameError, PayloadError, ScheduleError

CLOSE = JobAddress("billing", "close_day")


@pytest.mark.parametrize(
    "written, kept",
    [
        ("0 2 * * *", "0 2 * * *"),
        ("  0   2 * *  mon-fri ", "0 2 * * MON-FRI"),
        ("*/5 * * * *", "*/5 * * * *"),
        ("0 9 * * 1-5", "0 9 * * 1-5"),
        ("30 0 9 1,15 jan,JUL ?", "30 0 9 1,15 JAN,JUL ?"),
        ("0 0 12 ? * SUN", "0 0 12 ? * SUN"),
        ("10/20 * * * *", "10/20 * * * *"),
        ("@Daily", "@daily"),
        ("@hourly", "@hourly"),
        ("0 0 0 29 2 *", "0 0 0 29 2 *"),
        ("0 0 * * 7", "0 0 * * 0"),  # Sunday is 0 to the broker
        ("0 0 * * 5-7", "0 0 * * 0,5,6"),
        ("0 0 * * 1-7/2,WED", "0 0 * * 0,1,3,5,WED"),
        ("0 0 30 2 1", "0 0 30 2 1"),  # the 30th of February, or any Monday of it
    ],
)
def test_cron_lines_that_are_kept(written: str, kept: str) -> None:
    assert check_cron(written) == kept
    assert Cron(written).expression == kept
    assert check_cron(kept) == kept


@pytest.mark.parametrize(
    "line, message",
    [
        ("", "has 0 fields; write 5 fields .* or 6 fields"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields; years can't be given; write 5 fields .* or 6 fields"),
        ("* * * * * * * *", "has 8 fields; write"),
        (None, "a cron line is a text"),
        ("@reboot", "to do something at every start write a lifespan; write 5 fields .* or 6 fields"),
        ("@every 5m", r"is an interval; write Every\(\"5m\"\)"),
        ("@minutely", "'@minutely' is unknown; write 5 fields .*, or one of @hourly, @daily"),
        ("60 * * * *", "'60' is no minute; it goes from 0 to 59"),
        ("0 24 * * *", "'24' is no hour; it goes from 0 to 23"),
        ("0 0 0 * *", "'0' is no day of month; it goes from 1 to 31"),
        ("0 0 32 * *", "'32' is no day of month"),
        ("0 0 * 13 *", "'13' is no month; it goes from 1 to 12"),
        ("0 0 * * 8", "'8' is no day of week; it goes from 0 to 6"),
        ("0 0 * * FRI-MON", "the range runs backwards; write FRI-SAT,SUN-MON"),
        ("0 22-4 * * *", "the range runs backwards; write 22-23,0-4"),
        ("0 0 L * *", r"L \(the last day\) is unknown; run on 28-31 and let the handler ctx.skip"),
        ("0 0 15W * *", r"W \(the nearest working day\) is unknown"),
        ("0 0 LW * *", "L .the last day. is unknown"),
        ("0 0 * * 5L", "# and L can't be said in one line; run daily"),
        ("0 0 * * 2#1", "# and L can't be said in one line; run daily"),
        ("0 0 * FOO *", "'FOO' is no month; write 1 to 12 or JAN to DEC"),
        ("x 0 * * *", r"'X' is no minute; write 0 to 59, \*, a range 1-5, a list 1,3 or a step"),
        ("*/0 * * * *", "'/0' is no minute; a step is a whole number from 1"),
        ("*/x * * * *", "a step is a whole number from 1"),
        ("? * * * *", "'\\?' is no minute; . is for days only; write \\*"),
        ("1,,2 * * * *", "'' is no minute"),
        ("-5 * * * *", "'' is no minute"),
        ("٣ * * * *", "is no minute"),
        ("0 0 0 30 2 *", "never fires: no such month has a day 30"),
        ("0 0 0 31 4,6,9,11 *", "never fires: no such month has a day 31"),
    ],
)
def test_cron_lines_that_are_refused(line: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Cron(line)


FIELD = st.sampled_from(["*", "1", "*/2", "1-5", "1,3", "2/3"])


@given(st.lists(FIELD, min_size=5, max_size=6).map(" ".join))
def test_all_lines_of_numbers_steps_and_ranges_are_kept(line: str) -> None:
    assert check_cron(line) == line


@given(st.text(max_size=20))
def test_any_text_is_kept_or_refused_as_a_schedule_error(line: str) -> None:
    try:
        kept = check_cron(line)
    except ScheduleError:
        return
    assert check_cron(kept) == kept


def test_the_defaults_of_a_schedule() -> None:
    nightly = Cron("0 2 * * *")
    assert (nightly.name, nightly.timezone, nightly.payload) == ("cron", "UTC", None)
    assert (nightly.misfire_grace, nightly.jitter) == (timedelta(hours=1), None)
    assert (nightly.coalesce, nightly.overlap, nightly.max_instances) == ("latest", "skip", 1)
    assert (nightly.start_at, nightly.end_at) == (None, None)
    assert Every("5m").name == "every"
    assert OnEvent("orders.paid").name == "event"
    assert Cron("0 2 * * *", misfire_grace=None).misfire_grace is None


@pytest.mark.parametrize(
    "interval, kept",
    [("1s", 1), ("1d", 86_400), (timedelta(days=1), 86_400), (2, 2), (60.0, 60), ("1m30s", 90)],
)
def test_intervals_that_are_kept(interval: Any, kept: int) -> None:
    assert Every(interval).interval == timedelta(seconds=kept)


@pytest.mark.parametrize(
    "interval, message",
    [
        ("1500ms", "Every takes whole seconds from 1 on, not '1500ms'; the broker would round it"),
        (2.4, "whole seconds from 1 on, not 2.4"),
        (0.2, "whole seconds from 1 on"),
        (0, "every interval must be more than 0"),
        (-5, "every interval: -5 is negative"),
        ("5", "every interval: '5' is not a duration"),
        (True, 'Every needs an interval such as "5m", not True'),
        (None, "every interval: None is not a duration"),
        (timedelta(days=40_000), "over a hundred years"),
    ],
)
def test_intervals_that_are_refused(interval: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Every(interval)


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"coalesce": "newest"}, ConfigError, "every coalesce must be 'latest' or 'earliest' or 'all'"),
        ({"overlap": "drop"}, ConfigError, "every overlap must be 'skip' or 'queue' or 'allow'"),
        ({"max_instances": 0}, ConfigError, "every max_instances must be a whole number"),
        ({"max_instances": 3}, ConfigError, 'max_instances=3 means nothing with overlap="skip"; write overlap="allow"'),
        ({"jitter": -1}, ConfigError, "every jitter: -1 is negative"),
        ({"misfire_grace": 0}, ConfigError, "every misfire_grace must be more than 0"),
        ({"start_at": datetime(2027, 1, 1)}, ConfigError, "every start_at: .* has no zone"),  # noqa: DTZ001
        ({"start_at": "tomorrow"}, ConfigError, "every start_at: 'tomorrow' is no instant"),
        ({"start_at": 100, "end_at": 100}, ConfigError, "every end_at .* is not after start_at"),
        ({"name": "a.b"}, InvalidNameError, "a.b"),
        ({"name": ""}, InvalidNameError, "trigger"),
        ({"payload": {"x": [object()]}}, PayloadError, r'payload\["x"\]\[0\]'),
        ({"grace": "1h"}, ConfigError, "every has no option grace; there are name, payload, misfire_grace"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Every("5m", **options)


def test_instants_are_kept_in_utc() -> None:
    paris = datetime(2027, 1, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Paris"))
    every = Every("5m", start_at=paris, end_at=datetime(2028, 1, 1, tzinfo=UTC).timestamp())
    assert every.start_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert every.start_at is not None
    assert every.start_at.tzinfo is UTC
    assert every.end_at == datetime(2028, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    "zone, message",
    [
        ("Europe/Pariss", "timezone 'Europe/Pariss' is unknown; did you mean Europe/Paris"),
        ("+02:00", "timezone '\\+02:00' is unknown; write a name"),
        ("../etc/passwd", "is unknown"),
        ("Europe", "is unknown"),
        ("", "is unknown"),
        (2, "timezone must be a name"),
    ],
)
def test_zones_that_are_refused(zone: Any, message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Cron("0 2 * * *", timezone=zone)


def test_a_missing_zone_database_is_named_and_utc_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoneinfo, "available_timezones", set[str])
    zoneinfo.ZoneInfo.clear_cache()
    found = zoneinfo.TZPATH
    zoneinfo.reset_tzpath([])
    monkeypatch.setitem(__import__("sys").modules, "tzdata", None)
    try:
        with pytest.raises(
            ScheduleError, match=r"no time zone database .*install the package tzdata, or write timezone="
        ):
            Cron("0 2 * * *", timezone="Europe/Berlin")
        assert Cron("0 2 * * *", timezone="UTC").timezone == "UTC"
    finally:
        zoneinfo.reset_tzpath(found)


def test_an_event_trigger_keeps_its_parts() -> None:
    trigger = OnEvent("orders.*.paid", name="paid", filter={"total": {"gte": 100}}, stream="ORDERS")
    assert (trigger.subject, trigger.name, trigger.stream) == ("orders.*.paid", "paid", "ORDERS")
    assert trigger.filter is not None
    assert trigger.filter.matches({"total": 100})
    assert OnEvent("orders.>").filter is None


@pytest.mark.parametrize(
    "subject, message",
    [
        ("", "an event subject is a text"),
        (None, "an event subject is a text"),
        ("orders paid", "has a space or control character"),
        ("orders\r\nPUB x", "has a space or control character"),
        ("orders..paid", "has an empty part"),
        (".orders", "has an empty part"),
        ("orders.>.paid", "> stands at the end only"),
        ("orders.pa*", "'pa\\*' is no wildcard"),
        ("$JS.API.>", "belongs to the broker"),
        ("_INBOX.x", "belongs to the broker"),
        (">", "takes jetjobs' own messages too"),
        ("*.>", "takes jetjobs' own messages too"),
        ("*.*.>", "takes jetjobs' own messages too"),
        ("jetjobs.>", "takes jetjobs' own messages too"),
        ("jetjobs.shop.trigger.>", "takes jetjobs' own messages too"),
        ("*.*.*.*.*.*.*", "takes jetjobs' own messages too"),
        ("*.shop.call.billing.send", "takes jetjobs' own messages too"),
        ("a" * 1025, "is too long"),
    ],
)
def test_event_subjects_that_are_refused(subject: Any, message: str) -> None:
    with pytest.raises(InvalidNameError, match=message):
        OnEvent(subject)


@pytest.mark.parametrize(
    "subject", ["orders.paid", "orders.>", "*.paid", "*.*", "jetjobs.shop.events.>", "jetjobs.shop.events.FAILED.*.*.*"]
)
def test_event_subjects_that_are_kept(subject: str) -> None:
    assert OnEvent(subject).subject == subject


@pytest.mark.parametrize("stream", ["", "a.b", "a b", "a>", None.__class__])
def test_streams_that_are_refused(stream: Any) -> None:
    with pytest.raises(InvalidNameError, match="is no stream name"):
        OnEvent("orders.paid", stream=stream)


def test_an_event_trigger_with_another_subject_filter_or_stream_is_another_one() -> None:
    one = OnEvent("a", filter={"x": 1, "y": 2})
    others = [OnEvent("b", filter={"x": 1, "y": 2}), OnEvent("a"), OnEvent("a", filter={"x": 2, "y": 2})]
    digests = {each.digest for each in [one, *others, OnEvent("a", stream="S")]}
    assert len(digests) == 5
    assert OnEvent("a", name="renamed", filter={"y": 2, "x": 1}).digest == one.digest


def test_a_filter_written_in_another_order_is_the_same_one():
    """Two releases that differ in that alone share a queue group: else each event would become two runs."""
    one = OnEvent("a", filter={"total": {"gte": 1, "lt": 5}, "land": ["FR", "DE"], "kind": {"in": [1, "x", None]}})
    other = OnEvent("a", filter={"kind": {"in": [None, 1, "x"]}, "land": ("DE", "FR"), "total": {"lt": 5, "gte": 1}})
    assert one.digest == other.digest
    assert (
        OnEvent("a", filter={"total": {"gte": 5, "lt": 1}}).digest
        != OnEvent("a", filter={"total": {"gte": 1, "lt": 5}}).digest
    )


def test_two_of_a_kind_need_names() -> None:
    given = [Every("5m"), Cron("@daily"), Cron("@hourly", name="hourly")]
    assert [each.name for each in check_triggers(given)] == ["every", "cron", "hourly"]
    with pytest.raises(
        DeclarationError, match=r'two triggers are named "cron"; give each a name: Cron\(…, name="first"'
    ):
        check_triggers([Cron("@daily"), Cron("@hourly")])
    with pytest.raises(DeclarationError, match='two triggers are named "x"'):
        check_triggers([Cron("@daily", name="x"), Every("5m", name="x")])


@pytest.mark.parametrize("wrong", ["@daily", ["0 2 * * *"], [Every], None])
def test_only_triggers_are_triggers(wrong: Any) -> None:
    with pytest.raises(DeclarationError, match="triggers must be Cron, Every or OnEvent"):
        check_triggers(wrong)


def test_one_trigger_needs_no_list() -> None:
    assert check_triggers(Every("5m")) == (Every("5m"),)
    assert check_triggers(()) == ()


NAMES = st.text("ab.", min_size=1, max_size=4)


@given(st.tuples(NAMES, NAMES, NAMES), st.tuples(NAMES, NAMES, NAMES))
def test_schedule_ids_are_equal_only_for_the_same_names(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    ids = [schedule_id(JobAddress(module, job), name) for module, job, name in (one, other)]
    assert (ids[0] == ids[1]) is (one == other)


def test_a_schedule_keeps_its_id_when_its_line_changes() -> None:
    assert Cron("@daily").schedule_id(CLOSE) == Cron("@hourly", payload=1).schedule_id(CLOSE)
    assert Cron("@daily").schedule_id(CLOSE) == schedule_id(CLOSE, "cron")


def test_triggers_describe_themselves_as_plain_data() -> None:
    cron = Cron("0 2 * * *", timezone="Europe/Paris", payload=(1, 2), jitter="5s", start_at=0)
    assert cron.describe(CLOSE) == {
        "kind": "cron",
        "name": "cron",
        "schedule_id": schedule_id(CLOSE, "cron"),
        "payload": [1, 2],
        "misfire_grace": "1h",
        "coalesce": "latest",
        "overlap": "skip",
        "max_instances": 1,
        "jitter": "5s",
        "start_at": "1970-01-01T00:00:00+00:00",
        "end_at": None,
        "expression": "0 2 * * *",
        "timezone": "Europe/Paris",
    }
    assert Every("90s").describe(CLOSE)["interval"] == "1m30s"
    event = OnEvent("orders.paid", filter={"a": [1]})
    assert event.describe(CLOSE) == {
        "kind": "event",
        "name": "event",
        "subject": "orders.paid",
        "filter": {"a": [1]},
        "stream": None,
        "digest": event.digest,
    }
