from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetjobs._core import wire
from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.models import Attempt, LogLine, Owner, Progress, RunError, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.policy import JobRetention
from jetjobs._core.readers import TRIGGER_KINDS
from jetjobs._core.retention import describe_retention
from jetjobs.errors import PayloadError, PayloadInvalidError

AT = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)


_packb = cast("Callable[..., bytes]", msgpack.packb)


_unpackb = cast("Callable[..., Any]", msgpack.unpackb)


texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


counts = st.integers(0, 2**40)


instants = st.datetimes(timezones=st.just(UTC))


jsons = st.recursive(st.none() | st.booleans() | counts | texts, lambda p: st.lists(p, max_size=3), max_leaves=5)


claims = st.builds(ClaimCheck, texts, counts, counts, texts)


bodies = st.builds(Body, st.binary(max_size=20), st.sampled_from(["msgpack", "json"]), st.none() | claims)


errors = st.builds(RunError, texts, texts, texts)


infos = st.builds(
    TriggerInfo,
    st.sampled_from(sorted(TRIGGER_KINDS)),
    st.none() | texts,
    st.none() | st.datetimes(timezones=st.just(UTC) | st.just(ZoneInfo("Europe/Paris"))),
    st.none() | texts,
    st.none() | texts,
    st.none() | texts,
)


logs = st.builds(LogLine, instants, texts, texts, st.dictionaries(texts, jsons, max_size=3))


attempts = st.builds(Attempt, counts, texts, st.none() | instants, st.none() | instants, texts, st.none() | errors)


unknown = st.dictionaries(texts.map(lambda name: "x-" + name), jsons, max_size=3)


optional_texts = ("key", "payload_digest", "version", "claim", "skip_reason", "host_id", "schedule_id")


optional_instants = ("fired_at", "scheduled_for", "start_deadline", "expires_at", "created_at", "started_at")


records = st.builds(
    RunRecord,
    texts,
    texts,
    texts,
    st.sampled_from(RunStatus),
    **{name: st.none() | texts for name in (*optional_texts, "parent_run_id", "retry_of")},
    **{name: st.none() | instants for name in (*optional_instants, "finished_at", "heartbeat_at", "retry_at")},
    **dict.fromkeys(("starts", "snoozes", "interruptions", "turn", "max_attempts"), counts),
    cancel_asked=st.booleans(),
    owner=st.none() | st.builds(Owner, counts, instants, counts, texts),
    trigger=infos,
    payload_body=st.none() | bodies,
    result_body=st.none() | bodies,
    checkpoint_body=st.none() | bodies,
    error=st.none() | errors,
    logs=st.lists(logs, max_size=3).map(tuple),
    progress=st.none() | st.builds(Progress, st.floats(allow_nan=False), st.none() | counts, st.none() | texts),
    attempts=st.lists(attempts, max_size=3).map(tuple),
    extra=unknown,
)


descriptors = st.builds(
    JobDescriptor,
    texts,
    texts,
    description=texts,
    max_concurrency=counts,
    timeout=st.none() | st.integers(0, 10**10).map(lambda ms: timedelta(milliseconds=ms)),
    payload_schema=st.none() | st.dictionaries(texts, jsons, max_size=3),
    takes_payload=st.booleans(),
    triggers=st.lists(st.dictionaries(texts, jsons, max_size=2), max_size=2).map(tuple),
    updated_at=st.none() | instants,
    digest=texts,
    extra=unknown,
)


presences = st.builds(
    HostPresence,
    texts,
    texts,
    counts,
    instants,
    instants,
    version=st.none() | texts,
    jobs=st.lists(texts, max_size=3).map(tuple),
    running=counts,
    descriptors=st.dictionaries(texts, texts, max_size=3),
    draining=st.booleans(),
    retention=st.none() | st.just(describe_retention(JobRetention(keys="30d"))),
)


PLAIN = RunRecord("01abc", "billing", "send", RunStatus.RUNNING)


def written(record: RunRecord) -> dict[str, Any]:
    return _unpackb(wire.pack_record(record), timestamp=3)


class TestRoundTrip:
    @settings(max_examples=60)
    @given(records)
    def test_records(self, record: RunRecord) -> None:
        data = wire.pack_record(record)
        back = wire.unpack_record(data)
        assert back == record
        assert wire.pack_record(back) == data

    @given(descriptors)
    def test_descriptors(self, descriptor: JobDescriptor) -> None:
        assert wire.unpack_descriptor(wire.pack_descriptor(descriptor)) == descriptor

    @given(presences)
    def test_presences(self, presence: HostPresence) -> None:
        assert wire.unpack_presence(wire.pack_presence(presence)) == presence

    def test_no_field_of_a_record_is_forgotten(self) -> None:
        """Every field is in the strategy with a value that isn't its default, so the round trip covers it."""
        full = replace(
            PLAIN,
            **{field.name: _other(field.name, field.default) for field in fields(RunRecord) if field.name != "status"},
        )
        back = wire.unpack_record(wire.pack_record(full))
        assert back == full
        assert all(getattr(back, field.name) != field.default for field in fields(RunRecord))

    def test_an_occurrence_keeps_its_schedules_zone(self) -> None:
        paris = AT.astimezone(ZoneInfo("Europe/Paris"))
        back = wire.unpack_record(wire.pack_record(replace(PLAIN, trigger=TriggerInfo("cron", "s1", paris))))
        assert back.trigger.scheduled_for is not None
        assert back.trigger.scheduled_for.tzinfo is ZoneInfo("Europe/Paris")


def _other(name: str, default: object) -> object:
    """A value for a record's field that isn't its default."""
    made: dict[str, object] = {
        "owner": Owner(1, AT, 2, "h"),
        "error": RunError("E", "m", "t"),
        "progress": Progress(1, 2, "m"),
        "trigger": TriggerInfo("event", event_subject="a"),
        "logs": (LogLine(AT, "info", "m", {"a": 1}),),
        "attempts": (Attempt(1, "h", AT, AT, "FAILED"),),
        "extra": {"later": [1]},
    }
    if isinstance(default, int):
        return True if default is False else default + 3
    if name.endswith("_body"):
        return Body(b"x")
    return made.get(name, AT if name.endswith(("_at", "_for", "_deadline")) else name)


class TestOnTheWire:
    def test_what_is_default_is_left_out(self) -> None:
        assert written(PLAIN) == {
            "run_id": "01abc",
            "module": "billing",
            "job": "send",
            "status": "RUNNING",
            "v": 1,
            "attempt": 0,
        }

    def test_bodies_are_short_maps_under_their_own_names(self) -> None:
        claim = ClaimCheck("s", 1, 2, "f")
        record = replace(
            PLAIN, payload_body=Body(b"p"), result_body=Body(b"r", "json"), checkpoint_body=Body(claim=claim)
        )
        found = written(record)
        assert found["payload"] == {"data": b"p"}
        assert found["result"] == {"data": b"r", "encoding": "json"}
        assert found["checkpoint"] == {"claim": {"subject": "s", "chunks": 1, "size": 2, "sha256": "f"}}

    def test_the_attempt_is_written_for_readers(self) -> None:
        assert written(replace(PLAIN, starts=5, snoozes=1, interruptions=1))["attempt"] == 3

    def test_instants_are_msgpack_timestamps(self) -> None:
        assert written(replace(PLAIN, created_at=AT))["created_at"] == AT

    def test_a_plain_finished_record_is_small(self) -> None:
        done = replace(
            PLAIN,
            status=RunStatus.SUCCEEDED,
            starts=1,
            claim="a" * 16,
            owner=Owner(12345, AT, 1, "host-1"),
            started_at=AT,
            finished_at=AT,
            attempts=(Attempt(1, "host-1", AT, AT, "SUCCEEDED"),),
        )
        assert len(wire.pack_record(done)) < 350

    def test_stray_bytes_of_file_names_are_escaped(self) -> None:
        record = replace(PLAIN, error=RunError("FileNotFoundError", "no \udce9.txt"))
        assert wire.unpack_record(wire.pack_record(record)).error == RunError("FileNotFoundError", "no \\udce9.txt")

    @pytest.mark.parametrize("value", [object(), 2**70, datetime(2026, 3, 1)])  # noqa: DTZ001
    def test_what_has_no_place_in_a_record_is_refused(self, value: object) -> None:
        with pytest.raises(PayloadError, match="can't be stored"):
            wire.pack_record(replace(PLAIN, logs=(LogLine(AT, "info", "m", {"x": value}),)))


class TestOtherVersions:
    def test_fields_unknown_here_survive_a_rewrite(self) -> None:
        raw = {**written(PLAIN), "colour": {"red": [1, AT]}, "later": msgpack.ExtType(9, b"x")}
        record = wire.unpack_record(_packb(raw, datetime=True))
        again = _unpackb(wire.pack_record(replace(record, status=RunStatus.SUCCEEDED)), timestamp=3)
        assert (again["colour"], again["later"]) == (raw["colour"], raw["later"])
        assert again["status"] == "SUCCEEDED"

    def test_an_unknown_field_never_hides_a_known_one(self) -> None:
        assert wire.unpack_record(wire.pack_record(replace(PLAIN, extra={"job": "other", "v": 9}))).job == "send"

    def test_a_presence_drops_what_it_doesnt_know(self) -> None:
        presence = HostPresence("h", "n", 1, AT, AT)
        raw = {**_unpackb(wire.pack_presence(presence), timestamp=3), "later": 1}
        assert wire.unpack_presence(_packb(raw, datetime=True)) == presence

    @pytest.mark.parametrize("version", [2, 99, "1", None])
    def test_a_newer_version_is_left_alone(self, version: object) -> None:
        with pytest.raises(PayloadInvalidError, match=r"version .*upgrade"):
            wire.unpack_record(_packb({**written(PLAIN), "v": version}))

    def test_no_version_is_the_first(self) -> None:
        assert wire.unpack_record(_packb({**written(PLAIN), "v": 1})) == PLAIN
        assert wire.unpack_record(_packb({name: v for name, v in written(PLAIN).items() if name != "v"})) == PLAIN

    def test_nil_counts_as_absent(self) -> None:
        assert wire.unpack_record(_packb({**written(PLAIN), "error": None, "turn": None})) == PLAIN


class TestHostile:
    @given(st.binary())
    def test_any_bytes(self, data: bytes) -> None:
        for unpack in (wire.unpack_record, wire.unpack_descriptor, wire.unpack_presence):
            with pytest.raises(PayloadInvalidError):
                unpack(data)

    @settings(max_examples=60)
    @given(records, st.data())
    def test_records_cut_or_changed(self, record: RunRecord, data: st.DataObject) -> None:
        raw = bytearray(wire.pack_record(record))
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        try:
            found = wire.unpack_record(bytes(raw[: data.draw(st.sampled_from([len(raw), len(raw) // 2]))]))
        except PayloadInvalidError:
            return
        wire.pack_record(found)

    @given(
        st.sampled_from(sorted({field.name for field in fields(RunRecord)} | {"payload", "result", "v", "attempt"})),
        jsons | instants,
    )
    def test_any_type_in_any_field(self, name: str, value: object) -> None:
        try:
            found = wire.unpack_record(_packb({**written(PLAIN), name: value}, datetime=True))
        except PayloadInvalidError:
            return
        wire.pack_record(found)

    @pytest.mark.parametrize(
        "change",
        cast(
            "list[dict[Any, Any]]",
            [
                {"status": "EATEN"},
                {"status": 1},
                {"run_id": None},
                {"owner": {}},
                {"owner": {"sequence": 1}},
                {"owner": []},
                {"trigger": {"kind": "magic"}},
                {"trigger": {"scheduled_for": "soon"}},
                {"trigger": {"scheduled_for": "2026-03-01T12:00:00"}},
                {"trigger": {"scheduled_for": 7}},
                {"payload": {"data": "text"}},
                {"payload": {"encoding": "pickle"}},
                {"payload": {"claim": {"subject": "s"}}},
                {"progress": {"done": "all"}},
                {"progress": {"done": True}},
                {"logs": [1]},
                {"logs": {}},
                {"attempts": [[]]},
                {"later": [[[]]] * 2, b"bytes": 1},
            ],
        ),
    )
    def test_fields_that_mean_nothing(self, change: dict[Any, Any]) -> None:
        with pytest.raises(PayloadInvalidError) as caught:
            wire.unpack_record(_packb({**written(PLAIN), **change}))
        assert len(str(caught.value)) <= 500

    @pytest.mark.parametrize("levels", [500, 600, 1000, 1023, 2000])
    def test_what_could_not_be_written_again_is_refused(self, levels: int) -> None:
        head = _packb({**written(PLAIN), "later": 0})
        try:
            found = wire.unpack_record(head[:-1] + b"\x91" * levels + b"\x90")
        except PayloadInvalidError:
            return
        data = wire.pack_record(found)
        assert wire.pack_record(wire.unpack_record(data)) == data

    @pytest.mark.parametrize("data", [b"\x91" * 100_000, b"\x90", b"\xc0", b"", b"\x80", b"\xdf\xff\xff\xff\xff"])
    def test_no_records(self, data: bytes) -> None:
        with pytest.raises(PayloadInvalidError):
            wire.unpack_record(data)
