import json
from dataclasses import fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.models import LogLine, RunError, RunRecord, RunStatus
from jetjobs.cli.shapes import body, plain, run_document, run_summary

SUMMARY = {
    "run_id", "module", "job", "status", "attempt", "max_attempts", "key", "trigger", "error", "skip_reason",
    "cancel_asked", "host_id", "schedule_id", "parent_run_id", "retry_of", "created_at", "fired_at", "scheduled_for",
    "start_deadline", "expires_at", "started_at", "finished_at", "heartbeat_at", "retry_at",
}  # fmt: skip
WHOLE = SUMMARY | {
    "version", "stub", "starts", "snoozes", "interruptions", "event_subject", "payload", "result", "progress", "logs",
    "attempts",
}  # fmt: skip

LEAVES = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary() | st.dates()
    | st.datetimes(timezones=st.just(UTC)) | st.timedeltas() | st.decimals() | st.uuids()
)  # fmt: skip
PAYLOADS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.sets(st.integers(0, 9) | st.text()),
    max_leaves=8,
)


def record(**more: Any) -> RunRecord:
    return RunRecord("r1", "shop", "mail", RunStatus.FAILED, **more)


def test_what_documents_hold_is_a_promise():
    assert set(run_summary(record())) == SUMMARY
    assert set(run_document(record())) == WHOLE


def test_nothing_secret_by_accident():
    """Fields of the record that tell nobody anything, or that only its owner needs."""
    internal = {"claim", "owner", "turn", "payload_digest", "checkpoint_body", "extra", "payload_body", "result_body"}
    assert {each.name for each in fields(RunRecord)} - internal <= WHOLE


@given(PAYLOADS)
def test_every_payload_is_strict_json(value: Any):
    text = json.dumps(plain(value), allow_nan=False)
    json.loads(text)


def test_values_json_has_no_word_for():
    assert plain(
        {
            "at": datetime(2030, 1, 1, tzinfo=UTC),
            "on": date(2030, 1, 1),
            "for": timedelta(seconds=1.5),
            "price": Decimal("1.10"),
            "id": UUID(int=1),
            "infinite": float("inf"),
            7: b"\xff",
        }
    ) == {
        "at": "2030-01-01T00:00:00+00:00",
        "on": "2030-01-01",
        "for": 1.5,
        "price": "1.10",
        "id": "00000000-0000-0000-0000-000000000001",
        "infinite": "inf",
        "7": "/w==",
    }


def test_bodies_that_are_elsewhere_or_broken():
    claim = ClaimCheck("subject", 3, 100, "ab")
    assert body(Body(claim=claim)) == {"claim_check": {"size": 100, "sha256": "ab"}}
    assert "unreadable" in body(Body(b"\xc1"))


def test_a_list_has_no_traceback_and_a_run_has():
    failed = record(error=RunError("ValueError", "no", "Traceback …"), logs=(LogLine(datetime.now(UTC), "info", "x"),))
    assert run_summary(failed)["error"] == {"type": "ValueError", "message": "no"}
    assert run_document(failed)["error"]["traceback"] == "Traceback …"
