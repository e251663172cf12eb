"""The message that makes the broker fire a schedule, the ticks it becomes, and the triggers hosts store beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from jetjobs._core import names
from jetjobs._core.cron import cron_line
from jetjobs._core.durations import duration
from jetjobs._core.headers import (
    CONTENT_TYPE,
    EXPIRES_IN,
    NATS_SCHEDULE,
    NATS_SCHEDULE_NEXT,
    NATS_SCHEDULE_TARGET,
    SCHEDULE,
    TRIGGER,
    TTL,
    delayed_message,
    read_instant,
    trigger_message,
    write_content_type,
    write_info,
    write_span,
)
from jetjobs._core.intervals import IntervalTimetable, Timetable
from jetjobs._core.messages import Message, Outgoing, Trigger
from jetjobs._core.occurrences import Tick
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.starting import Start, run_key
from jetjobs._core.timetables import CronTimetable, broker_line

NATS_SCHEDULE_ZONE: Final = "Nats-Schedule-Time-Zone"

_SECOND: Final = timedelta(seconds=1)
_MINUTE: Final = timedelta(minutes=1)
_LAST_TICK: Final = "purge"
_FAULTS: Final = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, OSError)


def schedule_message(project: str, schedule: ScheduleRecord, *, expires_in: timedelta | None = None) -> Outgoing:
    """The schedule as a message on its subject; the broker copies body and our headers into each tick.

    `Nats-TTL: never` keeps the stream's `max_age` from eating it. No `Nats-Msg-Id`: within its window the broker would
    confirm an edit and not store it.
    """
    body = schedule.payload_body
    headers: dict[str, str] = {}
    if body is not None:
        headers[CONTENT_TYPE] = write_content_type(body)
    headers[TRIGGER] = write_info(schedule.info())
    headers[SCHEDULE] = _write_definition(schedule)
    if expires_in is not None:
        headers[EXPIRES_IN] = write_span(expires_in)
    headers[NATS_SCHEDULE] = broker_line(schedule)
    headers[NATS_SCHEDULE_TARGET] = names.tick_subject(project, schedule.address, schedule.schedule_id)
    if schedule.interval is None:
        headers[NATS_SCHEDULE_ZONE] = schedule.timezone
    headers[TTL] = "never"
    subject = names.schedule_subject(project, schedule.address, schedule.schedule_id)
    return Outgoing(subject, headers, body.data if body is not None else b"")


def same_schedule(stored: Message, wanted: Outgoing) -> bool:
    """Whether the message in the stream does what the wanted one would.

    Headers that only the stored one has don't count: the broker adds one, and so may a newer jetjobs. Publishing over
    them would move the ticks of an interval, and the two releases would take turns at it.
    """
    found = stored.headers
    return stored.data == wanted.data and all(found.get(name) == value for name, value in wanted.headers.items())


def read_tick(message: Message) -> Tick | str:
    """What a tick says of its occurrence, or why that can't be told.

    The occurrence is the last instant before `Nats-Schedule-Next`, by the line and zone that the message itself
    carries: its timestamp says only when it came, the schedule may have been edited since.
    """
    try:
        parts: Any = json.loads(_header(message, SCHEDULE))
        line, zone, revision = parts["line"], parts["zone"], parts["revision"]
        if not (type(line) is str and type(zone) is str and type(revision) is int):
            return f"the header {SCHEDULE} holds something else than a line, a zone and a revision"
        upcoming = _header(message, NATS_SCHEDULE_NEXT)
        end = message.stored_at + _SECOND if upcoming == _LAST_TICK else read_instant(upcoming)
        timetable = _timetable(line, zone, end)
        occurrence = timetable.last_before(end, message.stored_at)
        if occurrence is None:
            return f"{line[:80]!a} has no occurrence"
        # Looked at only where it seems late: most ticks come at their second.
        late = zone != "UTC" and upcoming != _LAST_TICK and message.stored_at - occurrence > _MINUTE
        differs = late and _differ(timetable.next_after(message.stored_at), end)
    except _FAULTS as error:
        return f"its headers name no occurrence: {type(error).__name__} {error}"[:500]
    return Tick(occurrence, line, zone, revision, zone_differs=differs)


def tick_trigger(schedule: ScheduleRecord, tick: Tick, trigger: Trigger) -> Trigger:
    """The tick's message as the trigger of its occurrence's run.

    Its body is the message's, unless the schedule was edited before the occurrence and the message is of before.
    """
    edited = schedule.updated_at is not None and tick.occurrence > schedule.updated_at
    current = tick.revision == schedule.revision
    return replace(
        trigger,
        key=run_key(schedule, tick.occurrence),
        body=schedule.payload_body if edited and not current else trigger.body,
        payload_schema=schedule.payload_schema if edited or current else None,
        info=schedule.info(_in_zone(schedule, tick.occurrence)),
        scheduled_for=tick.occurrence,
    )


def start_message(
    project: str, schedule: ScheduleRecord, start: Start, now: datetime, *, expires_in: timedelta | None = None
) -> Outgoing:
    """The trigger of a decided occurrence, to be stored with expected 0: at once, or a schedule for its jitter."""
    described: dict[str, Any] = {
        "info": schedule.info(_in_zone(schedule, start.occurrence)),
        "scheduled_for": start.occurrence,
        "expires_in": expires_in,
        "payload_schema": schedule.payload_schema,
    }
    run, body = run_key(schedule, start.occurrence), schedule.payload_body
    if start.start_at > now:
        return delayed_message(project, run, start.start_at, body, **described)
    return trigger_message(project, run, body, **described)


def _differ(here: datetime | None, there: datetime) -> bool:
    """Whether two next instants are further apart than a broker that was busy explains; zones differ by minutes."""
    return here is None or abs(here - there) >= _MINUTE


def _write_definition(schedule: ScheduleRecord) -> str:
    parts = {"line": schedule.line, "zone": schedule.timezone, "revision": schedule.revision}
    return json.dumps(parts, separators=(",", ":"))


def _header(message: Message, name: str) -> str:
    value = message.headers.get(name)
    if value is None:
        raise LookupError(f"there is no {name}")
    return value


def _timetable(line: str, zone: str, end: datetime) -> Timetable:
    if line[:1].isdigit() and " " not in line:
        return IntervalTimetable(duration(line, "interval"), end)
    return CronTimetable(cron_line(line, zone))


def _in_zone(schedule: ScheduleRecord, occurrence: datetime) -> datetime:
    if schedule.timezone == "UTC":
        return occurrence.astimezone(UTC)
    return occurrence.astimezone(ZoneInfo(schedule.timezone))
