"""Schedules as bytes, as the message the broker fires, as ticks and triggers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import headers, names, wire
from jetjobs._core.bodies import Body
from jetjobs._core.messages import Message, Trigger
from jetjobs._core.models import TriggerInfo
from jetjobs._core.occurrences import Tick
from jetjobs._core.schedule_messages import read_tick, schedule_message, start_message, tick_trigger
from jetjobs._core.schedule_record import Counters, ScheduleRecord, ScheduleState, Stretch
from jetjobs._core.starting import Start
from jetjobs.errors import PayloadError, PayloadInvalidError
from tests.unit.schedules_made import NOON, at, cron, every

_packb = cast("Callable[..., bytes]", msgpack.packb)
_unpackb = cast("Callable[..., Any]", msgpack.unpackb)

instants = st.datetimes(timezones=st.just(UTC))
spans = st.integers(0, 10**9).map(lambda n: timedelta(milliseconds=n))
texts = st.text(max_size=8)
counts = st.integers(0, 2**40)
schedules = st.builds(
    ScheduleRecord,
    schedule_id=texts,
    name=texts,
    module=texts,
    job=texts,
    kind=st.sampled_from(["cron", "every"]),
    line=texts,
    interval=st.none() | spans,
    payload_body=st.none() | st.builds(Body, st.binary(max_size=9), st.sampled_from(["msgpack", "json"])),
    start_at=st.none() | instants,
    misfire_grace=st.none() | spans,
    coalesce=st.sampled_from(["latest", "earliest", "all"]),
    overlap=st.sampled_from(["skip", "queue", "allow"]),
    jitter=st.none() | spans,
    origin=st.sampled_from(["code", "api"]),
    state=st.sampled_from(ScheduleState),
    cursor=instants,
    open=st.lists(instants, max_size=3).map(tuple),
    active=st.lists(instants, max_size=3).map(tuple),
    skipping=st.none() | st.builds(Stretch, instants, instants, counts),
    last_ended_at=st.none() | instants,
    counters=st.builds(Counters, counts, counts, counts, counts, counts),
    last_error=st.none() | texts,
    revision=st.integers(1, 99),
    version=st.none() | texts,
    extra=st.dictionaries(texts.map(lambda name: "x-" + name), counts, max_size=2),
)


class TestBytes:
    @given(schedules)
    def test_a_schedule_comes_back(self, schedule: ScheduleRecord):
        assert wire.unpack_schedule(wire.pack_schedule(schedule)) == schedule

    def test_a_plain_one_is_small_and_readable(self):
        raw = _unpackb(wire.pack_schedule(every(jitter=timedelta(seconds=2))), timestamp=3)
        assert raw["v"] == 1
        assert (raw["interval_ms"], raw["jitter_ms"], raw["misfire_grace_ms"]) == (10_000, 2_000, 3_600_000)
        assert "open" not in raw
        assert "coalesce" not in raw

    def test_a_full_queue_fits(self):
        schedule = every(open=tuple(at(n) for n in range(1_000)))
        assert len(wire.pack_schedule(schedule)) < 16 * 1024

    @pytest.mark.parametrize(
        "changes",
        [{"v": 2}, {"state": "ASLEEP"}, {"kind": "at"}, {"overlap": 1}, {"open": [5]}, {"counters": 3}, {"name": None}],
    )
    def test_what_is_none_is_refused(self, changes: dict[str, Any]):
        raw = _unpackb(wire.pack_schedule(every()), timestamp=3) | changes
        with pytest.raises(PayloadInvalidError):
            wire.unpack_schedule(_packb(raw, datetime=True))

    def test_what_has_no_place_is_refused(self):
        with pytest.raises(PayloadError):
            wire.pack_schedule(replace(every(), last_error=cast("Any", object())))

    def test_counters_say_how_many_were_decided(self):
        assert Counters(1, 9, 2, 3, 4).decided == 10


class TestNames:
    def test_keys(self):
        assert names.schedule_key("0f3a") == "id.0f3a"
        assert names.schedule_name_key("billing.send/cron") == "name.billing=2Esend=2Fcron"


class TestMessage:
    def test_an_interval(self):
        made = schedule_message("shop", every("90s"))
        assert made.subject == "jetjobs.shop.schedule.b.j.tick.s"
        assert made.data == b""
        assert made.headers == {
            "Jetjobs-Trigger": '{"kind":"every","schedule_id":"s"}',
            "Jetjobs-Schedule": '{"line":"90s","zone":"UTC","revision":1}',
            "Nats-Schedule": "@every 90s",
            "Nats-Schedule-Target": "jetjobs.shop.trigger.b.j.tick.s",
            "Nats-TTL": "never",
        }

    def test_a_cron_line(self):
        schedule = cron("0 2 * * *", "Europe/Paris", payload_body=Body(b"{}", "json"))
        made = schedule_message("shop", schedule, expires_in=timedelta(days=7))
        assert made.data == b"{}"
        assert made.headers == {
            "Content-Type": "application/json",
            "Jetjobs-Trigger": '{"kind":"cron","schedule_id":"s"}',
            "Jetjobs-Schedule": '{"line":"0 2 * * *","zone":"Europe/Paris","revision":1}',
            "Jetjobs-Expires-In": "604800000",
            "Nats-Schedule": "0 0 2 * * *",
            "Nats-Schedule-Target": "jetjobs.shop.trigger.b.j.tick.s",
            "Nats-Schedule-Time-Zone": "Europe/Paris",
            "Nats-TTL": "never",
        }
        packed = schedule_message("shop", replace(schedule, payload_body=Body(b"\x80")))
        assert packed.headers["Content-Type"] == "application/msgpack"


def fired(schedule: ScheduleRecord, upcoming: str, stored_at: datetime, **changes: str | None) -> Message:
    """The tick that the broker makes of a schedule's message."""
    made = schedule_message("shop", schedule)
    kept = {name: value for name, value in made.headers.items() if not name.startswith("Nats-")}
    added = {"Nats-Scheduler": made.subject, "Nats-Schedule-Next": upcoming}
    found = {**kept, **added, **{name.replace("_", "-"): value for name, value in changes.items()}}
    there = {name: value for name, value in found.items() if value is not None}
    return Message(made.headers["Nats-Schedule-Target"], there, made.data, 7, stored_at, 1)


class TestTick:
    def test_of_an_interval(self):
        late = fired(every("20s"), "2030-05-01T12:00:40Z", at(35))
        assert read_tick(late) == Tick(at(20), "20s", "UTC", 1)

    def test_of_a_cron_line_in_its_zone(self):
        schedule = cron("30 2 * * *", "Europe/Paris")
        zone = ZoneInfo("Europe/Paris")
        # On 27 October 2030 clocks go back from 3 to 2: the line fires twice.
        first = datetime(2030, 10, 27, 2, 30, tzinfo=zone)
        found = read_tick(fired(schedule, "2030-10-27T02:30:00+01:00", first.astimezone(UTC)))
        assert isinstance(found, Tick)
        assert found.occurrence == first.astimezone(UTC)

    def test_the_last_one_has_no_next(self):
        found = read_tick(fired(cron("0 12 * * *"), "purge", at(0.3)))
        assert isinstance(found, Tick)
        assert found.occurrence == NOON

    @pytest.mark.parametrize(
        "came, upcoming, differs",
        [
            ("2030-05-01T12:00:00.3Z", "2030-05-02T14:00:00+02:00", False),
            ("2030-05-01T18:00:00Z", "2030-05-02T14:00:00+02:00", False),  # the broker was away
            ("2030-05-01T13:00:00.3Z", "2030-05-02T14:00:00+01:00", True),  # there it is winter still
            ("2030-05-01T11:00:00.3Z", "2030-05-02T14:00:00+03:00", True),
            ("2030-05-01T18:00:00Z", "purge", False),
        ],
    )
    def test_of_a_broker_with_other_rules_for_the_zone(self, came: str, upcoming: str, *, differs: bool):
        found = read_tick(fired(cron("0 14 * * *", "Europe/Paris"), upcoming, datetime.fromisoformat(came)))
        assert isinstance(found, Tick)
        assert found.zone_differs is differs

    def test_of_a_broker_with_other_rules_where_nothing_comes_any_more(self):
        schedule = cron("0 14 29 2 *", "Europe/Paris")
        stored_at = datetime(9988, 3, 1, 14, tzinfo=UTC)
        found = read_tick(fired(schedule, "9988-03-02T14:00:00+01:00", stored_at))
        assert isinstance(found, Tick)
        assert found.zone_differs

    @pytest.mark.parametrize(
        "changes",
        [
            {"Nats_Schedule_Next": None},
            {"Nats_Schedule_Next": "tomorrow"},
            {"Jetjobs_Schedule": None},
            {"Jetjobs_Schedule": "[]"},
            {"Jetjobs_Schedule": '{"line":"20s","zone":"UTC","revision":true}'},
            {"Jetjobs_Schedule": '{"line":"0 0 31 2 *","zone":"UTC","revision":1}'},
            {"Jetjobs_Schedule": '{"line":"* * * * *","zone":"Nowhere/Here","revision":1}'},
            {"Jetjobs_Schedule": '{"line":"0s","zone":"UTC","revision":1}'},
            {"Jetjobs_Schedule": "[" * 100_000},
        ],
    )
    def test_what_names_no_occurrence_says_why(self, changes: dict[str, str | None]):
        found = read_tick(fired(every("20s"), "2030-05-01T12:00:40Z", at(20), **changes))
        assert isinstance(found, str)
        assert len(found) <= 500

    def test_the_first_instant_of_all_time_has_none_before(self):
        found = read_tick(fired(every("20s"), "0001-01-01T00:00:01Z", datetime(1, 1, 1, tzinfo=UTC)))
        assert found == "'20s' has no occurrence"

    def test_it_is_its_occurrences_trigger(self):
        schedule = cron("0 14 * * *", "Europe/Paris", payload_body=Body(b"\x01"))
        message = fired(schedule, "2030-05-02T14:00:00+02:00", at(0.2))
        plain, tick = headers.read_trigger("shop", message), read_tick(message)
        assert isinstance(plain, Trigger)
        assert isinstance(tick, Tick)
        trigger = tick_trigger(schedule, tick, plain)
        assert trigger.key == ("b", "j", schedule.run_id(NOON))
        assert trigger.info == TriggerInfo("cron", "s", NOON)
        assert trigger.info.scheduled_for is not None
        assert trigger.info.scheduled_for.isoformat() == "2030-05-01T14:00:00+02:00"
        assert (trigger.body, trigger.scheduled_for, trigger.sequence) == (Body(b"\x01"), NOON, 7)

    def test_an_edit_before_the_occurrence_counts_though_the_message_is_older(self):
        old = every("20s", payload_body=Body(b"\x01"))
        message = fired(old, "2030-05-01T12:00:40Z", at(20))
        plain, tick = headers.read_trigger("shop", message), read_tick(message)
        assert isinstance(plain, Trigger)
        assert isinstance(tick, Tick)
        edited = replace(old, payload_body=Body(b"\x02"), revision=2, updated_at=at(10))
        assert tick_trigger(edited, tick, plain).body == Body(b"\x02")
        assert tick_trigger(replace(edited, updated_at=at(30)), tick, plain).body == Body(b"\x01")


class TestStart:
    def test_at_once(self):
        schedule = every(payload_body=Body(b"\x01"))
        start = Start(at(10), schedule.run_id(at(10)), at(10))
        made = start_message("shop", schedule, start, at(10), expires_in=timedelta(days=7))
        assert made.subject == f"jetjobs.shop.trigger.b.j.run.{start.run_id}"
        assert made.data == b"\x01"
        assert made.headers["Jetjobs-Scheduled-For"] == "2030-05-01T12:00:10.000Z"
        assert made.headers["Jetjobs-Expires-In"] == "604800000"
        assert "Jetjobs-Start-Deadline" not in made.headers

    def test_later_by_its_jitter(self):
        schedule = every()
        start = Start(at(10), schedule.run_id(at(10)), at(12))
        made = start_message("shop", schedule, start, at(10))
        assert made.subject == f"jetjobs.shop.schedule.b.j.run.{start.run_id}.1"
        assert made.headers["Nats-Schedule"] == "@at 2030-05-01T12:00:12.000Z"
