"""How a job is run: limits, retries, time, shutdown, keeping. One frozen value, checked when it is made.

Durations are given as `timedelta`, seconds or text such as `"2m"`, and kept as `timedelta`. What is wrong by
itself is refused here with `ConfigError`; the job's name is put in front where the job is declared.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from types import MappingProxyType
from typing import Literal, TypedDict, Unpack, cast, get_args

from jetjobs._core.checks import choice, instance, keep, number, span, whole
from jetjobs._core.durations import DurationLike
from jetjobs._core.models import TriggerKind
from jetjobs.errors import ConfigError
from jetjobs.outcomes import JobInterrupted, Outcome

OnShutdown = Literal["retry", "fail"]
Isolation = Literal["thread", "process"]
Failures = type[BaseException] | tuple[type[BaseException], ...]

# Defaults of `HostSettings` that others know too.
ACK_WAIT = timedelta(seconds=30)
LOST_AFTER = timedelta(minutes=5)
MAX_AGE = timedelta(days=30)
AGE_MARGIN = timedelta(hours=1)
DEFAULT_EXPIRY = timedelta(days=7)
EVENT_EXPIRY = timedelta(hours=24)

# What other job libraries call it, where the word itself doesn't come close.
_ELSEWHERE: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("retries", "max_retries", "max_tries"), "max_attempts"),
        **dict.fromkeys(("time_limit", "soft_time_limit", "job_timeout"), "timeout"),
        **dict.fromkeys(("retry_backoff", "default_retry_delay", "delay"), "backoff"),
        **dict.fromkeys(("autoretry_for", "retry_for"), "retry_on"),
        **dict.fromkeys(("cron", "every", "schedule", "trigger"), "triggers"),
    }
)

_KINDS: tuple[str, ...] = get_args(TriggerKind)


@dataclass(frozen=True, slots=True, init=False)
class Backoff:
    """How long a failed run waits: `base`, then `factor` times longer each attempt, at most `cap`, ± `jitter`.

    `jitter` is a share of the wait, from 0 (none) to 1. While it waits, a run holds no slot.

    >>> Backoff("500ms", factor=3).base
    datetime.timedelta(microseconds=500000)
    """

    base: timedelta
    factor: float
    cap: timedelta
    jitter: float

    def __init__(
        self, base: DurationLike = "1s", *, factor: float = 2.0, cap: DurationLike = "5m", jitter: float = 0.1
    ) -> None:
        keep(self, base=span("backoff base", base, zero_ok=True))
        keep(self, factor=number("backoff factor", factor, least=1.0))
        keep(self, cap=span("backoff cap", cap))
        keep(self, jitter=number("backoff jitter", jitter, least=0.0, most=1.0))
        if self.cap < self.base:
            raise ConfigError(f"backoff cap {self.cap} is shorter than base {self.base}; raise the cap")


@dataclass(frozen=True, slots=True, init=False)
class JobRetention:
    """How long finished runs are kept. Active runs never go.

    Attributes:
        skipped: Age at which a SKIPPED run's record goes.
        finished: Age at which any other finished run's record goes.
        max_per_job: So many finished runs of a job are kept, the newest.
        max_deletes: How many records go at once.
        keys: A run with an idempotency key is kept at least so long, perhaps as a stub.
        min_age: Nothing that ended less long ago goes, whatever the other limits.
    """

    skipped: timedelta
    finished: timedelta
    max_per_job: int
    max_deletes: int
    keys: timedelta
    min_age: timedelta

    def __init__(
        self,
        *,
        skipped: DurationLike = "1h",
        finished: DurationLike = "7d",
        max_per_job: int = 1000,
        max_deletes: int = 200,
        keys: DurationLike = "7d",
        min_age: DurationLike = "10m",
    ) -> None:
        keep(self, skipped=span("retention skipped", skipped))
        keep(self, finished=span("retention finished", finished))
        keep(self, max_per_job=whole("retention max_per_job", max_per_job))
        keep(self, max_deletes=whole("retention max_deletes", max_deletes))
        keep(self, keys=span("retention keys", keys, zero_ok=True))
        keep(self, min_age=span("retention min_age", min_age, zero_ok=True))


class PolicyOptions(TypedDict, total=False):
    """The policies of a job as keywords; `JobPolicy` tells what each means."""

    max_concurrency: int
    timeout: DurationLike | None
    max_attempts: int
    backoff: Backoff
    retry_on: Failures
    discard_on: Failures
    drain: DurationLike | None
    on_shutdown: OnShutdown
    isolation: Isolation
    expires_in: DurationLike | Mapping[str, DurationLike] | None
    retention: JobRetention | None
    redact: Iterable[str]
    aliases: Iterable[str]


@dataclass(frozen=True, slots=True, init=False)
class JobPolicy:
    """Every policy of a job, with its default.

    Attributes:
        max_concurrency: Runs at once, over all hosts.
        timeout: Longest time of one attempt; `None` never ends it. The last attempt over it makes the run TIMED_OUT.
        max_attempts: Starts of the handler before the run is FAILED; 1 is no retry.
        backoff: How long a failed run waits for its next attempt.
        retry_on: Exceptions worth another attempt.
        discard_on: Exceptions that fail the run at once; they win over `retry_on`.
        drain: How long a closing host waits for this job's runs; `None` takes the host's.
        on_shutdown: Whether a run interrupted by a closing host goes back or fails.
        isolation: Where a plain function runs: a thread, or a process that can be killed.
        expires_in: How long after its due instant a run may still be started or retried, for all kinds of triggers or
            by kind; `None`: 7 d, of events 24 h.
        retention: How long finished runs of this job are kept; `None` takes the host's.
        redact: Paths of payload and result hidden from every display and log.
        aliases: Old names of the job whose triggers it also takes.

    >>> JobPolicy(timeout="2m").timeout
    datetime.timedelta(seconds=120)
    """

    max_concurrency: int = 1
    timeout: timedelta | None = None
    max_attempts: int = 1
    backoff: Backoff = Backoff()
    retry_on: tuple[type[BaseException], ...] = (Exception,)
    discard_on: tuple[type[BaseException], ...] = ()
    drain: timedelta | None = None
    on_shutdown: OnShutdown = "retry"
    isolation: Isolation = "thread"
    expires_in: timedelta | Mapping[str, timedelta] | None = None
    retention: JobRetention | None = None
    redact: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __init__(self, **options: Unpack[PolicyOptions]) -> None:
        known = {entry.name: entry.default for entry in fields(JobPolicy)}
        for name in options:
            if name not in POLICIES:
                raise unknown_option(name, POLICIES)
        given = {**known, **options}
        for name, value in given.items():
            keep(self, **{name: _CHECKS[name](name, value)})
        check_age(self, MAX_AGE)

    def with_options(self, options: PolicyOptions) -> JobPolicy:
        """This policy with some of it replaced; checked as a whole again."""
        return replace(self, **options) if options else self

    def expiry(self, kind: TriggerKind) -> timedelta:
        """How long after it was due a run asked for by `kind` may still be started or retried.

        >>> JobPolicy(expires_in={"event": "2h"}).expiry("event")
        datetime.timedelta(seconds=7200)
        """
        match self.expires_in:
            case timedelta() as one_for_all:
                return one_for_all
            case None:
                return _default_expiry(kind)
            case by_kind:
                return by_kind.get(kind, _default_expiry(kind))


def check_age(policy: JobPolicy, max_age: timedelta) -> None:
    """Refuse a policy whose runs could outlive their messages in the stream.

    Raises:
        ConfigError: expiry + timeout + 1 h is over `max_age`, which removes messages in flight too.
    """
    longest = max(policy.expiry(cast("TriggerKind", kind)) for kind in _KINDS)
    timeout = policy.timeout or timedelta()
    if max(longest, timeout) > max_age or longest + timeout + AGE_MARGIN > max_age:
        raise ConfigError(
            f"expires_in {longest} + timeout {timeout} + 1 h is over max_age {max_age}, after which the stream drops "
            "a run's message even while it runs; shorten expires_in or timeout"
        )


def _optional_span(name: str, value: object) -> timedelta | None:
    return None if value is None else span(name, value, zero_ok=name == "drain")


POLICIES: tuple[str, ...] = tuple(entry.name for entry in fields(JobPolicy))
"""What all of them are called."""


def unknown_option(name: str, known: Sequence[str]) -> ConfigError:
    """The error for an option that is none of `known`, with the one that was meant.

    >>> str(unknown_option("time_limit", ("max_attempts", "timeout")))
    'time_limit is no policy of a job; there are max_attempts, timeout; did you mean timeout?'
    """
    meant = _ELSEWHERE.get(name)
    close = [meant] if meant in known else difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return ConfigError(f"{name} is no policy of a job; there are {', '.join(known)}{hint}")


def _failures(name: str, value: object) -> tuple[type[BaseException], ...]:
    classes = cast("tuple[object, ...]", value if isinstance(value, (tuple, list)) else (value,))
    for each in classes:
        if not isinstance(each, type) or not issubclass(each, BaseException):
            raise ConfigError(f"{name} must hold exception classes, not {each!r}; write {name}=(ConnectionError,)")
        if issubclass(each, (Outcome, JobInterrupted)):
            raise ConfigError(
                f"{name} can't hold {each.__name__}: the handler raises it to decide itself; leave it out of {name}"
            )
        if not issubclass(each, Exception):
            raise ConfigError(f"{name} can't hold {each.__name__}: it ends the process, not the run; write Exception")
    return cast("tuple[type[BaseException], ...]", tuple(classes))


def _expiry(name: str, value: object) -> timedelta | Mapping[str, timedelta] | None:
    if not isinstance(value, Mapping):
        return _optional_span(name, value)
    by_kind = cast("Mapping[object, object]", value)
    for kind in by_kind:
        if kind not in _KINDS:
            raise ConfigError(f"{name}: {kind!r} is no kind of trigger; there are {', '.join(_KINDS)}")
    return MappingProxyType({str(kind): span(f"{name}[{kind!r}]", given) for kind, given in by_kind.items()})


def _names(name: str, value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f'{name} must be several texts, not {value!r}; write {name}=("…",)')
    given = tuple(cast("Iterable[object]", value))
    for each in given:
        if not isinstance(each, str) or not each.strip():
            raise ConfigError(f"{name} must hold texts that aren't empty, not {each!r}")
    return cast("tuple[str, ...]", given)


def _default_expiry(kind: TriggerKind) -> timedelta:
    return EVENT_EXPIRY if kind == "event" else DEFAULT_EXPIRY


def _retention(name: str, value: object) -> JobRetention | None:
    return None if value is None else instance(name, value, JobRetention, 'JobRetention(finished="1d")')


_CHECKS: Mapping[str, Callable[[str, object], object]] = MappingProxyType(
    {
        "max_concurrency": whole,
        "timeout": _optional_span,
        "max_attempts": whole,
        "backoff": lambda name, value: instance(name, value, Backoff, 'Backoff("1s", cap="5m")'),
        "retry_on": _failures,
        "discard_on": _failures,
        "drain": _optional_span,
        "on_shutdown": lambda name, value: choice(name, value, get_args(OnShutdown)),
        "isolation": lambda name, value: choice(name, value, get_args(Isolation)),
        "expires_in": _expiry,
        "retention": _retention,
        "redact": _names,
        "aliases": _names,
    }
)
