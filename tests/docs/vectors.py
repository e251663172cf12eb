"""Test vectors of the protocol, made by the code: `python -m tests.docs.vectors` writes docs/protocol-vectors.json."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from jetjobs._core import codec, headers, names, payload_subjects, signal_subjects
from jetjobs._core.bodies import Body
from jetjobs._core.messages import Message, Outgoing, Trigger
from jetjobs._core.models import RunKey, RunStatus, TriggerInfo
from tests.docs.pages import ROOT

FILE = ROOT / "docs" / "protocol-vectors.json"

PROJECT = "shop"
RUN = RunKey("billing.invoices", "send", "order-7")
_AT = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)
_NAMES = ("billing", "billing.invoices", "Billing", "a_b-c", "a=b", "é")
_KEYS = (
    ("billing", "send_invoice", "inv-7"),
    ("a.b", "c", "1"),
    ("a", "c", "b.1"),
    ("billing", "send_invoice", "with space/ü"),
)
_EVENTS = (
    {"module": "billing", "job": "thank", "subject": "orders.paid", "id": "order-7"},
    {"module": "billing", "job": "thank", "subject": "orders.paid", "id": "ORDERS:3:1772366400250000"},
)
_VALUES: tuple[tuple[str, Any], ...] = (
    ("null", None),
    ("map", {"id": 7, "paid": True, "total": 1.5}),
    ("text", "é"),
    ("bytes", b"\x00\x01"),
    ("datetime", _AT),
    ("date", _AT.date()),
    ("timedelta", timedelta(seconds=-1.5)),
    ("decimal", Decimal("10.50")),
    ("uuid", UUID("12345678-1234-5678-1234-567812345678")),
    ("set", {3}),
)


def vectors() -> dict[str, Any]:
    """Everything a client in another language can check itself against."""
    return {
        "version": 1,
        "tokens": [{"name": name, "token": names.encode_token(name)} for name in _NAMES],
        "names": _names(),
        "run_ids": _run_ids(),
        "payloads": [{"what": what, "msgpack": codec.encode(value).hex()} for what, value in _VALUES],
        "digests": [{"what": what, "digest": codec.digest(value)} for what, value in _VALUES],
        "messages": [_described(what, message) for what, message in _messages()],
        "bare": _bare(),
    }


def _names() -> dict[str, str | list[str]]:
    address = RUN.address
    return {
        "project": PROJECT,
        "run": [*RUN],
        "stream": names.stream(PROJECT),
        "trigger": names.trigger_subject(PROJECT, RUN),
        "delayed": names.retry_subject(PROJECT, RUN, 1),
        "consumer": names.consumer(address),
        "record": names.record_subject(PROJECT, RUN),
        "descriptor": names.bucket_subject(names.jobs_bucket(PROJECT), names.job_key(address)),
        "orders": names.bucket_subject(names.jobs_bucket(PROJECT), names.control_key(address)),
        "call": signal_subjects.call_subject(PROJECT, address),
        "cancel": signal_subjects.cancel_subject(PROJECT, RUN),
        "ended": signal_subjects.ended_subject(PROJECT, RunStatus.SUCCEEDED, RUN),
        "payload": payload_subjects.payload_subject(PROJECT, RUN.run_id, "in", "0" * 64) + ".0",
    }


def _run_ids() -> dict[str, list[dict[str, Any]]]:
    return {
        "key": [{"module": m, "job": j, "key": k, "run_id": names.run_id_for_key(m, j, k)} for m, j, k in _KEYS],
        "retry": [{"run": [*RUN], "retries": n, "run_id": names.run_id_for_retry(RUN, n)} for n in (1, 2)],
        "event": [
            {**event, "run_id": names.run_id_for_event(event["module"], event["job"], event["subject"], event["id"])}
            for event in _EVENTS
        ],
        "child": [
            {
                "parent": [*RUN],
                "module": "mail",
                "job": "send",
                "which": ["ordinal" if isinstance(key, int) else "key", str(key)],
                "run_id": names.run_id_for_child(RUN, "mail", "send", key),
            }
            for key in (1, "1", "receipt")
        ],
        "outside": [
            {"text": text, "run_id": names.safe_run_id(text)} for text in ("order-7", "order 7", "a.b", "é" * 60)
        ],
    }


def _messages() -> list[tuple[str, Outgoing]]:
    body = Body(codec.encode({"id": 7}))
    keyed = RUN._replace(run_id=names.run_id_for_key(RUN.module, RUN.job, "inv-7"))
    return [
        ("now", headers.trigger_message(PROJECT, RUN, body)),
        ("with a key", headers.trigger_message(PROJECT, keyed, body, key="inv-7")),
        (
            "delayed, at most 5 minutes late",
            headers.delayed_message(
                PROJECT,
                RUN,
                _AT,
                body,
                info=TriggerInfo("delayed", scheduled_for=_AT),
                scheduled_for=_AT,
                start_deadline=_AT + timedelta(minutes=5),
            ),
        ),
    ]


def _described(what: str, message: Outgoing) -> dict[str, Any]:
    return {
        "what": what,
        "subject": message.subject,
        "headers": dict(message.headers),
        "body": message.data.hex(),
    }


def _bare() -> dict[str, Any]:
    """A publish without headers, and what a host takes it for."""
    subject = names.trigger_subject(PROJECT, RUN)
    found = headers.read_trigger(PROJECT, Message(subject, {}, b'{"id": 7}', 1, _AT, 1))
    assert isinstance(found, Trigger)
    assert found.body is not None
    return {
        "subject": subject,
        "body": '{"id": 7}',
        "module": found.key.module,
        "job": found.key.job,
        "run_id": found.key.run_id,
        "encoding": found.body.encoding,
        "turn": found.turn,
        "kind": found.info.kind,
    }


def as_text() -> str:
    """The vectors as the file has them."""
    return json.dumps(vectors(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(as_text(), encoding="utf-8")
