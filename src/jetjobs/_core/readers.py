"""How each stored value is checked and built from its msgpack map: the tables behind `wire`; `shapes` is the way in.

Nothing here trusts its input. What is wrong raises `ValueError`, `TypeError` or `LookupError`; `wire` says of what.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from datetime import datetime, timedelta
from typing import Any, Final, cast, get_args

from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.controls import JobControl, check_limit
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.leaves import read_datetime
from jetjobs._core.models import (
    NOTHING,
    Attempt,
    LogLine,
    Owner,
    Progress,
    RunError,
    RunRecord,
    RunStatus,
    TriggerInfo,
    TriggerKind,
)
from jetjobs._core.schedule_record import Counters, Origin, ScheduleKind, ScheduleRecord, ScheduleState, Stretch
from jetjobs._core.shapes import pack
from jetjobs._core.triggers import Coalesce, Overlap

TRIGGER_KINDS: Final[frozenset[str]] = frozenset(get_args(TriggerKind))

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
        return self._built(values)

    def _built(self, values: list[Any]) -> Any:
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


def _instants(value: list[object]) -> tuple[datetime, ...]:
    return tuple([_instant(part) for part in value])


def _number(value: object) -> int | float:
    if type(value) is not int and type(value) is not float:
        raise TypeError(f"a {type(value).__name__} stands where a number must")
    return value


def _texts(value: list[object]) -> tuple[str, ...]:
    return tuple([str(part) for part in value])


def _status(text: str) -> RunStatus:
    return RunStatus.__members__[text]


def _state(text: str) -> ScheduleState:
    return ScheduleState.__members__[text]


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
        **_all("cancel_asked stub", bool),
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
        **_all("module job description version host_id digest payload_schema_digest now_called", str),
        **_all("max_concurrency max_attempts", int),
        **_all("takes_payload", bool),
        **_all("payload_schema retention", dict),
        "v": (_DROPPED, int, None),
        "timeout_ms": ("timeout", int, _milliseconds),
        "triggers": ("triggers", list, _several(_map)),
        "redact": ("redact", list, _texts),
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
        **_all("descriptors retention", dict),
        "v": (_DROPPED, int, None),
        "jobs": ("jobs", list, _texts),
    },
)
read_control: Final = Reader(
    JobControl,
    {
        **_all("module job switched_by limited_by", str),
        **_all("switched_at limited_at", datetime),
        **_all("paused", bool),
        "v": (_DROPPED, int, None),
        "max_concurrency": ("max_concurrency", int, check_limit),
    },
)
read_schedule: Final = Reader(
    ScheduleRecord,
    {
        **_all("schedule_id name module job line timezone last_error version declared_by payload_schema", str),
        **_all("max_instances revision", int),
        **_all("start_at end_at state_at anchor cursor last_occurrence last_run_at last_ended_at", datetime),
        **_all("next_run_at created_at updated_at", datetime),
        "v": (_DROPPED, int, None),
        "kind": ("kind", str, _one_of(frozenset(get_args(ScheduleKind)))),
        "interval_ms": ("interval", int, _milliseconds),
        "payload": ("payload_body", dict, _read_body),
        "misfire_grace_ms": ("misfire_grace", int, _milliseconds),
        "coalesce": ("coalesce", str, _one_of(frozenset(get_args(Coalesce)))),
        "overlap": ("overlap", str, _one_of(frozenset(get_args(Overlap)))),
        "jitter_ms": ("jitter", int, _milliseconds),
        "origin": ("origin", str, _one_of(frozenset(get_args(Origin)))),
        "state": ("state", str, _state),
        "open": ("open", list, _instants),
        "active": ("active", list, _instants),
        "skipping": (
            "skipping",
            dict,
            Reader(Stretch, _all("first last", datetime) | _all("count", int)),
        ),
        "counters": (
            "counters",
            dict,
            Reader(Counters, _all("runs failures missed coalesced overlap_skips", int)),
        ),
    },
)
