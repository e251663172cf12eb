"""What a trigger call comes to, decided before and after anything is sent.

Before: which instants its options mean. After a look at what is already there under the run's id: a new run, the
one that exists, a refusal, or the retry of one that failed. A run without a record shows as one made from its
message.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal, get_args

from jetjobs._core.durations import DurationLike, InstantLike, duration, instant, optional_duration
from jetjobs._core.messages import Trigger
from jetjobs._core.models import JobAddress, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.retry import later
from jetjobs._core.run_ids import check_key
from jetjobs.errors import ConfigError

OnDuplicate = Literal["return", "raise", "retry_failed"]

REPEAT_FOR = timedelta(seconds=60)
"""How long after the id was chosen a publish may be repeated: well below the youngest age a record is pruned at."""

LATEST_DUE = datetime(2262, 1, 1, tzinfo=UTC)
"""The broker counts instants in nanoseconds of 64 bits, and what is due after that it fires at once (measured)."""

LONGEST_EXPIRY = timedelta(days=11_000)
"""Its header takes twelve digits of milliseconds."""

RESCHEDULE_MARGIN = timedelta(seconds=1)
"""The broker can confirm a change of a schedule it is firing; measured up to 150 ms before it is due."""


@dataclass(frozen=True, slots=True)
class Target:
    """The job to trigger. `schema` names what its payloads were checked against in the caller."""

    address: JobAddress
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """How a run is asked for, as the caller wrote it."""

    idempotency_key: str | None = None
    on_duplicate: OnDuplicate = "return"
    delay: DurationLike | None = None
    at: InstantLike | None = None
    start_within: DurationLike | None = None
    expires_in: DurationLike | None = None
    scheduled_for: InstantLike | None = None
    allow_unknown: bool = False


PLAIN = Asked()


@dataclass(frozen=True, slots=True)
class Timing:
    """When a run is due and how late it may be; `due_at` is `None` for a run that is due at once."""

    due_at: datetime | None = None
    start_deadline: datetime | None = None
    expires_in: timedelta | None = None
    scheduled_for: datetime | None = None
    delayed: bool = False

    @property
    def info(self) -> TriggerInfo:
        """What the trigger says of itself."""
        return TriggerInfo("delayed" if self.delayed else "manual", scheduled_for=self.scheduled_for)


AT_ONCE = Timing()


def check_options(options: Asked) -> Asked:
    """The options, when they can be meant.

    Raises:
        ConfigError: an unknown `on_duplicate`, both `delay` and `at`, or a key's option without a key.
        InvalidNameError: the key is no text, or empty, or too long.
    """
    if options.on_duplicate not in get_args(OnDuplicate):
        raise ConfigError(f"on_duplicate must be one of {get_args(OnDuplicate)}, not {options.on_duplicate!r}")
    if options.idempotency_key is not None:
        check_key(options.idempotency_key)
    elif options.on_duplicate != "return":
        raise ConfigError(f"on_duplicate={options.on_duplicate!r} says nothing without an idempotency_key")
    if options.delay is not None and options.at is not None:
        raise ConfigError(f"delay={options.delay!r} and at={options.at!r} contradict each other; give one")
    return options


def timing(options: Asked, now: datetime) -> Timing:
    """The instants the options mean; `now` is broker time. An `at` in the past is due at once.

    >>> from datetime import UTC
    >>> timing(Asked(delay="1h", start_within="5m"), datetime(2030, 1, 1, tzinfo=UTC)).start_deadline
    datetime.datetime(2030, 1, 1, 1, 5, tzinfo=datetime.timezone.utc)

    Raises:
        ConfigError: one of them is no duration or no aware instant, or beyond what the broker can count to.
    """
    due_at = _due(options, now)
    within = optional_duration(options.start_within, "start_within")
    given = options.scheduled_for
    asked_for = instant(given, "scheduled_for") if given is not None else None
    from_instant = now if due_at is None else max(due_at, now)
    try:
        start_deadline = None if within is None else from_instant + within
    except OverflowError:
        raise ConfigError(f"start_within={options.start_within!r} ends after the year 9999") from None
    return Timing(
        due_at=due_at if due_at is not None and due_at > now else None,
        start_deadline=start_deadline,
        expires_in=_expires_in(options),
        scheduled_for=asked_for or due_at,
        delayed=due_at is not None,
    )


def check_due(at: datetime, given: str) -> datetime:
    """The instant, if the broker can wait for it.

    Raises:
        ConfigError: it is after 2261; shows what was `given`.
    """
    if at >= LATEST_DUE:
        raise ConfigError(f"{given} is due after the year 2261, which the broker can't count to")
    return at


def _due(options: Asked, now: datetime) -> datetime | None:
    if options.at is not None:
        return check_due(instant(options.at, "at"), f"at={options.at!r}")
    if options.delay is None:
        return None
    due_at = later(now, duration(options.delay, "delay"))
    return check_due(due_at, f"delay={options.delay!r}")


def _expires_in(options: Asked) -> timedelta | None:
    span = optional_duration(options.expires_in, "expires_in")
    if span is not None and span > LONGEST_EXPIRY:
        raise ConfigError(f"expires_in={options.expires_in!r} is longer than {LONGEST_EXPIRY.days} days")
    return span


@dataclass(frozen=True, slots=True)
class Publish:
    """Nothing is there: store the trigger."""


@dataclass(frozen=True, slots=True)
class Existing:
    """There is a run already; `payload_differs` when it was given something else."""

    payload_differs: bool


@dataclass(frozen=True, slots=True)
class Refuse:
    """There is a run already, and the caller wants an error for it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The run ended without success, and the caller wants a new one for its key."""


Verdict = Publish | Existing | Refuse | Retry


def judge(seen: RunRecord | None, digest: str | None, on_duplicate: OnDuplicate) -> Verdict:
    """What becomes of a trigger whose run id already has this record, or waits as this message."""
    if seen is None:
        return Publish()
    if on_duplicate == "raise":
        return Refuse()
    if on_duplicate == "retry_failed" and seen.status.is_terminal and not seen.ok:
        return Retry()
    return Existing(differs(seen.payload_digest, digest))


def differs(there: str | None, given: str | None) -> bool:
    """Whether two payload digests say that the payloads differ; an unknown one says nothing.

    >>> differs("a", "b"), differs(None, "b")
    (True, False)
    """
    return there is not None and given is not None and there != given


def is_asked_by(seen: RunRecord | None, sequence: int, when: Timing) -> bool:
    """Whether the record found after a message was stored is of the run it asks for, not of one before it.

    A message that was run and acked leaves its subject empty, and the next one is stored. `sequence` is of the message,
    0 for none; of one that a schedule fires it says nothing, nor when the run is at a later message.
    """
    if seen is None or not sequence:
        return bool(sequence)
    owner = seen.owner
    return when.due_at is not None or seen.turn > 1 or owner is None or owner.sequence == sequence


def waiting_record(trigger: Trigger, due_at: datetime | None, digest: str | None) -> RunRecord:
    """The record a run shows that has none: QUEUED, or SCHEDULED while `due_at` names when it fires.

    `digest` is of its payload, as a host would record it.
    """
    info = trigger.info
    return RunRecord(
        run_id=trigger.key.run_id,
        module=trigger.key.module,
        job=trigger.key.job,
        status=RunStatus.QUEUED if due_at is None else RunStatus.SCHEDULED,
        key=trigger.idempotency_key,
        payload_digest=digest,
        turn=trigger.turn,
        trigger=info,
        payload_body=trigger.body,
        fired_at=trigger.stored_at if due_at is None else None,
        scheduled_for=trigger.scheduled_for or due_at,
        start_deadline=trigger.start_deadline,
        expires_at=_expiry(trigger, due_at),
        schedule_id=info.schedule_id,
        parent_run_id=info.parent_run_id,
        retry_of=info.retry_of,
        created_at=trigger.stored_at,
    )


def _expiry(trigger: Trigger, due_at: datetime | None) -> datetime | None:
    if trigger.expires_at is not None or trigger.expires_in is None:
        return trigger.expires_at
    return later(due_at or trigger.stored_at, trigger.expires_in)


def close_names(wanted: JobAddress, known: Iterable[JobAddress]) -> tuple[str, ...]:
    """Up to three known jobs that the wanted one may have been meant to be, closest first.

    >>> close_names(JobAddress("billing", "send_invoce"), [JobAddress("billing", "send_invoice")])
    ('billing.send_invoice',)
    """
    names = {str(address).casefold(): str(address) for address in sorted(known)}
    found = difflib.get_close_matches(str(wanted).casefold(), names, n=3, cutoff=0.6)
    same_job = [str(address) for address in sorted(known) if address.job.casefold() == wanted.job.casefold()]
    return tuple(dict.fromkeys([*(names[name] for name in found), *same_job]))[:3]


def reschedule_refusal(due_at: datetime, now: datetime) -> str | None:
    """Why a delayed run can't be moved any more, `None` when it can."""
    if due_at - now >= RESCHEDULE_MARGIN:
        return None
    return f"it is due at {due_at.isoformat(timespec='milliseconds')}, less than 1 s from now or past"
