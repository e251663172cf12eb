"""How each stored value is taken apart for msgpack, and checked and built again: the tables behind `wire`.

Packing goes by tables made from the dataclasses once: one `attrgetter` call and one comprehension a value. Pydantic,
or a chain of thirty ifs, would cost a third of a host's throughput.
"""

from __future__ import annotations

from dataclasses import Field, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Protocol, cast

import msgpack

from jetjobs._core.leaves import read_datetime, write_datetime
from jetjobs._core.models import (
    Attempt,
    Body,
    ClaimCheck,
    HostPresence,
    JobDescriptor,
    LogLine,
    Owner,
    Progress,
    RunError,
    RunRecord,
    RunStatus,
    TriggerInfo,
)
from jetjobs.errors import PayloadError

_PACK_FAULTS: Final = (ValueError, TypeError, OverflowError, RecursionError)
READ_FAULTS: Final = (*_PACK_FAULTS, LookupError, MemoryError, AttributeError)


# ------------------------------------------------------------------------------------------------ write


class _Shape:
    """How values of one class are taken apart: wire names, defaults that are left out, and a getter for all."""

    __slots__ = ("_defaults", "_get", "_names")

    def __init__(self, kind: type, renamed: dict[str, str] | None = None) -> None:
        known = [field for field in fields(kind) if field.name != "extra"]
        self._names = tuple((renamed or {}).get(field.name, field.name) for field in known)
        self._defaults = tuple(_default(field) for field in known)
        self._get = attrgetter(*(field.name for field in known))

    def __call__(self, value: Any) -> dict[str, Any]:
        parts = zip(self._names, self._defaults, self._get(value), strict=False)
        # By identity: it is faster, and a default written out does no harm.
        return {name: part for name, default, part in parts if part is not default}


def _default(field: Field[Any]) -> object:
    return field.default


_RENAMED: Final = {"payload_body": "payload", "result_body": "result", "checkpoint_body": "checkpoint"}
shape_record: Final = _Shape(RunRecord, _RENAMED)
_shape_trigger_parts: Final = _Shape(TriggerInfo)
shape_descriptor_parts: Final = _Shape(JobDescriptor, {"timeout": "timeout_ms"})
shape_presence: Final = _Shape(HostPresence)


def _shape_trigger(info: TriggerInfo) -> dict[str, Any]:
    shape = _shape_trigger_parts(info)
    if info.scheduled_for is not None and info.scheduled_for.tzinfo is not UTC:
        shape["scheduled_for"] = write_datetime(info.scheduled_for)  # the handler sees the schedule's own zone
    return shape


class _Taker(Protocol):
    def __call__(self, value: Any, /) -> dict[str, Any]: ...


_SHAPES: Final[dict[type, _Taker]] = {
    kind: _Shape(kind) for kind in (Owner, Body, ClaimCheck, RunError, LogLine, Progress, Attempt)
}
_SHAPES[TriggerInfo] = _shape_trigger
_SHAPES[MappingProxyType] = dict


def _shape(value: object) -> dict[str, Any]:
    shape = _SHAPES.get(type(value))
    if shape is None:
        raise TypeError(f"a {type(value).__name__} has no place in a record")
    return shape(value)


def pack(value: dict[str, Any]) -> bytes:
    """A map of records' parts as msgpack.

    Raises:
        PayloadError: a part has no place in a record.
    """
    try:
        return cast("bytes", msgpack.packb(value, default=_shape, datetime=True))
    except UnicodeEncodeError:
        return cast("bytes", msgpack.packb(value, default=_shape, datetime=True, unicode_errors="backslashreplace"))
    except _PACK_FAULTS as error:
        raise PayloadError(f"the record can't be stored: {error}") from error


# ------------------------------------------------------------------------------------------------ read

Spec = dict[str, tuple[str, frozenset[type], Any]]


def members_of(spec: Spec, raw: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    members: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for key, value in raw.items():
        known = spec.get(key)
        if known is None:
            extra[str(key)] = value
            continue
        name, kinds, build = known
        if type(value) in kinds:
            members[name] = value if build is None else build(value)
        elif value is not None:
            raise TypeError(f"{key} is a {type(value).__name__}")
    members.pop("", None)
    return members, extra


def _one(kind: type[Any], spec: Spec) -> Any:
    def build(raw: dict[str, Any]) -> Any:
        return kind(**members_of(spec, raw)[0])

    return build


def _several(build: Any) -> Any:
    def builds(raw: list[dict[str, Any]]) -> tuple[Any, ...]:
        return tuple([build(_map(part)) for part in raw])

    return builds


def _map(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeError(f"a {type(value).__name__} stands where a map must")
    return cast("dict[str, Any]", value)


def _status(text: str) -> RunStatus:
    return RunStatus.__members__[text]


def _instant(value: datetime | str) -> datetime:
    at = read_datetime(value) if isinstance(value, str) else value
    if at.tzinfo is None:
        raise ValueError("an instant has no zone")
    return at


def _encoding(text: str) -> str:
    if text not in {"msgpack", "json"}:
        raise ValueError(f"{text[:40]!a} is no encoding")
    return text


def _kind(text: str) -> str:
    if text not in TRIGGER_KINDS:
        raise ValueError(f"{text[:40]!a} is no kind of trigger")
    return text


def _texts(value: list[Any]) -> tuple[str, ...]:
    return tuple([part if type(part) is str else str(part) for part in value])


def _milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


TRIGGER_KINDS: Final = frozenset(
    {"manual", "cron", "every", "event", "delayed", "backfill", "run_now", "retry", "child"}
)
_STR: Final = frozenset({str})
_INT: Final = frozenset({int})
_BOOL: Final = frozenset({bool})
_NUMBER: Final = frozenset({int, float})
_AT: Final = frozenset({datetime})
_BYTES: Final = frozenset({bytes})
_DICT: Final = frozenset({dict})
_LIST: Final = frozenset({list})


def _spec(**kinds: frozenset[type]) -> Spec:
    return {name: (name, kind, None) for name, kind in kinds.items()}


_CLAIM: Final = _spec(subject=_STR, chunks=_INT, size=_INT, sha256=_STR)
_BODY: Final[Spec] = {
    "data": ("data", _BYTES, None),
    "encoding": ("encoding", _STR, _encoding),
    "claim": ("claim", _DICT, _one(ClaimCheck, _CLAIM)),
}
_TRIGGER: Final[Spec] = {
    **_spec(schedule_id=_STR, event_subject=_STR, parent_run_id=_STR, retry_of=_STR),
    "kind": ("kind", _STR, _kind),
    "scheduled_for": ("scheduled_for", _AT | _STR, _instant),
}
_ERROR: Final = _one(RunError, _spec(type=_STR, message=_STR, traceback=_STR))
_ATTEMPT: Final[Spec] = {
    **_spec(attempt=_INT, host_id=_STR, started_at=_AT, finished_at=_AT, outcome=_STR),
    "error": ("error", _DICT, _ERROR),
}
_read_body: Final = _one(Body, _BODY)
_read_trigger: Final = _one(TriggerInfo, _TRIGGER)
_INSTANTS: Final = (
    "fired_at scheduled_for start_deadline expires_at created_at started_at finished_at heartbeat_at retry_at"
)
_RECORD_TEXTS: Final = (
    "run_id module job key payload_digest version claim skip_reason host_id schedule_id parent_run_id retry_of"
)
RECORD: Final[Spec] = {
    **_spec(**dict.fromkeys(_RECORD_TEXTS.split(), _STR), **dict.fromkeys(_INSTANTS.split(), _AT)),
    **_spec(starts=_INT, snoozes=_INT, interruptions=_INT, turn=_INT, max_attempts=_INT, cancel_asked=_BOOL),
    "attempt": ("", _INT, None),
    "status": ("status", _STR, _status),
    "owner": ("owner", _DICT, _one(Owner, _spec(sequence=_INT, stored_at=_AT, num_delivered=_INT, host_id=_STR))),
    "trigger": ("trigger", _DICT, _read_trigger),
    "payload": ("payload_body", _DICT, _read_body),
    "result": ("result_body", _DICT, _read_body),
    "checkpoint": ("checkpoint_body", _DICT, _read_body),
    "error": ("error", _DICT, _ERROR),
    "progress": ("progress", _DICT, _one(Progress, _spec(done=_NUMBER, total=_NUMBER, message=_STR))),
    "logs": ("logs", _LIST, _several(_one(LogLine, _spec(at=_AT, level=_STR, message=_STR, fields=_DICT)))),
    "attempts": ("attempts", _LIST, _several(_one(Attempt, _ATTEMPT))),
}
DESCRIPTOR: Final[Spec] = {
    **_spec(module=_STR, job=_STR, description=_STR, max_concurrency=_INT, max_attempts=_INT, version=_STR),
    **_spec(host_id=_STR, digest=_STR, payload_schema=_DICT, payload_schema_digest=_STR, takes_payload=_BOOL),
    "timeout_ms": ("timeout", _INT, _milliseconds),
    "triggers": ("triggers", _LIST, _several(_map)),
    "updated_at": ("updated_at", _AT, None),
}
PRESENCE: Final[Spec] = {
    **_spec(host_id=_STR, hostname=_STR, pid=_INT, version=_STR, started_at=_AT, seen_at=_AT, running=_INT),
    **_spec(descriptors=_DICT, draining=_BOOL),
    "jobs": ("jobs", _LIST, _texts),
}
