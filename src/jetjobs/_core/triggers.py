"""What starts a job by itself: `Cron`, `Every`, `OnEvent`. Immutable, checked when made, described as plain data."""

from __future__ import annotations

import difflib
import hashlib
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict, Unpack, cast, get_args

from jetjobs._core import codec, names
from jetjobs._core.checks import choice, keep, span, whole
from jetjobs._core.cron import CronLine, check_cron, cron_line
from jetjobs._core.durations import DurationLike, InstantLike, format_duration, instant
from jetjobs._core.event_filter import EventFilter, compile_filter, in_order
from jetjobs._core.models import JobAddress
from jetjobs._core.subjects import check_stream, check_subject
from jetjobs.errors import ConfigError, DeclarationError, InvalidNameError, ScheduleError

Coalesce = Literal["latest", "earliest", "all"]
Overlap = Literal["skip", "queue", "allow"]

LONGEST_INTERVAL: Final = timedelta(days=36_500)  # the broker counts nanoseconds in 64 bits: 292 years


class ScheduleOptions(TypedDict, total=False):
    """What `Cron` and `Every` have in common, as keywords; `Schedule` tells what each means."""

    name: str | None
    payload: Any
    misfire_grace: DurationLike | None
    coalesce: Coalesce
    overlap: Overlap
    max_instances: int
    jitter: DurationLike | None
    start_at: InstantLike | None
    end_at: InstantLike | None


@dataclass(frozen=True, slots=True, init=False)
class Schedule:
    """The common part of `Cron` and `Every`.

    Attributes:
        name: Tells a job's schedules apart (`cron` or `every` unless given); its pause and history are kept under it.
        payload: What its runs work on; `None`, the default, is no payload.
        misfire_grace: How late an occurrence may still start, 1 h unless given; `None`: however late. Later: MISSED.
        coalesce: Which of several due occurrences becomes a run after an outage: the `latest` (default), the
            `earliest`, or `all`. The others are counted.
        overlap: What an occurrence does while an earlier run of this schedule is active: `skip` (default), `queue`
            behind it (at most 1,000 wait), or `allow` a second one.
        max_instances: Most active runs of it under `overlap="allow"`; 1 unless given.
        jitter: Spreads the starts over this span, evenly and the same on every host; none unless given.
        start_at: First instant it may fire.
        end_at: First instant it may no longer fire.
    """

    name: str
    payload: Any
    misfire_grace: timedelta | None
    coalesce: Coalesce
    overlap: Overlap
    max_instances: int
    jitter: timedelta | None
    start_at: datetime | None
    end_at: datetime | None

    def schedule_id(self, address: JobAddress) -> str:
        """The schedule's id: a digest of module, job and name, never of its place in a list."""
        return schedule_id(address, self.name)

    def _set_common(self, kind: str, options: ScheduleOptions) -> None:
        _refuse_unknown(kind, cast("Mapping[str, object]", options))
        grace, jitter = options.get("misfire_grace", "1h"), options.get("jitter")
        start, end = options.get("start_at"), options.get("end_at")
        payload = options.get("payload")
        keep(
            self,
            name=_check_name(options.get("name"), kind),
            payload=payload,
            misfire_grace=None if grace is None else span(f"{kind} misfire_grace", grace),
            coalesce=choice(f"{kind} coalesce", options.get("coalesce", "latest"), get_args(Coalesce)),
            overlap=choice(f"{kind} overlap", options.get("overlap", "skip"), get_args(Overlap)),
            max_instances=whole(f"{kind} max_instances", options.get("max_instances", 1)),
            jitter=None if jitter is None else span(f"{kind} jitter", jitter, zero_ok=True),
            start_at=None if start is None else instant(start, f"{kind} start_at"),
            end_at=None if end is None else instant(end, f"{kind} end_at"),
        )
        codec.encode(payload, path="payload")  # refused here, not when the first tick comes
        if self.start_at is not None and self.end_at is not None and self.end_at <= self.start_at:
            raise ConfigError(f"{kind} end_at {self.end_at} is not after start_at {self.start_at}")
        if self.max_instances > 1 and self.overlap != "allow":
            raise ConfigError(
                f'{kind} max_instances={self.max_instances} means nothing with overlap="{self.overlap}"; '
                'write overlap="allow"'
            )

    def _describe_common(self, kind: str, address: JobAddress) -> dict[str, Any]:
        return {
            "kind": kind,
            "name": self.name,
            "schedule_id": self.schedule_id(address),
            "payload": codec.decode(codec.encode(self.payload, path="payload"), "msgpack"),
            "misfire_grace": _text(self.misfire_grace),
            "coalesce": self.coalesce,
            "overlap": self.overlap,
            "max_instances": self.max_instances,
            "jitter": _text(self.jitter),
            "start_at": None if self.start_at is None else self.start_at.isoformat(),
            "end_at": None if self.end_at is None else self.end_at.isoformat(),
        }


@dataclass(frozen=True, slots=True, init=False)
class Cron(Schedule):
    """Fires by a cron line, 5 fields or 6 with seconds first, read in `timezone`. `Schedule` tells the options.

    Names, ranges and steps are understood. Where day of month and day of week are both restricted, either suffices.

    >>> Cron("0 2 * * *", timezone="UTC").name
    'cron'

    Raises:
        ScheduleError: the line or the zone means nothing; says what to write.
    """

    expression: str
    timezone: str

    def __init__(self, expression: str, *, timezone: str = "UTC", **options: Unpack[ScheduleOptions]) -> None:
        self._set_common("cron", options)
        keep(self, expression=check_cron(expression), timezone=check_zone(timezone))

    @property
    def line(self) -> CronLine:
        """When it fires, as the broker has it."""
        return cron_line(self.expression, self.timezone)

    def describe(self, address: JobAddress) -> dict[str, Any]:
        """The schedule as plain data, for the job's descriptor."""
        common = self._describe_common("cron", address)
        return {**common, "expression": self.expression, "timezone": self.timezone}


@dataclass(frozen=True, slots=True, init=False)
class Every(Schedule):
    """Fires each `interval`, whole seconds from 1 on. `Schedule` tells the options.

    The rhythm is the broker's: restarts, releases and more hosts don't move it.

    >>> Every("5m").interval
    datetime.timedelta(seconds=300)

    Raises:
        ScheduleError: the interval is shorter, a fraction, or no duration.
    """

    interval: timedelta

    def __init__(self, interval: DurationLike, **options: Unpack[ScheduleOptions]) -> None:
        self._set_common("every", options)
        keep(self, interval=_interval(interval))

    def describe(self, address: JobAddress) -> dict[str, Any]:
        """The schedule as plain data, for the job's descriptor."""
        return {**self._describe_common("every", address), "interval": format_duration(self.interval)}


@dataclass(frozen=True, slots=True, init=False)
class OnEvent:
    """Fires for each message on a NATS subject whose body passes the filter; the body is the payload.

    With `stream` the messages come from that JetStream stream, at least once; without it by core NATS, at most once,
    while a host listens. Either way all hosts together make one run of a message with a `Nats-Msg-Id`.

    Attributes:
        subject: Where to listen; `*` and `>` as in NATS.
        name: Tells a job's event triggers apart; `event` unless given.
        filter: Conditions on the body's fields; what doesn't fit makes no run and writes nothing.
        stream: The JetStream stream to take from.

    >>> OnEvent("orders.paid", filter={"total": {"gte": 100}}).subject
    'orders.paid'

    Raises:
        InvalidNameError: no subject to listen on, or one of jetjobs' own.
        DeclarationError: the filter means nothing.
    """

    subject: str
    name: str
    filter: EventFilter | None
    stream: str | None

    def __init__(
        self,
        subject: str,
        *,
        name: str | None = None,
        filter: Mapping[str, Any] | None = None,  # noqa: A002 - the word users look for
        stream: str | None = None,
    ) -> None:
        keep(
            self,
            subject=check_subject(subject),
            name=_check_name(name, "event"),
            filter=None if filter is None else compile_filter(filter),
            stream=None if stream is None else check_stream(stream),
        )

    @property
    def digest(self) -> str:
        """Tells this trigger from the same one with another subject, filter or stream; part of durable names."""
        wanted = "" if self.filter is None else repr(list(in_order(self.filter.spec).items()))
        return _digest(self.subject, self.stream or "", wanted)

    def describe(self, address: JobAddress) -> dict[str, Any]:  # noqa: ARG002 - the same call for every kind
        """The trigger as plain data, for the job's descriptor."""
        return {
            "kind": "event",
            "name": self.name,
            "subject": self.subject,
            "filter": None if self.filter is None else dict(self.filter.spec),
            "stream": self.stream,
            "digest": self.digest,
        }


AnyTrigger = Cron | Every | OnEvent


def check_triggers(triggers: object) -> tuple[AnyTrigger, ...]:
    """A job's triggers as a tuple, each with a name of its own.

    Raises:
        DeclarationError: something else is among them, or two share a name.
    """
    given = cast("tuple[object, ...]", triggers if isinstance(triggers, (tuple, list)) else (triggers,))
    seen: dict[str, AnyTrigger] = {}
    for each in given:
        if not isinstance(each, (Cron, Every, OnEvent)):
            raise DeclarationError(
                f'triggers must be Cron, Every or OnEvent, not {each!r}; write triggers=[Every("5m")]'
            )
        if each.name in seen:
            kind = type(each).__name__
            raise DeclarationError(
                f'two triggers are named "{each.name}"; give each a name: {kind}(…, name="first"), name="second"'
            )
        seen[each.name] = each
    return tuple(seen.values())


def schedule_id(address: JobAddress, name: str) -> str:
    """Id of the schedule of that name which code declares for a job.

    >>> schedule_id(JobAddress("billing", "close_day"), "cron") == schedule_id(JobAddress("billing", "close"), "cron")
    False
    """
    return _digest(address.module, address.job, name)


def check_zone(name: object) -> str:
    """The name of a time zone that this machine knows; UTC needs no database.

    Raises:
        ScheduleError: it doesn't, with close names, or there is no zone database at all.
    """
    if name == "UTC":
        return "UTC"
    if not isinstance(name, str):
        raise ScheduleError(f'timezone must be a name such as "Europe/Paris", not {name!r}')
    try:
        return zoneinfo.ZoneInfo(name).key
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        known = zoneinfo.available_timezones()
        if not known:
            raise ScheduleError(
                f'timezone "{name}": this Python has no time zone database (the broker needs one of its own too); '
                'install the package tzdata, or write timezone="UTC"'
            ) from error
        close = difflib.get_close_matches(name, known, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else '; write a name such as "Europe/Paris"'
        raise ScheduleError(f"timezone {name!r} is unknown{hint}") from error


def _interval(value: object) -> timedelta:
    if isinstance(value, bool):
        raise ScheduleError(f'Every needs an interval such as "5m", not {value!r}')
    try:
        interval = span("every interval", value)
    except ConfigError as error:
        raise ScheduleError(str(error)) from error
    if interval < timedelta(seconds=1) or interval % timedelta(seconds=1):
        raise ScheduleError(f"Every takes whole seconds from 1 on, not {value!r}; the broker would round it")
    if interval > LONGEST_INTERVAL:
        raise ScheduleError(f"Every({value!r}) is over a hundred years; write a shorter interval")
    return interval


def _check_name(name: object, default: str) -> str:
    if name is None:
        return default
    try:
        return names.check_job_name(name)
    except InvalidNameError as error:
        raise InvalidNameError(f"trigger {error}") from error


def _refuse_unknown(kind: str, options: Mapping[str, object]) -> None:
    for name in options:
        if name not in ScheduleOptions.__annotations__:
            known = ", ".join(ScheduleOptions.__annotations__)
            raise ConfigError(f"{kind} has no option {name}; there are {known}")


def _text(value: timedelta | None) -> str | None:
    return None if value is None else format_duration(value)


def _digest(*parts: str) -> str:
    # Lengths in front: no two lists of parts give the same text.
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
