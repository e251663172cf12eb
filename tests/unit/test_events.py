"""What events become."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs import OnEvent
from jetjobs._core import headers, names
from jetjobs._core.bodies import Body
from jetjobs._core.codec import encode
from jetjobs._core.events import Event, Filtered, Unreadable, Wanted, event_trigger, judge_event, stream_event
from jetjobs._core.messages import Message, Trigger
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._core.run_ids import is_run_id

THANK = JobAddress("billing", "thank")
LARGE = OnEvent("orders.*", filter={"total": {"gte": 100}})
ANY = OnEvent("orders.*")
AT = datetime(2030, 5, 1, 12, tzinfo=UTC)


def event(data: bytes = b'{"total": 120}', subject: str = "orders.paid", **given: str) -> Event:
    return Event(subject, {name.replace("_", "-"): value for name, value in given.items()}, data)


def wanted(it: Event, trigger: OnEvent = ANY, address: JobAddress = THANK) -> Wanted:
    verdict = judge_event(it, trigger, address, "shop")
    assert isinstance(verdict, Wanted)
    return verdict


class TestFilter:
    def test_what_does_not_pass_is_filtered(self):
        assert judge_event(event(b'{"total": 99}'), LARGE, THANK, "shop") == Filtered()
        assert judge_event(event(b"{}"), LARGE, THANK, "shop") == Filtered()
        assert judge_event(event(b""), LARGE, THANK, "shop") == Filtered()
        assert wanted(event(), LARGE) == Wanted(None, "json")

    def test_the_ends_of_a_renamed_jobs_runs_are_its_own_under_every_name(self):
        ends = OnEvent("jetjobs.shop.events.>")

        def hears(job: str) -> bool:
            it = event(subject=f"jetjobs.shop.events.FAILED.billing.{job}.r1")
            others = {JobAddress("billing", "thanks")}
            return isinstance(judge_event(it, ends, THANK, "shop", others=others), Wanted)

        assert [job for job in ("thank", "thanks", "thanked") if hears(job)] == ["thanked"]

    @pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b"NaN", b'{"total": 1e999}', b"[" * 100_000])
    def test_what_nobody_can_read_is_said_without_its_content(self, body: bytes):
        verdict = judge_event(event(body), LARGE, THANK, "shop")
        assert isinstance(verdict, Unreadable)
        assert verdict.reason

    @pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b""])
    def test_without_a_filter_the_body_is_not_looked_at(self, body: bytes):
        assert wanted(event(body)) == Wanted(None, "json")

    @pytest.mark.parametrize(
        "kind, encoding",
        [
            ("application/msgpack", "msgpack"),
            ("Application/X-MsgPack; v=1", "msgpack"),
            ("application/vnd.msgpack", "msgpack"),
            ("application/json; charset=utf-8", "json"),
            ("text/plain", "json"),
            ("", "json"),
        ],
    )
    @pytest.mark.parametrize("name", ["Content_Type", "content_type"])
    def test_the_content_type_tells_the_encoding(self, kind: str, encoding: str, name: str):
        body = encode({"total": 120}) if encoding == "msgpack" else b'{"total": 120}'
        assert wanted(event(body, **{name: kind}), LARGE).encoding == encoding

    @given(st.binary(max_size=60), st.sampled_from(["application/json", "application/msgpack", ""]))
    def test_it_never_raises(self, body: bytes, kind: str):
        judge_event(event(body, Content_Type=kind), LARGE, THANK, "shop")


class TestIdentity:
    def test_an_id_names_one_run_per_job_and_subject(self):
        same = {wanted(event(body, Nats_Msg_Id="o-1")).run_id for body in (b"1", b"2")}
        assert same == {names.run_id_for_event("billing", "thank", "orders.paid", "o-1")}
        others = {
            wanted(event(Nats_Msg_Id="o-2")).run_id,
            wanted(event(subject="orders.late", Nats_Msg_Id="o-1")).run_id,
            wanted(event(Nats_Msg_Id="o-1"), address=JobAddress("billing", "other")).run_id,
        }
        assert len(same | others) == 4

    def test_triggers_of_one_job_agree_on_it(self):
        assert wanted(event(Nats_Msg_Id="o-1"), LARGE) == wanted(event(nats_msg_id="o-1"), ANY)

    def test_without_one_there_is_none(self):
        assert wanted(event()).run_id is None
        assert wanted(event(Nats_Msg_Id="")).run_id is None

    @given(st.text(min_size=1), st.text())
    def test_any_text_gives_a_run_id(self, message_id: str, subject: str):
        assert is_run_id(wanted(event(subject=subject, Nats_Msg_Id=message_id)).run_id)

    def test_a_place_in_a_stream_is_an_identity(self):
        first = Message("orders.paid", {}, b"{}", 7, AT)
        again = Message("orders.paid", {}, b"{}", 7, AT, num_delivered=3)
        made_anew = Message("orders.paid", {}, b"{}", 7, AT + timedelta(microseconds=1))
        ids = [wanted(stream_event(it, "ORDERS")).run_id for it in (first, again, made_anew)]
        assert ids[0] == ids[1] != ids[2]
        assert wanted(stream_event(first, "OTHER")).run_id != ids[0]
        assert None not in ids

    def test_a_message_id_counts_more_than_the_place(self):
        placed = stream_event(Message("orders.paid", {"Nats-Msg-Id": "o-1"}, b"{}", 7, AT), "ORDERS")
        assert wanted(placed).run_id == wanted(event(Nats_Msg_Id="o-1")).run_id


class TestTrigger:
    RUN = RunKey("billing", "thank", "e-x")

    def read(self, it: Event, body: Body | None) -> Trigger:
        made = event_trigger("shop", self.RUN, it, body, expires_in=timedelta(hours=24))
        found = headers.read_trigger("shop", Message(made.subject, made.headers, made.data, 1, AT))
        assert isinstance(found, Trigger)
        return found

    @pytest.mark.parametrize(
        "encoding, data", [("json", b'{"total": 1}'), ("msgpack", encode({"total": 1})), ("json", b"{")]
    )
    def test_the_body_goes_on_as_it_came(self, encoding: Any, data: bytes):
        assert self.read(event(data), Body(data, encoding)).body == Body(data, encoding)

    def test_it_says_what_asked_and_how_long_it_may_wait(self):
        found = self.read(event(b"", subject="orders.é.paid", traceparent="00-1-2-01"), None)
        assert (found.key, found.body, found.turn) == (self.RUN, None, 1)
        assert (found.info.kind, found.info.event_subject) == ("event", "orders.é.paid")
        assert found.expires_in == timedelta(hours=24)
        assert found.traceparent == "00-1-2-01"

    def test_a_trace_without_end_stays_behind(self):
        assert self.read(event(traceparent="0" * 5000), None).traceparent is None


class TestNames:
    def test_projects_and_filters_have_consumers_of_their_own(self):
        made = {
            names.event_consumer(project, THANK, trigger.digest) for project in ("a", "b") for trigger in (ANY, LARGE)
        }
        assert len(made) == 4
        assert all(name.startswith("billing=_thank=_") for name in made)
        assert names.event_consumer("a", THANK, ANY.digest) == names.event_consumer(
            "a", THANK, OnEvent("orders.*").digest
        )
