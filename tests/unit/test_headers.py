from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import headers, names, payload_subjects
from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.messages import BadTrigger, Message, Outgoing, Trigger
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus, TriggerInfo, TriggerKind
from jetjobs._core.readers import TRIGGER_KINDS

AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
RUN = RunKey("billing.invoices", "send", "01abc")
SUBJECT = names.trigger_subject("shop", RUN)
CLAIM = ClaimCheck(payload_subjects.payload_subject("shop", "01abc", "in", "f00"), 3, 300_000, "f" * 64)

texts = st.text(st.characters(exclude_categories=("Cs",)))
instants = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1)).map(  # noqa: DTZ001
    lambda at: at.replace(microsecond=at.microsecond // 1000 * 1000, tzinfo=UTC)
)
infos = st.builds(
    TriggerInfo,
    kind=st.sampled_from(sorted(TRIGGER_KINDS)),
    schedule_id=st.none() | texts,
    scheduled_for=st.none() | st.datetimes(timezones=st.just(UTC) | st.just(ZoneInfo("Europe/Paris"))),
    event_subject=st.none() | texts,
    parent_run_id=st.none() | texts,
    retry_of=st.none() | texts,
)
bodies = st.none() | st.builds(
    Body,
    st.binary(min_size=1),
    st.sampled_from(["msgpack", "json"]),
) | st.sampled_from([Body(claim=CLAIM), Body(encoding="json", claim=CLAIM)])  # fmt: skip


def delivered(outgoing: Outgoing, extra: Mapping[str, str] | None = None) -> Message:
    return Message(outgoing.subject, {**outgoing.headers, **(extra or {})}, outgoing.data, 7, AT, 1)


def message(given: Mapping[str, str] | None = None, data: bytes = b"{}", subject: str = SUBJECT) -> Message:
    return Message(subject, given or {}, data, 7, AT, 1)


def good(found: Trigger | BadTrigger) -> Trigger:
    assert isinstance(found, Trigger), found
    return found


def bad(found: Trigger | BadTrigger) -> BadTrigger:
    assert isinstance(found, BadTrigger), found
    assert (found.sequence, found.stored_at, found.num_delivered) == (7, AT, 1)
    assert len(found.reason) <= 500
    return found


class TestWritten:
    def test_the_common_message_says_only_what_it_holds(self) -> None:
        assert headers.trigger_message("shop", RUN, Body(b"\x80")) == Outgoing(
            "jetjobs.shop.trigger.billing=2Einvoices.send.run.01abc", {"Content-Type": "application/msgpack"}, b"\x80"
        )

    def test_a_message_without_payload_has_no_header_at_all(self) -> None:
        assert headers.trigger_message("shop", RUN, None, info=TriggerInfo()) == Outgoing(SUBJECT, {}, b"")

    def test_every_header(self) -> None:
        made = headers.trigger_message(
            "shop",
            RUN,
            Body(encoding="json", claim=CLAIM),
            turn=2,
            info=TriggerInfo("cron", "s1", AT.astimezone(ZoneInfo("Europe/Paris"))),
            key="invoice é 7%",
            scheduled_for=AT,
            start_deadline=AT + timedelta(hours=1),
            expires_in=timedelta(seconds=1.5),
            expires_at=AT.astimezone(timezone(timedelta(hours=5))),
            payload_schema="abc",
            traceparent="00-x",
        )
        assert made.data == b""
        assert made.headers == {
            "Content-Type": "application/json",
            "Jetjobs-Payload": '{"subject":"jetjobs.shop.payload.01abc.in.f00","chunks":3,"size":300000,"sha256":"'
            + "f" * 64
            + '"}',
            "Jetjobs-Turn": "2",
            "Jetjobs-Trigger": '{"kind":"cron","scheduled_for":"2026-03-01T13:00:00.250000+01:00[Europe/Paris]",'
            '"schedule_id":"s1"}',
            "Jetjobs-Key": "invoice%20%C3%A9%207%25",
            "Jetjobs-Expires-In": "1500",
            "Jetjobs-Scheduled-For": "2026-03-01T12:00:00.250Z",
            "Jetjobs-Start-Deadline": "2026-03-01T13:00:00.250Z",
            "Jetjobs-Expires-At": "2026-03-01T12:00:00.250Z",
            "Jetjobs-Payload-Schema": "abc",
            "traceparent": "00-x",
        }

    def test_a_delayed_run_is_a_schedule_that_fires_once(self) -> None:
        made = headers.delayed_message("shop", RUN, AT, Body(b"\x80"), key="k")
        assert made.subject == "jetjobs.shop.schedule.billing=2Einvoices.send.run.01abc.1"
        assert made.data == b"\x80"
        assert made.headers == {
            "Content-Type": "application/msgpack",
            "Jetjobs-Key": "k",
            "Nats-Schedule": "@at 2026-03-01T12:00:00.250Z",
            "Nats-Schedule-Target": SUBJECT,
            "Nats-TTL": "never",
        }

    def test_no_message_carries_an_id_the_broker_would_drop_it_by(self) -> None:
        made = headers.delayed_message("shop", RUN, AT, None, key="k")
        assert headers.MSG_ID not in made.headers

    def test_a_retry_waits_as_a_schedule_of_its_turn(self) -> None:
        record = RunRecord(
            "01abc",
            "billing.invoices",
            "send",
            RunStatus.RETRYING,
            key="k",
            turn=3,
            trigger=TriggerInfo("event", event_subject="orders.paid"),
            payload_body=Body(b"\x80"),
            scheduled_for=AT,
            start_deadline=AT,
            expires_at=AT + timedelta(days=7),
            retry_at=AT + timedelta(minutes=1),
        )
        made = headers.retry_message("shop", record, payload_schema="abc", traceparent="00-x")
        assert made.subject == "jetjobs.shop.schedule.billing=2Einvoices.send.run.01abc.3"
        assert made.headers["Nats-Schedule"] == "@at 2026-03-01T12:01:00.250Z"
        fired = good(headers.read_trigger("shop", message(made.headers, made.data)))
        assert fired.turn == 3
        assert fired.info == record.trigger
        assert fired.body == record.payload_body
        assert fired.idempotency_key == "k"
        assert fired.expires_at == record.expires_at
        assert fired.scheduled_for == AT
        assert fired.start_deadline is None
        assert (fired.payload_schema, fired.traceparent) == ("abc", "00-x")

    def test_only_a_retrying_run_has_a_next_message(self) -> None:
        with pytest.raises(ValueError, match="retry_at"):
            headers.retry_message("shop", RunRecord("x", "m", "j", RunStatus.RUNNING))


class TestRoundTrip:
    @given(
        bodies,
        st.fixed_dictionaries(
            {},
            optional={
                "turn": st.integers(1, 10**9),
                "info": infos,
                "scheduled_for": instants,
                "start_deadline": instants,
                "expires_at": instants,
                "expires_in": st.integers(0, 10**11).map(lambda ms: timedelta(milliseconds=ms)),
                "payload_schema": st.just("0af3"),
                "traceparent": st.just("00-ab-cd-01"),
                "key": texts.filter(bool),
            },
        ),
    )
    def test_what_is_written_is_read(self, body: Body | None, described: dict[str, Any]) -> None:
        made = headers.trigger_message("shop", RUN, body, **described)
        assert all(text.isascii() and text.isprintable() for text in made.headers.values())
        found = good(headers.read_trigger("shop", delivered(made, {"Nats-Expected-Last-Subject-Sequence": "0"})))
        assert found.key == RUN
        assert found.body == body
        assert (found.sequence, found.stored_at, found.num_delivered) == (7, AT, 1)
        assert found.subject_kind == "run"
        defaults = {"turn": 1, "info": TriggerInfo()}
        for name, reader in (("key", "idempotency_key"), *((name, name) for name in described if name != "key")):
            assert getattr(found, reader) == described.get(name, defaults.get(name))

    @given(instants)
    def test_instants(self, at: datetime) -> None:
        text = headers.write_instant(at)
        assert len(text) == 24
        assert headers.read_instant(text) == at

    def test_every_kind_of_trigger_is_known(self) -> None:
        assert set(get_args(TriggerKind)) == TRIGGER_KINDS


class TestFromAnyLanguage:
    def test_a_bare_publish_is_json_and_names_its_run_by_the_subject(self) -> None:
        found = good(headers.read_trigger("shop", message(data=b'{"id": 7}')))
        assert found.key == RUN
        assert found.body == Body(b'{"id": 7}', "json")
        assert found.info.kind == "manual"
        assert found.turn == 1

    def test_nothing_at_all_is_no_payload(self) -> None:
        assert good(headers.read_trigger("shop", message(data=b""))).body is None
        assert good(headers.read_trigger("shop", message({"Content-Type": "application/json"}, b""))).body is None

    @pytest.mark.parametrize(
        "given,data,encoding",
        [
            ({"Content-Type": "application/json"}, b"7", "json"),
            ({"content-type": "Application/JSON; charset=utf-8"}, b"7", "json"),
            ({"Content-Type": "application/msgpack"}, b"7", "msgpack"),
            ({"traceparent": "00-x"}, b'{"id": 7}', "json"),
            ({"traceparent": "00-x"}, b"\x81\xa2id\x07", "msgpack"),
            ({}, b"\x81\xa2id\x07", "json"),
        ],
    )
    def test_encodings(self, given: dict[str, str], data: bytes, encoding: str) -> None:
        body = good(headers.read_trigger("shop", message(given, data))).body
        assert body is not None
        assert body.encoding == encoding

    def test_header_names_in_any_case(self) -> None:
        found = good(headers.read_trigger("shop", message({"jetjobs-key": "inv-7", "Traceparent": "00-x"})))
        assert (found.idempotency_key, found.traceparent) == ("inv-7", "00-x")

    @pytest.mark.parametrize("written,key", [("50%", "50%"), ("é", "é"), ("a%20b", "a b"), ("a b", "a b")])
    def test_keys_written_plainly(self, written: str, key: str) -> None:
        assert good(headers.read_trigger("shop", message({"Jetjobs-Key": written}))).idempotency_key == key

    def test_offsets_are_brought_to_utc(self) -> None:
        found = good(headers.read_trigger("shop", message({"Jetjobs-Expires-At": "2026-03-01T13:00:00.25+01:00"})))
        assert found.expires_at == AT
        assert found.expires_at is not None
        assert found.expires_at.tzinfo is UTC

    def test_a_tick_carries_its_schedules_id(self) -> None:
        subject = names.tick_subject("shop", JobAddress("m", "j"), "s1")
        found = good(headers.read_trigger("shop", message({"Nats-Schedule-Next": "purge"}, b"", subject)))
        assert (found.subject_kind, found.key) == ("tick", RunKey("m", "j", "s1"))

    def test_parts_of_a_description_unknown_here_are_ignored(self) -> None:
        found = good(headers.read_trigger("shop", message({"Jetjobs-Trigger": '{"kind":"child","colour":1}'})))
        assert found.info == TriggerInfo("child")
        assert good(headers.read_trigger("shop", message({"Jetjobs-Trigger": "{}"}))).info == TriggerInfo()


class TestBad:
    @pytest.mark.parametrize(
        "subject",
        ["jetjobs.shop.trigger.m.j.high.x", "jetjobs.other.trigger.m.j.run.x", "jetjobs.shop.trigger.=4.j.run.x"],
    )
    def test_wrong_tokens_name_no_run(self, subject: str) -> None:
        found = bad(headers.read_trigger("shop", message(subject=subject)))
        assert found.key is None

    @pytest.mark.parametrize("run_id", ["x" * 129, "x" * 3000, "ü", "a$b"])
    def test_an_impossible_run_id_is_told_about_under_a_safe_one(self, run_id: str) -> None:
        found = bad(headers.read_trigger("shop", message(subject="jetjobs.shop.trigger.m.j.run." + run_id)))
        safe = names.safe_run_id(run_id)
        assert names.is_run_id(safe)
        assert found.key == RunKey("m", "j", safe)

    @pytest.mark.parametrize("run_id", ["x" * 128, "a=2Eb", "-"])
    def test_a_possible_run_id_is_kept(self, run_id: str) -> None:
        subject = "jetjobs.shop.trigger.m.j.run." + run_id
        assert good(headers.read_trigger("shop", message(subject=subject))).key.run_id == run_id

    @pytest.mark.parametrize(
        "name,text",
        [
            ("Content-Type", "text/plain"),
            ("Content-Type", ""),
            ("Jetjobs-Turn", "0"),
            ("Jetjobs-Turn", "-1"),
            ("Jetjobs-Turn", "one"),
            ("Jetjobs-Turn", "²"),
            ("Jetjobs-Turn", "1" * 5000),
            ("Jetjobs-Turn", ""),
            ("Jetjobs-Trigger", "{"),
            ("Jetjobs-Trigger", "[]"),
            ("Jetjobs-Trigger", "[" * 100_000),
            ("Jetjobs-Trigger", '{"kind":"magic"}'),
            ("Jetjobs-Trigger", '{"kind":["cron"]}'),
            ("Jetjobs-Trigger", '{"kind":"cron","schedule_id":7}'),
            ("Jetjobs-Trigger", '{"kind":"cron","scheduled_for":7}'),
            ("Jetjobs-Trigger", '{"kind":"cron","scheduled_for":"soon"}'),
            ("Jetjobs-Trigger", '{"kind":"cron","scheduled_for":"2026-03-01T12:00:00"}'),
            ("Jetjobs-Key", ""),
            ("Jetjobs-Key", "%ff"),
            ("Jetjobs-Key", "k" * 5000),
            ("Jetjobs-Scheduled-For", "2026-03-01T12:00:00"),
            ("Jetjobs-Scheduled-For", "2026-03-01"),
            ("Jetjobs-Start-Deadline", "tomorrow"),
            ("Jetjobs-Expires-At", "0001-01-01T00:00:00+23:00"),
            ("Jetjobs-Expires-In", "1.5"),
            ("Jetjobs-Expires-In", "9" * 13),
            ("Jetjobs-Payload", "{}"),
            ("Jetjobs-Payload", '{"subject":"s","chunks":true,"size":1,"sha256":"x"}'),
            ("Jetjobs-Payload", '{"subject":"s","chunks":-1,"size":1,"sha256":"x"}'),
            ("Jetjobs-Payload", f'{{"subject":"s","chunks":1,"size":{10**30},"sha256":"{"0" * 64}"}}'),
            ("Jetjobs-Payload", f'{{"subject":"s","chunks":1,"size":1,"sha256":"{"0" * 65}"}}'),
            ("Jetjobs-Turn", "1000000001"),
            ("Jetjobs-Payload", '{"subject":"s","chunks":1,"size":-1,"sha256":"x"}'),
            ("Jetjobs-Payload", '{"subject":"jetjobs.other.payload.x.in.y","chunks":1,"size":1,"sha256":"x"}'),
        ],
    )
    def test_a_header_that_cant_be_read_is_named(self, name: str, text: str) -> None:
        found = bad(headers.read_trigger("shop", message({name: text})))
        assert found.key == RUN
        assert name in found.reason

    @pytest.mark.parametrize(
        "schedule_id, given", [("s1", {"Jetjobs-Turn": "0"}), ("s1", {"Jetjobs-Payload": "{}"}), ("ü", {})]
    )
    def test_a_bad_tick_names_no_run(self, schedule_id: str, given: dict[str, str]) -> None:
        """Its subject names a schedule: a FAILED run of that name would be nobody's."""
        subject = "jetjobs.shop.trigger.m.j.tick." + schedule_id
        assert bad(headers.read_trigger("shop", message(given, subject=subject))).key is None

    @given(st.dictionaries(st.sampled_from([*headers.ALL, "x"]) | st.text(), st.text()), st.binary(), st.text())
    def test_nothing_raises(self, given: dict[str, str], data: bytes, subject: str) -> None:
        for where in (SUBJECT, subject, "jetjobs.shop.trigger.m.j.run." + subject):
            assert isinstance(headers.read_trigger("shop", message(given, data, where)), Trigger | BadTrigger)


def test_a_claim_check_of_another_project_is_a_bad_trigger():
    foreign = '{"subject":"jetjobs.other.payload.r.in.x","chunks":1,"size":1,"sha256":"' + "0" * 64 + '"}'
    found = headers.read_trigger("shop", message({headers.PAYLOAD: foreign}))
    assert isinstance(found, BadTrigger)
    assert found.key is not None
    assert "this project's payloads" in found.reason
