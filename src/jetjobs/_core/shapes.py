"""How each stored value is taken apart for msgpack: the tables behind `wire`; `readers` is the way back.

It goes by tables made from the dataclasses once, and the parts every record has are done by hand. Pydantic, or a
chain of forty ifs, would cost a third of a host's throughput.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, cast

import msgpack

from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.controls import JobControl
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.leaves import write_datetime
from jetjobs._core.models import Attempt, LogLine, Owner, Progress, RunError, RunRecord, TriggerInfo
from jetjobs._core.schedule_record import Counters, ScheduleRecord, Stretch
from jetjobs.errors import PayloadError

PACK_FAULTS: Final = (ValueError, TypeError, OverflowError, RecursionError)


class _Packers(threading.local):
    """A packer per thread: making one takes as long as packing a record, and none may be shared."""

    def __init__(self) -> None:
        self.packer = msgpack.Packer(default=_shape, datetime=True)


def pack(value: object) -> bytes:
    """Parts of records as msgpack.

    Raises:
        PayloadError: one has no place in a record.
    """
    try:
        return cast("bytes", _packers.packer.pack(value))
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
    """The same for run records, which hold only what was set.

    The parts nearly every record has are taken apart here: asking back for each costs more than the rest.
    """

    __slots__ = ("_defaults",)

    def __init__(self) -> None:
        self._defaults = {field.name: field.default for field in fields(RunRecord)}

    def __call__(self, record: RunRecord) -> dict[str, Any]:
        defaults = self._defaults
        shape = {name: part for name, part in record.__dict__.items() if part is not defaults[name]}
        shape.pop("extra", None)
        if (owner := record.owner) is not None:
            shape["owner"] = _shape_owner(owner)
        if attempts := record.attempts:
            shape["attempts"] = [_shape_attempt(attempt) for attempt in attempts]
        for name, wire_name in _RENAMED:
            if name in shape:
                shape[wire_name] = _shape_body(shape.pop(name))
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


_RENAMED: Final = (("payload_body", "payload"), ("result_body", "result"), ("checkpoint_body", "checkpoint"))
shape_record: Final = RecordShape()
shape_descriptor: Final = Shape(JobDescriptor, {"timeout": "timeout_ms"})
shape_presence: Final = Shape(HostPresence)
shape_control: Final = Shape(JobControl)
shape_schedule: Final = Shape(
    ScheduleRecord,
    {
        "payload_body": "payload",
        "interval": "interval_ms",
        "misfire_grace": "misfire_grace_ms",
        "jitter": "jitter_ms",
    },
)
_shape_other_body: Final = Shape(Body)
_shape_other_trigger: Final = Shape(TriggerInfo)
_SHAPES: Final[dict[type, Callable[[Any], dict[str, Any]]]] = {
    Owner: _shape_owner,
    Body: _shape_body,
    Attempt: _shape_attempt,
    TriggerInfo: _shape_trigger,
    MappingProxyType: dict,
    **{kind: Shape(kind) for kind in (ClaimCheck, RunError, LogLine, Progress, Counters, Stretch)},
}
_packers: Final = _Packers()
