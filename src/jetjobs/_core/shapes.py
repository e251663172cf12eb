"""How each stored value is taken apart for msgpack, and checked and built again: the tables behind `wire`.

Both ways go by tables made from the dataclasses once, and the parts every record has are done by hand. Pydantic, or a
chain of forty ifs, would cost a third of a host's throughput.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, cast

import msgpack

from jetjobs._core.leaves import read_datetime, write_datetime
from jetjobs._core.models import (
    NOTHING,
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

PACK_FAULTS: Final = (ValueError, TypeError, OverflowError, RecursionError)
TRIGGER_KINDS: Final = frozenset(
    {"manual", "cron", "every", "event", "delayed", "backfill", "run_now", "retry", "child"}
)


# ------------------------------------------------------------------------------------------------ write


def pack(value: object) -> bytes:
    """Parts of records as msgpack.

    Raises:
        PayloadError: one has no place in a record.
    """
    try:
        return cast("bytes", msgpack.packb(value, default=_shape, datetime=True))
    except UnicodeEncodeError:
        # Texts of exceptions may hold stray bytes of file names. Losing the record over them would be worse.
        return cast("bytes", msgpack.packb(value, default=_shape, datetime=True, unicode_errors="backslashreplace"))
    except PACK_FAULTS as error:
        raise PayloadError(f"this can't be stored in a record: {error}") from error


class Shape:
    """How values of one class are taken apart: wire names, defaults that are left out, and a getter for all."""

    __slots__ = ("_defaults", "_get", "_names")

    def __init__(self, kind: type[Any], renamed: dict[str, str] | None = None) -> None:
        known = [field for field in fields(kind) if field.name != "extra"]
        self._names = tuple((renamed or {}).get(field.name, field.name) for field in known)
        self._defaults = tuple(field.default for field in known)
        self._get = attrgetter(*(field.name for field in known))

    def __call__(self, value: object) -> dict[str, Any]:
        parts = zip(self._names, self._defaults, self._get(value), strict=False)
        # By identity: it is faster, and a default written out does no harm.
        return {name: part for name, default, part in parts if part is not default}


class RecordShape:
    """The same for run records, which hold only what was set."""

    __slots__ = ("_defaults", "_renamed")

    def __init__(self, renamed: dict[str, str]) -> None:
        self._renamed = renamed
        self._defaults = {field.name: field.default for field in fields(RunRecord)}

    def __call__(self, record: RunRecord) -> dict[str, Any]:
        defaults = self._defaults
        shape = {name: part for name, part in record.__dict__.items() if part is not defaults[name]}
        for name, wire_name in self._renamed.items():
            if name in shape:
                shape[wire_name] = shape.pop(name)
        shape.pop("extra", None)
        return shape


def _shape(value: object) -> dict[str, Any]:
    shape = _SHAPES.get(type(value))
    if shape is None:
        raise TypeError(f"a {type(value).__name__} has no place there")
    return shape(value)


def _shape_owner(owner: Owner) -> dict[str, Any]:
    return {
        "sequence": owner.sequence,
        "stored_at": owner.stored_at,
        "num_delivered": owner.num_delivered,
        "host_id": owner.host_id,
    }


def _shape_body(body: Body) -> dict[str, Any]:
    if body.claim is None and body.encoding == "msgpack":
        return {"data": body.data}
    return _shape_other_body(body)


def _shape_attempt(attempt: Attempt) -> dict[str, Any]:
    shape: dict[str, Any] = {
        "attempt": attempt.attempt,
        "host_id": attempt.host_id,
        "started_at": attempt.started_at,
        "finished_at": attempt.finished_at,
        "outcome": attempt.outcome,
    }
    if attempt.error is not None:
        shape["error"] = attempt.error
    return shape


def _shape_trigger(info: TriggerInfo) -> dict[str, Any]:
    shape = _shape_other_trigger(info)
    if info.scheduled_for is not None and info.scheduled_for.tzinfo is not UTC:
        shape["scheduled_for"] = write_datetime(info.scheduled_for)  # the handler sees the schedule's own zone
    return shape


_RENAMED: Final = {"payload_body": "payload", "result_body": "result", "checkpoint_body": "checkpoint"}
shape_record: Final = RecordShape(_RENAMED)
shape_descriptor: Final = Shape(JobDescriptor, {"timeout": "timeout_ms"})
shape_presence: Final = Shape(HostPresence)
_shape_other_body: Final = Shape(Body)
_shape_other_trigger: Final = Shape(TriggerInfo)
_SHAPES: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    Owner: _shape_owner,
    Body: _shape_body,
    Attempt: _shape_attempt,
    TriggerInfo: _shape_trigger,
    MappingProxyType: dict,
    **{kind: Shape(kind) for kind in (ClaimCheck, RunError, LogLine, Progress)},
}


# ------------------------------------------------------------------------------------------------ read

_Build = Callable[[Any], Any] | None


class Reader:
    """How values of one class are checked and built from a map: by wire name the type wanted, and what becomes of it.

    `object` as the type leaves the check to the builder. Nil counts as absent. Unknown names go to `extra` where the
    class has one. Objects are filled slot by slot: a frozen dataclass's `__init__` takes three times as long.
    """

    __slots__ = ("_blank", "_extra", "_kind", "_known", "_names", "_required", "_setters")

    def __init__(self, kind: type[Any], known: dict[str, tuple[str, type, _Build]], nullable: str = "") -> None:
        names = [field.name for field in fields(kind)]
        places = {name: place for place, name in enumerate([*names, _DROPPED])}
        self._kind = kind
        self._known = {key: (places[name], wanted, build) for key, (name, wanted, build) in known.items()}
        self._blank = [*(NOTHING if f.default_factory is not MISSING else f.default for f in fields(kind)), None]
        self._required = self._blank.count(MISSING)
        for name in nullable.split():
            self._blank[places[name]] = None
        self._names = names
        slotted = hasattr(kind, "__slots__")
        self._setters = tuple(getattr(kind, name).__set__ for name in names) if slotted else None
        self._extra = places.get("extra")

    def __call__(self, raw: Any) -> Any:
        values = self._blank.copy()
        known_names = self._known
        extra: dict[str, Any] | None = None
        for key, value in raw.items():
            known = known_names.get(key)
            if known is None:
                extra = {} if extra is None else extra
                extra[key] = value
                continue
            place, wanted, build = known
            if type(value) is wanted:
                values[place] = value if build is None else build(value)
            elif value is not None:
                values[place] = _checked(key, value, wanted, build)
        if MISSING in values[: self._required]:
            raise ValueError("a field that must be there is missing")
        if extra is not None and self._extra is not None:
            values[self._extra] = _writable(extra)
        built = object.__new__(self._kind)
        if self._setters is None:
            built.__dict__.update(zip(self._names, values, strict=False))
            return built
        for put, value in zip(self._setters, values, strict=False):
            put(built, value)
        return built


_DROPPED: Final = ""


def _checked(key: str, value: object, wanted: type, build: _Build) -> Any:
    if wanted is not object or build is None:
        raise TypeError(f"{key} is a {type(value).__name__}")
    return build(value)


def _writable(extra: dict[Any, Any]) -> dict[str, Any]:
    if not all(isinstance(key, str) for key in extra):
        raise TypeError("a field's name is no text")
    pack(extra)  # what can't be written again would stop every later write
    return extra


def _several(build: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def builds(raw: list[Any]) -> tuple[Any, ...]:
        return tuple([build(_map(part)) for part in raw])

    return builds


def _map(value: object) -> dict[str, Any]:
    if type(value) is not dict:
        raise TypeError(f"a {type(value).__name__} stands where a map must")
    return cast("dict[str, Any]", value)


def _one_of(allowed: frozenset[str]) -> Callable[[Any], str]:
    def check(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"{text[:40]!a} is none of {', '.join(sorted(allowed))}")
        return text

    return check


def _instant(value: object) -> datetime:
    at = read_datetime(value) if isinstance(value, str) else value
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise ValueError("an instant has no zone")
    return at


def _number(value: object) -> int | float:
    if type(value) is not int and type(value) is not float:
        raise TypeError(f"a {type(value).__name__} stands where a number must")
    return value


def _texts(value: list[object]) -> tuple[str, ...]:
    return tuple([str(part) for part in value])


def _status(text: str) -> RunStatus:
    return RunStatus.__members__[text]


def _milliseconds(value: int) -> timedelta:
    return timedelta(milliseconds=value)


def _all(names: str, wanted: type) -> dict[str, tuple[str, type, _Build]]:
    return {name: (name, wanted, None) for name in names.split()}


def _read_body(raw: dict[str, Any]) -> Body:
    data = raw.get("data")
    return Body(data) if len(raw) == 1 and type(data) is bytes else _read_other_body(raw)


_read_claim: Final = Reader(ClaimCheck, _all("subject sha256", str) | _all("chunks size", int))
_read_other_body: Final = Reader(
    Body,
    {
        "data": ("data", bytes, None),
        "encoding": ("encoding", str, _one_of(frozenset({"msgpack", "json"}))),
        "claim": ("claim", dict, _read_claim),
    },
)
_read_owner: Final = Reader(
    Owner, _all("sequence num_delivered", int) | _all("host_id", str) | _all("stored_at", datetime)
)
_read_trigger: Final = Reader(
    TriggerInfo,
    {
        **_all("schedule_id event_subject parent_run_id retry_of", str),
        "kind": ("kind", str, _one_of(TRIGGER_KINDS)),
        "scheduled_for": ("scheduled_for", object, _instant),
    },
)
_read_error: Final = Reader(RunError, _all("type message traceback", str))
_read_progress: Final = Reader(
    Progress, {"done": ("done", object, _number), "total": ("total", object, _number), **_all("message", str)}
)
_read_log: Final = Reader(LogLine, _all("at", datetime) | _all("level message", str) | _all("fields", dict))
_read_attempt: Final = Reader(
    Attempt,
    {
        **_all("attempt", int),
        **_all("host_id outcome", str),
        **_all("started_at finished_at", datetime),
        "error": ("error", dict, _read_error),
    },
    nullable="started_at finished_at",
)

read_record: Final = Reader(
    RunRecord,
    {
        **_all("run_id module job key payload_digest version claim skip_reason host_id", str),
        **_all("schedule_id parent_run_id retry_of", str),
        **_all("starts snoozes interruptions turn max_attempts", int),
        **_all("fired_at scheduled_for start_deadline expires_at created_at", datetime),
        **_all("started_at finished_at heartbeat_at retry_at", datetime),
        **_all("cancel_asked", bool),
        "v": (_DROPPED, int, None),
        "attempt": (_DROPPED, int, None),
        "status": ("status", str, _status),
        "owner": ("owner", dict, _read_owner),
        "trigger": ("trigger", dict, _read_trigger),
        "payload": ("payload_body", dict, _read_body),
        "result": ("result_body", dict, _read_body),
        "checkpoint": ("checkpoint_body", dict, _read_body),
        "error": ("error", dict, _read_error),
        "progress": ("progress", dict, _read_progress),
        "logs": ("logs", list, _several(_read_log)),
        "attempts": ("attempts", list, _several(_read_attempt)),
    },
)
read_descriptor: Final = Reader(
    JobDescriptor,
    {
        **_all("module job description version host_id digest payload_schema_digest", str),
        **_all("max_concurrency max_attempts", int),
        **_all("takes_payload", bool),
        **_all("payload_schema", dict),
        "v": (_DROPPED, int, None),
        "timeout_ms": ("timeout", int, _milliseconds),
        "triggers": ("triggers", list, _several(_map)),
        "updated_at": ("updated_at", datetime, None),
    },
)
read_presence: Final = Reader(
    HostPresence,
    {
        **_all("host_id hostname version", str),
        **_all("pid running", int),
        **_all("started_at seen_at", datetime),
        **_all("draining", bool),
        **_all("descriptors", dict),
        "v": (_DROPPED, int, None),
        "jobs": ("jobs", list, _texts),
    },
)
