"""The settings of hosts and clients as frozen values: defaults, what each may be, what contradicts what.

`jetjobs.config` fills them from environment and file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Final, TypedDict, Unpack, cast

from jetjobs._core.bodies import INLINE_LIMIT, MAX_PAYLOAD
from jetjobs._core.checks import instance, keep, span, whole
from jetjobs._core.durations import DurationLike, format_duration
from jetjobs._core.models import JobAddress
from jetjobs._core.policy import ACK_WAIT, AGE_MARGIN, LOST_AFTER, MAX_AGE, JobRetention
from jetjobs.errors import ConfigError

_MEBI: Final = 1024 * 1024
_UNITS: Final = {"": 1, "B": 1, "KIB": 1024, "MIB": _MEBI, "GIB": 1024 * _MEBI, "KB": 1000, "MB": 10**6, "GB": 10**9}
_SIZE: Final = re.compile(r"([0-9]{1,12})\s*([KMG]I?B|B|)", re.ASCII | re.IGNORECASE)


class HostOptions(TypedDict, total=False):
    """The settings of a host as keywords; `HostSettings` tells what each means."""

    ack_wait: DurationLike
    heartbeat_every: DurationLike
    lost_after: DurationLike
    upkeep_every: DurationLike
    drain: DurationLike
    interrupt_grace: DurationLike
    completion_error_after: DurationLike
    capacity: int | None
    threads: int
    max_payload: int | str
    retention: JobRetention
    max_age: DurationLike
    replicas: int
    probes: str | int | None


_RETENTION: Final = JobRetention()


@dataclass(frozen=True, slots=True, init=False)
class HostSettings:
    """How a host behaves.

    Attributes:
        ack_wait: How long the broker waits for a sign of life of a run before it hands it out again.
        heartbeat_every: How often a running run's record is written.
        lost_after: How long a record may go without one before the run counts as lost.
        upkeep_every: How often lost runs and old records are looked for.
        drain: How long a closing host lets running handlers finish.
        interrupt_grace: How long a handler that was told to stop may take until it is interrupted.
        completion_error_after: How long an outcome may stay unsaved before that is logged as an error.
        capacity: Most runs at once on this host; `None`: only the jobs' own limits.
        threads: Most plain handlers at once on this host.
        max_payload: Most bytes of one payload or result.
        retention: How long finished runs are kept.
        max_age: After how long the stream drops any message, as a last safety net.
        replicas: Copies of streams and buckets in a cluster.
        probes: Where `run()` answers probes by HTTP, `HOST:PORT`; a port alone is on loopback.
        given: The names that were set and not left to environment, file or default.
    """

    ack_wait: timedelta = ACK_WAIT
    heartbeat_every: timedelta = timedelta(seconds=10)
    lost_after: timedelta = LOST_AFTER
    upkeep_every: timedelta = timedelta(minutes=10)
    drain: timedelta = timedelta(seconds=20)
    interrupt_grace: timedelta = timedelta(seconds=5)
    completion_error_after: timedelta = timedelta(seconds=60)
    capacity: int | None = None
    threads: int = 64
    max_payload: int = MAX_PAYLOAD
    retention: JobRetention = _RETENTION
    max_age: timedelta = MAX_AGE
    replicas: int = 1
    probes: str | None = None
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __init__(self, **options: Unpack[HostOptions]) -> None:
        fill(self, cast("Mapping[str, object]", options), HOST_CHECKS, {})
        check_host(self, {})


class ClientOptions(TypedDict, total=False):
    """The settings of a client as keywords; `ClientSettings` tells what each means."""

    timeout: DurationLike
    max_payload: int | str


@dataclass(frozen=True, slots=True, init=False)
class ClientSettings:
    """How a client behaves.

    Attributes:
        timeout: Longest time of one call.
        max_payload: Most bytes of one payload.
        given: The names that were set and not left to environment, file or default.
    """

    timeout: timedelta = timedelta(seconds=10)
    max_payload: int = MAX_PAYLOAD
    given: frozenset[str] = field(default=frozenset(), compare=False, repr=False)

    def __init__(self, **options: Unpack[ClientOptions]) -> None:
        fill(self, cast("Mapping[str, object]", options), CLIENT_CHECKS, {})


@dataclass(frozen=True, slots=True)
class HostSwitches:
    """What a host leaves out in this environment: everything, some jobs, or the schedules."""

    enabled: bool = True
    disable: tuple[str, ...] = ()
    schedules: bool = True

    def runs(self, job: JobAddress) -> bool:
        """Whether the host runs this job.

        >>> HostSwitches(disable=("reports.*",)).runs(JobAddress("reports", "daily"))
        False
        """
        return self.enabled and not any(fnmatchcase(str(job), pattern) for pattern in self.disable)


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], where: str) -> None:
    """Refuse a name that is no setting, with close ones."""
    allowed = sorted(known)
    for name in table:
        if name not in allowed:
            close = difflib.get_close_matches(name, allowed, n=2)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(allowed)}"
            raise ConfigError(f"{where} has no setting {name!r}; {hint}")


Check = Callable[[str, object], object]


def fill(made: object, options: Mapping[str, object], checks: Mapping[str, Check], origins: Mapping[str, str]) -> None:
    refuse_unknown(options, checks, type(made).__name__)
    for entry in fields(cast("Any", made)):
        if entry.name in options:
            origin = origins.get(entry.name, "given")
            label = entry.name if origin == "given" else f"{entry.name} ({origin})"
            keep(made, **{entry.name: checks[entry.name](label, options[entry.name])})
        else:
            keep(made, **{entry.name: entry.default})
    keep(made, given=frozenset(options))


def _size(name: str, value: object) -> int:
    found = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = int(found[1]) * _UNITS[found[2].upper()] if found is not None else value
    if isinstance(size, bool) or not isinstance(size, int):
        raise ConfigError(f'{name} must be a number of bytes or a text such as "64MiB", not {value!r}')
    if size < INLINE_LIMIT:  # what goes inline must always be allowed
        raise ConfigError(f"{name} must be 16 KiB or more, not {value!r}")
    return size


def _span(name: str, value: object) -> timedelta:
    return span(name, value)


def _span_or_zero(name: str, value: object) -> timedelta:
    return span(name, value, zero_ok=True)


def _whole(name: str, value: object) -> int:
    return whole(name, value)


def _capacity(name: str, value: object) -> int | None:
    return None if value is None else whole(name, value)


def _replicas(name: str, value: object) -> int:
    if whole(name, value) > 5:
        raise ConfigError(f"{name} must be 1 to 5, not {value!r}; a cluster keeps 3 copies, or 5")
    return cast("int", value)


def _probes(name: str, value: object) -> str | None:
    if value is None:
        return None
    host, _, port = str(value).rpartition(":") if ":" in str(value) else ("127.0.0.1", "", str(value))
    if isinstance(value, bool) or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise ConfigError(f'{name} must be a port or HOST:PORT, as in 8080 or "0.0.0.0:8080", not {value!r}')
    return f"{host}:{int(port)}"


def check_host(made: HostSettings, origins: Mapping[str, str]) -> None:
    """Refuse settings that contradict each other, naming both values and their places."""

    def said(name: str) -> str:
        default = "given" if name in made.given else "default"
        return f"{name} {format_duration(getattr(made, name))} ({origins.get(name, default)})"

    if made.heartbeat_every >= made.ack_wait:
        raise ConfigError(f"{said('heartbeat_every')} must be shorter than {said('ack_wait')}; a third of it is usual")
    if made.lost_after <= 2 * made.heartbeat_every:
        raise ConfigError(f"{said('lost_after')} must be longer than twice {said('heartbeat_every')}")
    if made.max_age <= AGE_MARGIN:
        raise ConfigError(
            f"{said('max_age')} must be longer than an hour: the stream drops older messages, running or not"
        )


HOST_CHECKS: Final[Mapping[str, Check]] = {
    "ack_wait": _span,
    "heartbeat_every": _span,
    "lost_after": _span,
    "upkeep_every": _span,
    "drain": _span_or_zero,
    "interrupt_grace": _span_or_zero,
    "completion_error_after": _span,
    "capacity": _capacity,
    "threads": _whole,
    "max_payload": _size,
    "retention": lambda name, value: instance(name, value, JobRetention, 'JobRetention(finished="1d")'),
    "max_age": _span,
    "replicas": _replicas,
    "probes": _probes,
}
CLIENT_CHECKS: Final[Mapping[str, Check]] = {"timeout": _span, "max_payload": _size}
