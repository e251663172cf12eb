"""Runs and their records, as values the rest of jetjobs talks about: frozen, compared by value, free of I/O.

Instants are aware UTC `datetime`s and end in `_at` or `_for`; spans are `timedelta`. Nothing here decides
anything: decisions live in `lifecycle`, `retry` and `names`, bytes in `wire` and `codec`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Never, Self

from jetjobs._core.bodies import Body


class _Nothing(Mapping[str, Any]):
    """The empty mapping, hashable so that dataclasses take it as a default without a factory call."""

    __slots__ = ()

    def __getitem__(self, key: str) -> Never:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "{}"


NOTHING: Mapping[str, Any] = _Nothing()

TriggerKind = Literal["manual", "cron", "every", "event", "delayed", "backfill", "run_now", "retry", "child"]


class RunStatus(StrEnum):
    """Where a run is. Values equal names; look-ups by value take any case.

    Attributes:
        SCHEDULED: Waits in the stream for its instant.
        QUEUED: Waits in the stream for a host with a free slot.
        RUNNING: A handler was started.
        RETRYING: Waits for its next attempt, and holds no slot.
        SUCCEEDED: Ended: the handler returned.
        FAILED: Ended: no attempt left, discarded, lost, or expired.
        TIMED_OUT: Ended: the last attempt ran over its timeout.
        CANCELLED: Ended: somebody cancelled it.
        SKIPPED: Ended: the handler said there was nothing to do.
        MISSED: Ended: it could not start in time.

    >>> RunStatus("succeeded") is RunStatus.SUCCEEDED and RunStatus.SUCCEEDED.is_terminal
    True
    """

    SCHEDULED = "SCHEDULED"
    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    RETRYING = "RETRYING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    CANCELLED = "CANCELLED"
    SKIPPED = "SKIPPED"
    MISSED = "MISSED"

    @classmethod
    def _missing_(cls, value: object) -> RunStatus | None:
        return cls.__members__.get(value.upper().replace("-", "_")) if isinstance(value, str) else None

    @property
    def is_terminal(self) -> bool:
        """True when no further event can change the run."""
        return self in _TERMINAL


_TERMINAL = frozenset(
    {
        RunStatus.SUCCEEDED,
        RunStatus.FAILED,
        RunStatus.TIMED_OUT,
        RunStatus.CANCELLED,
        RunStatus.SKIPPED,
        RunStatus.MISSED,
    }
)


class JobAddress(NamedTuple):
    """A job within a project, by its declared names."""

    module: str
    job: str

    def __str__(self) -> str:
        return f"{self.module}.{self.job}"


class RunKey(NamedTuple):
    """A run within a project."""

    module: str
    job: str
    run_id: str

    @property
    def address(self) -> JobAddress:
        """The job this is a run of."""
        return JobAddress(self.module, self.job)

    def __str__(self) -> str:
        return f"{self.module}.{self.job}/{self.run_id}"


@dataclass(frozen=True, slots=True)
class TriggerInfo:
    """What asked for a run.

    Attributes:
        kind: How it was asked for; `delayed` is by hand with `delay` or `at`.
        schedule_id: Id of the schedule whose tick it was.
        scheduled_for: The instant the run stands for; of a cron line in its own time zone.
        event_subject: Subject the event came on.
        parent_run_id: Id of the run that triggered this one as its child.
        retry_of: Id of the ended run that this one repeats.
    """

    kind: TriggerKind = "manual"
    schedule_id: str | None = None
    scheduled_for: datetime | None = None
    event_subject: str | None = None
    parent_run_id: str | None = None
    retry_of: str | None = None


_set: Final = object.__setattr__  # past the guard of a frozen class, while it is made

# One object for all: what is the default by identity is left out of the bytes.
BY_HAND = TriggerInfo()


@dataclass(frozen=True, slots=True)
class Owner:
    """The delivery that runs a run: the message, its delivery number and the host that holds it."""

    sequence: int
    stored_at: datetime
    num_delivered: int
    host_id: str

    def is_message(self, sequence: int, stored_at: datetime) -> bool:
        """True when this delivery was of that very message (a recreated stream counts anew, so both are compared)."""
        return self.sequence == sequence and self.stored_at == stored_at


@dataclass(frozen=True, slots=True)
class RunError:
    """How an attempt failed. Each text is cut to size.

    Attributes:
        type: Name of the exception's class, or one of jetjobs' own, such as `TimedOut` or `Lost`.
        message: What it said.
        traceback: Formatted, the frames of the user's code; empty where there is none.
    """

    type: str
    message: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        # A run that was lost says so twice: in the type, which code looks at, and in the text.
        message = self.message.removeprefix(f"{LOST.lower()}: ") if self.type == LOST else self.message
        return f"{self.type}: {message}" if message else self.type


@dataclass(frozen=True, slots=True)
class LogLine:
    """One `ctx.log` call: when, level, message, and its fields as plain JSON values."""

    at: datetime
    level: str
    message: str
    fields: Mapping[str, Any] = NOTHING


@dataclass(frozen=True, slots=True)
class Progress:
    """The last `ctx.progress` call: `done` of `total`, in whatever unit the handler counts."""

    done: float
    total: float | None = None
    message: str | None = None


KEPT_ATTEMPTS: Final = 20
"""So many of a run's ended starts are kept, the last."""

LOST: Final = "Lost"
"""The error's type of a run whose host is gone for good."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One ended start of the handler.

    Attributes:
        attempt: Its number, from 1.
        host_id: Where it ran.
        started_at, finished_at: From when to when, as far as that is known.
        outcome: A status, or LOST, SNOOZED, INTERRUPTED.
        error: How it failed, where it did.
    """

    attempt: int
    host_id: str
    started_at: datetime | None
    finished_at: datetime | None
    outcome: str
    error: RunError | None = None


@dataclass(frozen=True)
class RunRecord:
    """Everything known of one run, as stored in the runs bucket.

    Attributes:
        run_id: Id of the run, unique within its job.
        module, job: The job it is a run of.
        status: Where the run is.
        key: The idempotency key it was triggered with.
        payload_digest: Tells two payloads apart without reading them.
        version: Release of the code that ran it, as `JobHost(version=…)` said.
        starts: Handler starts ever claimed; `attempt` is starts - snoozes - interruptions.
        snoozes: Starts that ended with `Snooze`, which cost no attempt.
        interruptions: Starts a closing host took back, which cost no attempt.
        turn: Number of the run's current message, from 1.
        claim: Names the start that may write this record.
        owner: The delivery that runs it.
        cancel_asked: Somebody asked for its cancel.
        max_attempts: How many attempts it has.
        trigger: What asked for it.
        payload_body, result_body, checkpoint_body: What is stored; `payload` and `result` read it.
        error: How the last attempt failed.
        skip_reason: Why it was SKIPPED or MISSED.
        logs: What `ctx.log` said: the first 50 lines and the newest, at most 1,000.
        progress: What `ctx.progress` said last.
        host_id: The host of the last start.
        fired_at: When the broker stored its message.
        scheduled_for: The instant the run stands for.
        start_deadline: Not started after this: it would be MISSED.
        expires_at: Neither started nor retried after this.
        schedule_id, parent_run_id, retry_of: As in `trigger`.
        created_at: When it was asked for.
        started_at, finished_at: Of the last start, and the run's end.
        heartbeat_at: When its host last wrote.
        retry_at: When the next attempt is due.
        attempts: The starts that ended, at most the last 20.
        stub: Bodies, logs and texts were let go by retention; not that the run had none.
        extra: Fields of newer versions, carried through every rewrite.
    """

    # The one value here without slots: `of` and `but` keep only what was set in the instance's dictionary, the
    # rest are the class's defaults. That makes a record, its successor and its bytes five times as fast as
    # `__init__`, `dataclasses.replace` and a comparison of every field, three times per run.

    run_id: str
    module: str
    job: str
    status: RunStatus
    key: str | None = None
    payload_digest: str | None = None
    version: str | None = None
    starts: int = 0
    snoozes: int = 0
    interruptions: int = 0
    turn: int = 1
    claim: str | None = None
    owner: Owner | None = None
    cancel_asked: bool = False
    max_attempts: int = 1
    trigger: TriggerInfo = BY_HAND
    payload_body: Body | None = None
    result_body: Body | None = None
    checkpoint_body: Body | None = None
    error: RunError | None = None
    skip_reason: str | None = None
    logs: tuple[LogLine, ...] = ()
    progress: Progress | None = None
    host_id: str | None = None
    fired_at: datetime | None = None
    scheduled_for: datetime | None = None
    start_deadline: datetime | None = None
    expires_at: datetime | None = None
    schedule_id: str | None = None
    parent_run_id: str | None = None
    retry_of: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    heartbeat_at: datetime | None = None
    retry_at: datetime | None = None
    attempts: tuple[Attempt, ...] = ()
    stub: bool = False
    extra: Mapping[str, Any] = NOTHING

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """A record with these fields, unchecked: the four without a default must be among them."""
        made = object.__new__(cls)
        _set(made, "__dict__", fields)
        return made

    def but(self, **changes: Any) -> Self:
        """The same record with some fields changed, unchecked."""
        made = object.__new__(type(self))
        _set(made, "__dict__", {**self.__dict__, **changes})
        return made

    @property
    def run_key(self) -> RunKey:
        """Project-wide name of the run."""
        return RunKey(self.module, self.job, self.run_id)

    @property
    def attempt(self) -> int:
        """Number of the current or last attempt, counted from 1; 0 before the first start."""
        return self.starts - self.snoozes - self.interruptions

    @property
    def payload(self) -> Any:
        """The payload as given, `None` without one, a `ClaimCheck` where it lies outside the record."""
        return self.payload_body.value if self.payload_body is not None else None

    @property
    def result(self) -> Any:
        """What the handler returned, `None` before that, a `ClaimCheck` where it lies outside the record."""
        return self.result_body.value if self.result_body is not None else None

    @property
    def ok(self) -> bool:
        """True for SUCCEEDED and SKIPPED: nothing needs anybody's attention."""
        return self.status in {RunStatus.SUCCEEDED, RunStatus.SKIPPED}
