"""Run records, descriptors and presences as bytes and back.

Each is one msgpack map. Fields that have their default are left out, instants are msgpack timestamps, bodies are
short maps, and `attempt` is written for readers though it is derived. `v` is the schema version: fields are added
without a new one, so fields unknown here are kept in `extra` and written again; a higher `v` is refused, and whoever
meets such a record leaves it alone.

A record is at most 512 KiB as stored, whatever a handler logged or raised: `pack_record` makes it so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast

import msgpack

from jetjobs._core.controls import JobControl
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.models import KEPT_ATTEMPTS, NOTHING, LogLine, RunError, RunRecord, TriggerInfo
from jetjobs._core.readers import Reader, read_control, read_descriptor, read_presence, read_record, read_schedule
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.shapes import (
    PACK_FAULTS,
    pack,
    shape_control,
    shape_descriptor,
    shape_presence,
    shape_record,
    shape_schedule,
)
from jetjobs._core.texts import MAX_NAME, cut, cut_front
from jetjobs.errors import PayloadInvalidError

VERSION: Final = 1
MAX_RECORD: Final = 512 * 1024

_MILLISECOND: Final = timedelta(milliseconds=1)
_LOG_COST: Final = 64
_SPANS: Final = ("interval_ms", "misfire_grace_ms", "jitter_ms")
_READ_FAULTS: Final = (*PACK_FAULTS, LookupError, MemoryError, AttributeError)


def pack_record(record: RunRecord, limit: int = MAX_RECORD) -> bytes:
    """The record as bytes, cut to 512 KiB where it is larger, or to what the server takes when that is less.

    Raises:
        PayloadError: a part of it has no place in a record.
    """
    data = _pack_whole(record)
    return data if len(data) <= limit else _pack_whole(fit_record(record, limit))


def fit_record(record: RunRecord, limit: int = MAX_RECORD) -> RunRecord:
    """The record, cut until it takes at most `limit`: logs first, then texts of errors, the checkpoint, the rest."""
    for step in _CUTS:
        if len(_pack_whole(record)) <= limit:
            return record
        record = step(record, limit)
    return record


def _pack_whole(record: RunRecord) -> bytes:
    """The record as bytes, whatever their number."""
    shape = shape_record(record)
    shape["v"] = VERSION
    shape["attempt"] = record.starts - record.snoozes - record.interruptions
    return pack({**record.extra, **shape} if record.extra else shape)


def _cut_logs(record: RunRecord, limit: int) -> RunRecord:
    room = limit - len(_pack_whole(replace(record, logs=()))) - 1024
    kept: list[LogLine] = []
    for line in reversed(record.logs):
        room -= len(pack({"": line})) + _LOG_COST
        if room < 0:
            break
        kept.append(line)
    gone = len(record.logs) - len(kept)
    if not gone:
        return record
    mark = LogLine(record.logs[gone - 1].at, "warning", f"… [cut, {gone} older lines]")
    return replace(record, logs=(mark, *reversed(kept)))


def _cut_errors(record: RunRecord, _limit: int) -> RunRecord:
    attempts = tuple(replace(part, error=_short_error(part.error)) for part in record.attempts[-KEPT_ATTEMPTS:])
    return replace(record, error=_short_error(record.error), attempts=attempts)


def _short_error(error: RunError | None, message: int = 1024, traceback: int = 4096) -> RunError | None:
    if error is None:
        return None
    kept = cut_front(error.traceback, traceback) if traceback else ""
    return RunError(cut(error.type, MAX_NAME), cut(error.message, message), kept)


def _cut_small(record: RunRecord, _limit: int) -> RunRecord:
    # Twenty attempts of 5 KiB are more than a small server takes, and a run needs its payload to go on.
    attempts = tuple(replace(part, error=_short_error(part.error, 200, 0)) for part in record.attempts)
    said = record.progress
    progress = said and replace(said, message=said.message and cut(said.message, 200))
    return replace(record, error=_short_error(record.error, 1024, 1024), attempts=attempts, progress=progress)


def _drop_checkpoint(record: RunRecord, _limit: int) -> RunRecord:
    return replace(record, checkpoint_body=None)


def _drop_rest(record: RunRecord, _limit: int) -> RunRecord:
    # Only hostile or foreign records come here: ours have bounded bodies, names and keys. What identifies the run
    # and says how it ended stays.
    texts = ("key", "version", "skip_reason", "host_id", "schedule_id", "parent_run_id", "retry_of", "payload_digest")
    short = {name: cut(value, 1024) for name in texts if (value := getattr(record, name)) is not None}
    return replace(
        record,
        **short,
        payload_body=None,
        result_body=None,
        progress=None,
        trigger=TriggerInfo(record.trigger.kind),
        attempts=(),
        extra=NOTHING,
    )


_CUTS: Final[tuple[Callable[[RunRecord, int], RunRecord], ...]] = (
    _cut_logs,
    _cut_errors,
    _cut_small,
    _drop_checkpoint,
    _drop_rest,
)


def pack_descriptor(descriptor: JobDescriptor) -> bytes:
    """A job's descriptor as bytes; its timeout in whole milliseconds."""
    shape = shape_descriptor(descriptor)
    if descriptor.timeout is not None:
        shape["timeout_ms"] = descriptor.timeout // _MILLISECOND
    return pack({**descriptor.extra, **shape, "v": VERSION})


def pack_control(control: JobControl) -> bytes:
    """What people ordered for a job, as bytes."""
    return pack({**control.extra, **shape_control(control), "v": VERSION})


def pack_presence(presence: HostPresence) -> bytes:
    """What a host says about itself, as bytes."""
    return pack({**shape_presence(presence), "v": VERSION})


def pack_schedule(schedule: ScheduleRecord) -> bytes:
    """A schedule's record as bytes; its spans in whole milliseconds.

    Raises:
        PayloadError: a part of it has no place in a record.
    """
    shape = shape_schedule(schedule)
    for name in _SPANS:
        if name in shape:
            shape[name] //= _MILLISECOND
    return pack({**schedule.extra, **shape, "v": VERSION})


def unpack_record(data: bytes) -> RunRecord:
    """The record in the bytes; safe on bytes from anybody.

    Raises:
        PayloadInvalidError: they are no record, or one of a newer version.
    """
    return _unpack(data, "run record", read_record)


def unpack_descriptor(data: bytes) -> JobDescriptor:
    """The descriptor in the bytes.

    Raises:
        PayloadInvalidError: they are no descriptor, or one of a newer version.
    """
    return _unpack(data, "job descriptor", read_descriptor)


def unpack_control(data: bytes) -> JobControl:
    """What people ordered for a job.

    Raises:
        PayloadInvalidError: they are no orders, or ones of a newer version.
    """
    return _unpack(data, "job's orders", read_control)


def unpack_schedule(data: bytes) -> ScheduleRecord:
    """The schedule in the bytes.

    Raises:
        PayloadInvalidError: they are no schedule, or one of a newer version.
    """
    return _unpack(data, "schedule", read_schedule)


def unpack_presence(data: bytes) -> HostPresence:
    """The presence in the bytes. Fields unknown here are dropped: a host says everything anew each time.

    Raises:
        PayloadInvalidError: they are no presence, or one of a newer version.
    """
    return _unpack(data, "host's entry", read_presence)


def _unpack(data: bytes, what: str, read: Reader) -> Any:
    try:
        raw = cast("dict[str, Any]", msgpack.unpackb(data, timestamp=3, strict_map_key=True))
        if raw.get("v", VERSION) == VERSION:
            return read(raw)
        version = ascii(raw["v"])[:40]
    except _READ_FAULTS as error:
        raise PayloadInvalidError(f"{len(data)} bytes are no {what}: {type(error).__name__} {error}"[:500]) from error
    raise PayloadInvalidError(f"this {what} has version {version}, jetjobs here reads {VERSION}: upgrade this process")
