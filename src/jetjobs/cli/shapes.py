"""The JSON documents that `--json` prints: what is in them stays, new fields may come.

Instants are ISO 8601 in UTC, spans are seconds. A payload or result is the JSON that comes closest: decimals, UUIDs
and dates as texts, sets as lists, bytes in base64, numbers JSON can't write as texts. One that lies outside the record
is `{"claim_check": {"size": …, "sha256": …}}`, one that can't be read `{"unreadable": why}`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, cast

from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.controls import JobControl, JobInfo, limiting, pausing
from jetjobs._core.descriptors import HostPresence
from jetjobs._core.models import Attempt, RunError, RunRecord
from jetjobs.errors import PayloadError

_INSTANTS = (
    "created_at",
    "fired_at",
    "scheduled_for",
    "start_deadline",
    "expires_at",
    "started_at",
    "finished_at",
    "heartbeat_at",
    "retry_at",
)


def run_summary(record: RunRecord) -> dict[str, Any]:
    """One run of a list."""
    return {
        "run_id": record.run_id,
        "module": record.module,
        "job": record.job,
        "status": record.status.value,
        "attempt": record.attempt,
        "max_attempts": record.max_attempts,
        "key": record.key,
        "trigger": record.trigger.kind,
        "error": _error(record.error, with_traceback=False),
        "skip_reason": record.skip_reason,
        "cancel_asked": record.cancel_asked,
        "host_id": record.host_id,
        "schedule_id": record.schedule_id,
        "parent_run_id": record.parent_run_id,
        "retry_of": record.retry_of,
        **{name: instant(getattr(record, name)) for name in _INSTANTS},
    }


def run_document(record: RunRecord) -> dict[str, Any]:
    """Everything known of one run."""
    progress = record.progress
    return {
        **run_summary(record),
        "version": record.version,
        "stub": record.stub,
        "starts": record.starts,
        "snoozes": record.snoozes,
        "interruptions": record.interruptions,
        "event_subject": record.trigger.event_subject,
        "payload": body(record.payload_body),
        "result": body(record.result_body),
        "error": _error(record.error, with_traceback=True),
        "progress": None
        if progress is None
        else plain({"done": progress.done, "total": progress.total, "message": progress.message}),
        "logs": [
            {"at": instant(line.at), "level": line.level, "message": line.message, "fields": plain(line.fields)}
            for line in record.logs
        ],
        "attempts": [_attempt(attempt) for attempt in record.attempts],
    }


def job_document(job: JobInfo, live_hosts: int) -> dict[str, Any]:
    """One job of a list. `limit` is in force, `max_concurrency` declared; `switched` tells of a pause or resume."""
    orders, nobodys = (job.inherited, job.control), JobControl(*job.address)
    pause, limit = pausing(*orders) or nobodys, limiting(*orders) or nobodys
    return {
        "module": job.module,
        "job": job.job,
        "description": job.description,
        "max_concurrency": job.max_concurrency,
        "max_attempts": job.max_attempts,
        "timeout": None if job.timeout is None else job.timeout.total_seconds(),
        "takes_payload": job.takes_payload,
        "payload_schema": plain(job.payload_schema),
        "triggers": plain(job.triggers),
        "version": job.version,
        "updated_at": instant(job.updated_at),
        "live_hosts": live_hosts,
        "paused": job.paused,
        "switched_by": pause.switched_by,
        "switched_at": instant(pause.switched_at),
        "limit": job.limit,
        "limited_by": limit.limited_by,
        "limited_at": instant(limit.limited_at),
    }


def host_document(host: HostPresence) -> dict[str, Any]:
    """One host of a list."""
    return {
        "host_id": host.host_id,
        "hostname": host.hostname,
        "pid": host.pid,
        "version": host.version,
        "jobs": list(host.jobs),
        "running": host.running,
        "draining": host.draining,
        "started_at": instant(host.started_at),
        "seen_at": instant(host.seen_at),
    }


def body(stored: Body | None) -> Any:
    """A payload or result as JSON values."""
    if stored is None:
        return None
    try:
        return plain(stored.value)
    except PayloadError as error:
        return {"unreadable": str(error)}


def plain(value: Any) -> Any:
    """The JSON value that comes closest.

    >>> plain({1: {3}, "n": float("nan"), "b": b"x"})
    {'1': [3], 'n': 'nan', 'b': 'eA=='}
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Mapping():
            return {str(key): plain(each) for key, each in cast("Mapping[Any, Any]", value).items()}
        case list() | tuple() | set() | frozenset():
            return [plain(each) for each in cast("list[Any]", value)]
        case _:
            return _text(value)


def _text(value: Any) -> Any:
    match value:
        case ClaimCheck():
            return {"claim_check": {"size": value.size, "sha256": value.sha256}}
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case timedelta():
            return value.total_seconds()
        case date():  # a datetime too, in whatever zone it was stored
            return value.isoformat()
        case _:
            return str(value)


def instant(at: datetime | None) -> str | None:
    """ISO 8601 in UTC.

    >>> instant(datetime(2030, 1, 1, tzinfo=UTC))
    '2030-01-01T00:00:00.000Z'
    """
    return None if at is None else at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _error(error: RunError | None, *, with_traceback: bool) -> dict[str, Any] | None:
    if error is None:
        return None
    shown: dict[str, Any] = {"type": error.type, "message": error.message}
    return {**shown, "traceback": error.traceback} if with_traceback else shown


def _attempt(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "host_id": attempt.host_id,
        "started_at": instant(attempt.started_at),
        "finished_at": instant(attempt.finished_at),
        "outcome": attempt.outcome,
        "error": _error(attempt.error, with_traceback=False),
    }
