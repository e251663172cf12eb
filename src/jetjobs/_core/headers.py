"""Trigger messages and their headers: written here, read here.

Instants are RFC 3339 in UTC with milliseconds, spans whole milliseconds, JSON is ASCII. A header is written only when
it says something; a message without any is JSON from whatever program, its run id taken from the subject. Names of
headers are read in any case, since many clients write their own. Payload bytes are not decoded here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, cast
from urllib.parse import quote, unquote

from jetjobs._core import names, payload_subjects
from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.leaves import read_datetime, write_datetime
from jetjobs._core.messages import BadTrigger, Message, Outgoing, Trigger
from jetjobs._core.models import RunKey, RunRecord, TriggerInfo
from jetjobs._core.readers import TRIGGER_KINDS

TURN: Final = "Jetjobs-Turn"
TRIGGER: Final = "Jetjobs-Trigger"
SCHEDULE: Final = "Jetjobs-Schedule"
SCHEDULED_FOR: Final = "Jetjobs-Scheduled-For"
START_DEADLINE: Final = "Jetjobs-Start-Deadline"
EXPIRES_IN: Final = "Jetjobs-Expires-In"
EXPIRES_AT: Final = "Jetjobs-Expires-At"
PAYLOAD: Final = "Jetjobs-Payload"
PAYLOAD_SCHEMA: Final = "Jetjobs-Payload-Schema"
KEY: Final = "Jetjobs-Key"
CONTENT_TYPE: Final = "Content-Type"
TRACEPARENT: Final = "traceparent"

MSG_ID: Final = "Nats-Msg-Id"
EXPECTED_LAST: Final = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST_ON: Final = "Nats-Expected-Last-Subject-Sequence-Subject"
TTL: Final = "Nats-TTL"
NATS_SCHEDULE: Final = "Nats-Schedule"
NATS_SCHEDULE_TARGET: Final = "Nats-Schedule-Target"
NATS_SCHEDULE_NEXT: Final = "Nats-Schedule-Next"

MSGPACK_TYPE: Final = "application/msgpack"
JSON_TYPE: Final = "application/json"

_CONTENT_TYPES: Final[dict[str, Literal["msgpack", "json"]]] = {MSGPACK_TYPE: "msgpack", JSON_TYPE: "json"}
_MILLISECOND: Final = timedelta(milliseconds=1)
_PLAIN_KEY: Final = "".join(map(chr, range(0x21, 0x7F))).replace("%", "")
_MOST_TURNS: Final = 10**9  # the next one must be readable too
_LARGEST: Final = 1 << 53  # what JSON's other users can count
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_FAULTS: Final = (ValueError, TypeError, LookupError, OverflowError, RecursionError)


# ------------------------------------------------------------------------------------------------ write


def trigger_message(
    project: str,
    run: RunKey,
    body: Body | None,
    *,
    turn: int = 1,
    info: TriggerInfo | None = None,
    key: str | None = None,
    scheduled_for: datetime | None = None,
    start_deadline: datetime | None = None,
    expires_in: timedelta | None = None,
    expires_at: datetime | None = None,
    payload_schema: str | None = None,
    traceparent: str | None = None,
) -> Outgoing:
    """The message that asks for a run at once, on the run's own trigger subject."""
    headers: dict[str, str] = {}
    if body is not None:
        headers[CONTENT_TYPE] = write_content_type(body)
        if body.claim is not None:
            headers[PAYLOAD] = _write_claim(body.claim)
    if turn != 1:
        headers[TURN] = str(turn)
    if info is not None and info != _MANUAL:
        headers[TRIGGER] = write_info(info)
    if key is not None:
        headers[KEY] = write_key(key)
    if expires_in is not None:
        headers[EXPIRES_IN] = write_span(expires_in)
    instants = ((SCHEDULED_FOR, scheduled_for), (START_DEADLINE, start_deadline), (EXPIRES_AT, expires_at))
    headers.update({name: write_instant(at) for name, at in instants if at is not None})
    texts = ((PAYLOAD_SCHEMA, payload_schema), (TRACEPARENT, traceparent))
    headers.update({name: text for name, text in texts if text is not None})
    data = body.data if body is not None and body.claim is None else b""
    return Outgoing(names.trigger_subject(project, run), headers, data)


def delayed_message(project: str, run: RunKey, at: datetime, body: Body | None, **described: Any) -> Outgoing:
    """The schedule that brings the run's trigger at an instant, once; a past one fires at once.

    Takes what `trigger_message` takes. `Nats-TTL: never` keeps the stream's `max_age` from eating it.
    """
    trigger = trigger_message(project, run, body, **described)
    headers = {
        **trigger.headers,
        NATS_SCHEDULE: "@at " + write_instant(at),
        NATS_SCHEDULE_TARGET: trigger.subject,
        TTL: "never",
    }
    return Outgoing(names.retry_subject(project, run, described.get("turn", 1)), headers, trigger.data)


def retry_message(
    project: str, record: RunRecord, *, payload_schema: str | None = None, traceparent: str | None = None
) -> Outgoing:
    """The schedule that brings a RETRYING run's next message: its turn, at its `retry_at`, with the same payload.

    The start deadline isn't repeated: it bounds the first start only.
    """
    if record.retry_at is None:
        raise ValueError(f"run {record.run_key} has no retry_at: only a RETRYING run has a next message")
    return delayed_message(
        project,
        record.run_key,
        record.retry_at,
        record.payload_body,
        turn=record.turn,
        info=record.trigger,
        key=record.key,
        scheduled_for=record.scheduled_for,
        expires_at=record.expires_at,
        payload_schema=payload_schema,
        traceparent=traceparent,
    )


def write_instant(at: datetime) -> str:
    """An aware instant as RFC 3339 in UTC, whole milliseconds, rounded down.

    >>> write_instant(datetime(2026, 3, 1, 12, 0, 0, 1999, tzinfo=UTC))
    '2026-03-01T12:00:00.001Z'
    """
    return at.astimezone(UTC).isoformat(timespec="milliseconds")[:-6] + "Z"


def write_span(span: timedelta) -> str:
    """A span in whole milliseconds.

    >>> write_span(timedelta(seconds=1.5))
    '1500'
    """
    return str(span // _MILLISECOND)


def write_content_type(body: Body) -> str:
    """What a body's `Content-Type` is."""
    return MSGPACK_TYPE if body.encoding == "msgpack" else JSON_TYPE


def read_instant(text: str) -> datetime:
    """The instant in RFC 3339 text, in UTC.

    Raises:
        ValueError: it is none, or has no offset.
    """
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"{text[:40]!a} has no offset")
    return at.astimezone(UTC)


def write_key(key: str) -> str:
    """An idempotency key as a header's value: itself, or percent-encoded when it isn't plain ASCII."""
    return quote(key, safe=_PLAIN_KEY)


def read_key(text: str) -> str:
    """The key in a header's value.

    Raises:
        ValueError: it can't be a key.
    """
    return names.check_key(unquote(text, errors="strict") if "%" in text else text)


def write_info(info: TriggerInfo) -> str:
    """What asked for a run, as JSON; the occurrence keeps its schedule's own zone."""
    parts: dict[str, Any] = {"kind": info.kind}
    if info.scheduled_for is not None:
        parts["scheduled_for"] = write_datetime(info.scheduled_for)
    for name in _INFO_TEXTS:
        if (value := getattr(info, name)) is not None:
            parts[name] = value
    return json.dumps(parts, separators=(",", ":"))


def _write_claim(claim: ClaimCheck) -> str:
    parts = {"subject": claim.subject, "chunks": claim.chunks, "size": claim.size, "sha256": claim.sha256}
    return json.dumps(parts, separators=(",", ":"))


# ------------------------------------------------------------------------------------------------ read


def read_trigger(project: str, message: Message) -> Trigger | BadTrigger:
    """The message understood, or why it can't be.

    The key of a schedule's tick carries the schedule's id: which run it is depends on the occurrence, decided later.
    """
    subject = names.parse_trigger_subject(project, message.subject)
    if subject is None:
        return _bad(message, None, "the subject's tokens are not those of a trigger")
    key = RunKey(subject.module, subject.job, names.safe_run_id(subject.id))
    run = key if subject.kind == "run" else None  # a tick's subject names a schedule, and no run may be called so
    if key.run_id != subject.id:
        return _bad(message, run, "the id must be 1 to 128 of letters, digits, '_', '-' and '='")
    found: dict[str, Any] = {}
    name = ""
    try:
        for name, value in message.headers.items():
            reader = _READERS.get(name) or _READERS.get(name.lower())
            if reader is not None:
                found[reader[0]] = reader[1](value)
    except _FAULTS as error:
        return _bad(message, run, f"the header {name} can't be read: {error}"[:500])
    claim = found.pop("claim", None)
    if claim is not None and not payload_subjects.is_payload_subject(project, claim.subject):
        return _bad(message, run, f"the header {PAYLOAD} names no subject of this project's payloads")
    body = _body(message, found.pop("encoding", None), claim)
    return Trigger.of(
        key=key,
        body=body,
        sequence=message.sequence,
        stored_at=message.stored_at,
        num_delivered=message.num_delivered,
        subject_kind=subject.kind,
        **found,
    )


def _body(message: Message, encoding: Literal["msgpack", "json"] | None, claim: ClaimCheck | None) -> Body | None:
    if encoding is None:
        # Without a Content-Type it is JSON from a bare client, unless it can't be: msgpack of anything but one small
        # number starts outside ASCII, and a text never does.
        encoding = "msgpack" if message.headers and message.data[:1] > b"\x7f" else "json"
    if claim is not None:
        return Body(b"", encoding, claim)
    return Body(message.data, encoding) if message.data else None


def _bad(message: Message, key: RunKey | None, reason: str) -> BadTrigger:
    return BadTrigger(reason, key, message.sequence, message.stored_at, message.num_delivered)


def read_content_type(text: str) -> Literal["msgpack", "json"]:
    """The encoding a `Content-Type` names; its parameters are ignored.

    Raises:
        ValueError: it is neither of the two.
    """
    encoding = _CONTENT_TYPES.get(text) or _CONTENT_TYPES.get(text.partition(";")[0].strip().lower())
    if encoding is None:
        raise ValueError(f"{text[:80]!a} is neither {MSGPACK_TYPE} nor {JSON_TYPE}")
    return encoding


def _read_turn(text: str) -> int:
    turn = _read_whole(text)
    if not 1 <= turn <= _MOST_TURNS:
        raise ValueError(f"turns count from 1 to {_MOST_TURNS}")
    return turn


def _read_span(text: str) -> timedelta:
    return timedelta(milliseconds=_read_whole(text))  # 12 digits are 31 years: safe to add to a date


def _read_whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise ValueError(f"{text[:40]!a} is no whole number")
    return int(text)


def _read_text(text: str) -> str:
    return text


def read_info(text: str) -> TriggerInfo:
    """What `write_info` wrote; parts unknown here are ignored.

    Raises:
        ValueError, TypeError: it isn't that.
    """
    parts = _read_map(text)
    kind = parts.get("kind", "manual")
    if not isinstance(kind, str) or kind not in TRIGGER_KINDS:
        raise ValueError(f"{ascii(kind)[:40]} is no kind of trigger")
    scheduled_for = read_datetime(_part(parts, "scheduled_for", str)) if parts.get("scheduled_for") else None
    if scheduled_for is not None and scheduled_for.tzinfo is None:
        raise ValueError("scheduled_for has no offset")
    texts = {name: _part(parts, name, str) for name in _INFO_TEXTS if parts.get(name) is not None}
    return TriggerInfo(kind=cast("Any", kind), scheduled_for=scheduled_for, **texts)


def _read_claim(text: str) -> ClaimCheck:
    parts = _read_map(text)
    chunks, size = _part(parts, "chunks", int), _part(parts, "size", int)
    if not 0 <= chunks <= max(size, 1) <= _LARGEST:
        raise ValueError("chunks and size can't be those of a body")
    sha256 = _part(parts, "sha256", str)
    if _SHA256.fullmatch(sha256) is None:
        raise ValueError("sha256 must be 64 hex digits")
    return ClaimCheck(_part(parts, "subject", str), chunks, size, sha256)


def _read_map(text: str) -> dict[str, Any]:
    parts = json.loads(text)
    if not isinstance(parts, dict):
        raise TypeError("it must be a JSON object")
    return cast("dict[str, Any]", parts)


def _part(parts: dict[str, Any], name: str, kind: type[Any]) -> Any:
    value = parts.get(name)
    if type(value) is not kind:
        raise TypeError(f"{name} must be a {kind.__name__}")
    return value


_MANUAL: Final = TriggerInfo()
_INFO_TEXTS: Final = ("schedule_id", "event_subject", "parent_run_id", "retry_of")
_READ: Final[dict[str, tuple[str, Callable[[str], Any]]]] = {
    CONTENT_TYPE: ("encoding", read_content_type),
    PAYLOAD: ("claim", _read_claim),
    TURN: ("turn", _read_turn),
    TRIGGER: ("info", read_info),
    KEY: ("idempotency_key", read_key),
    SCHEDULED_FOR: ("scheduled_for", read_instant),
    START_DEADLINE: ("start_deadline", read_instant),
    EXPIRES_IN: ("expires_in", _read_span),
    EXPIRES_AT: ("expires_at", read_instant),
    PAYLOAD_SCHEMA: ("payload_schema", _read_text),
    TRACEPARENT: ("traceparent", _read_text),
}
_READERS: Final = {**{name.lower(): reader for name, reader in _READ.items()}, **_READ}

ALL: Final = tuple(_READ)
"""Every header a trigger may carry of ours."""
