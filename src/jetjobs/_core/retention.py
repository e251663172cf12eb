"""What becomes of finished runs' records: kept, shrunk to a stub, or removed. Nothing here does it; `pruner` does.

Two limits: an age by status, and a number of finished runs per job, of which the oldest go first. A run that somebody
may name again (by its key, its event's id, its place in a backfill, its parent) is *promised*: until `keys` has
passed, its record is what turns the second trigger away. So instead of going it shrinks to a stub, which counts no
more. What has not ended is never looked at, what ended less than `min_age` ago never touched.

Records go by themselves too (`record_ttl`), a little later, so that a project without hosts doesn't keep them for ever.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from heapq import heappush, heappushpop
from typing import Any, Final, NamedTuple

from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.models import JobAddress, RunError, RunKey, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.policy import JobRetention
from jetjobs._core.run_ids import is_fresh
from jetjobs.errors import ConfigError

TTL_SLACK: Final = timedelta(minutes=10)
ORPHAN_AGE: Final = timedelta(hours=1)

_LEAST_TTL: Final = timedelta(seconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PROMISED_KINDS: Final = frozenset({"backfill", "child", "retry"})
_STUB_FIELDS: Final = (
    *("run_id", "module", "job", "status", "key", "payload_digest", "starts", "snoozes", "interruptions"),
    *("max_attempts", "schedule_id", "parent_run_id", "retry_of", "fired_at", "scheduled_for", "expires_at"),
    # Fields of newer versions stay: a promise of theirs may need them.
    *("created_at", "started_at", "finished_at", "extra"),
)


class Fate(Enum):
    """What becomes of a record."""

    KEEP = auto()
    SHRINK = auto()
    DELETE = auto()


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """How long finished runs are kept, by job; `default` for jobs that say nothing, and for the size of a batch."""

    default: JobRetention
    by_job: Mapping[JobAddress, JobRetention] = field(default_factory=dict[JobAddress, JobRetention])

    def of(self, address: JobAddress) -> JobRetention:
        """What counts for one job."""
        return self.by_job.get(address, self.default)

    def described(self, jobs: Iterable[JobDescriptor]) -> RetentionRules:
        """These rules, and those of jobs that other hosts declared."""
        others = {job.address: rule for job in jobs if (rule := read_retention(job.retention)) is not None}
        return RetentionRules(self.default, {**others, **self.by_job})


def kept_by(hosts: Iterable[HostPresence]) -> JobRetention:
    """How long finished runs of jobs that say nothing are kept: as the one of these hosts does that keeps them longest.

    Any of them may be the one that prunes. Where none lives, or none says it, it is the default.

    >>> kept_by([]).keys
    datetime.timedelta(days=7)
    """
    said = [read_retention(host.retention) or JobRetention() for host in hosts]
    if not said:
        return JobRetention()
    return JobRetention(
        **{entry.name: max(getattr(each, entry.name) for each in said) for entry in fields(JobRetention)}
    )


def describe_retention(retention: JobRetention) -> Mapping[str, int]:
    """The policy as a descriptor carries it, spans in milliseconds: whichever host prunes a job goes by the job's own.

    >>> describe_retention(JobRetention())["skipped_ms"]
    3600000
    """
    described: dict[str, int] = {}
    for entry in fields(retention):
        value: timedelta | int = getattr(retention, entry.name)
        if isinstance(value, timedelta):
            described[entry.name + "_ms"] = value // _MILLISECOND
        else:
            described[entry.name] = value
    return described


def read_retention(described: Mapping[str, Any] | None) -> JobRetention | None:
    """The policy that a descriptor carries; `None` when it carries none, or none that can be understood."""
    if described is None:
        return None
    try:
        return JobRetention(**_values(described))
    except (ConfigError, OverflowError):
        return None


class Doomed(NamedTuple):
    """The little that is held of a record until it goes or shrinks; the one that ended first sorts first.

    `bodies_outside` says that it names claim checks under an id that no run of another job can have.
    """

    ended_us: int
    revision: int
    run: RunKey
    shrinks: bool
    bodies_outside: bool
    expires_at: datetime | None

    def expired(self, now: datetime) -> bool:
        """Whether no message of the run could start it any more, so that none need be looked for."""
        return self.expires_at is not None and self.expires_at < now


def record_ttl(record: RunRecord, retention: JobRetention) -> timedelta:
    """After how long a terminal record goes by itself, whether or not any host runs then.

    Never before the run's messages are past: a record that went earlier could start its run again. The promise about
    keys holds for `retention.keys`.
    """
    keep = _at_last(record, retention)
    if record.expires_at is not None and record.finished_at is not None:
        keep = max(keep, record.expires_at - record.finished_at)
    return keep + TTL_SLACK


def ttl_left(record: RunRecord, retention: JobRetention, now: datetime) -> timedelta:
    """What is left of `record_ttl` for a record that is written again."""
    age = now - record.finished_at if record.finished_at is not None else timedelta()
    return max(record_ttl(record, retention) - age, _LEAST_TTL)


def promised(record: RunRecord) -> bool:
    """Whether a second trigger may name this run, and must find that it was.

    Ticks aren't among them: what was decided of an occurrence, its schedule knows.
    """
    kind = record.trigger.kind
    return record.key is not None or kind in _PROMISED_KINDS or (kind == "event" and record.run_id.startswith("e-"))


def stub(record: RunRecord) -> RunRecord:
    """What a promise needs of a record: which run, how and when it ended, of which payload, what asked for it."""
    kept = {name: record.__dict__[name] for name in _STUB_FIELDS if name in record.__dict__}
    asked = record.trigger
    trigger = TriggerInfo(
        asked.kind,
        schedule_id=asked.schedule_id,
        scheduled_for=asked.scheduled_for,
        parent_run_id=asked.parent_run_id,
        retry_of=asked.retry_of,
    )
    error = None if record.error is None else RunError(record.error.type)
    return RunRecord.of(**kept, trigger=trigger, error=error, stub=True)


def age_fate(record: RunRecord, retention: JobRetention, age: timedelta) -> Fate:
    """What its age alone makes of a record that ended so long ago."""
    if not record.status.is_terminal or age < retention.min_age:
        return Fate.KEEP
    if age > _at_last(record, retention):
        return Fate.DELETE
    return Fate.SHRINK if age > _whole(record, retention) and not record.stub else Fate.KEEP


def surplus_fate(record: RunRecord, retention: JobRetention, age: timedelta) -> Fate:
    """What becomes of a record that is one too many for its job."""
    if not record.status.is_terminal or age < retention.min_age:
        return Fate.KEEP
    if not _promise_holds(record, retention, age):
        return Fate.DELETE
    return Fate.KEEP if record.stub else Fate.SHRINK


def counts(record: RunRecord, retention: JobRetention, age: timedelta) -> bool:
    """Whether a record is one of the `max_per_job`: any that ended, but a stub only when its promise has passed."""
    return record.status.is_terminal and not (record.stub and _promise_holds(record, retention, age))


class Survey:
    """A look at all records, one by one: which are past their age, and how many too many each job has.

    `named` are ids of runs that a schedule still waits for: their records stay. `due_at` is when the next of the
    records seen gets too old; `None` when none will.
    """

    def __init__(self, rules: RetentionRules, now: datetime, named: Collection[str] = ()) -> None:
        self._rules = rules
        self._now = now
        self._named = named
        self._counted: Counter[JobAddress] = Counter()
        self.due_at: datetime | None = None

    def see(self, record: RunRecord, revision: int, stored_at: datetime) -> Doomed | None:
        """Count a record, unless its age says that it goes or shrinks: then what has to be known for that."""
        if not record.status.is_terminal:
            return None
        retention = self._rules.of(record.run_key.address)
        ended_at = record.finished_at or stored_at
        age = self._now - ended_at
        fate = Fate.KEEP if record.run_id in self._named else age_fate(record, retention, age)
        if fate is not Fate.KEEP:
            return _doomed(record, revision, ended_at, fate)
        if counts(record, retention, age):
            self._counted[record.run_key.address] += 1
        self._note_due(record, retention, ended_at)
        return None

    @property
    def excess(self) -> dict[JobAddress, int]:
        """How many are too many, of the jobs that have too many."""
        over = {job: number - self._rules.of(job).max_per_job for job, number in self._counted.items()}
        return {job: number for job, number in over.items() if number > 0}

    def surplus(self, record: RunRecord, revision: int, stored_at: datetime) -> Doomed | None:
        """A record of a job that has too many, if it may be one of those that go or shrink."""
        if record.run_id in self._named:
            return None
        ended_at = record.finished_at or stored_at
        fate = surplus_fate(record, self._rules.of(record.run_key.address), self._now - ended_at)
        return None if fate is Fate.KEEP else _doomed(record, revision, ended_at, fate)

    def _note_due(self, record: RunRecord, retention: JobRetention, ended_at: datetime) -> None:
        limit = _at_last(record, retention) if record.stub else _whole(record, retention)
        due_at = ended_at + max(limit, retention.min_age)
        if self.due_at is None or due_at < self.due_at:
            self.due_at = due_at


class Oldest:
    """The `wanted` oldest of what is offered, whatever its order; holds no more than that."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._heap: list[tuple[int, int, Doomed]] = []

    def offer(self, doomed: Doomed) -> None:
        """Keep it if it is among the oldest so far."""
        # Turned round, so that the youngest kept is on top and goes first. No two records share a revision.
        entry = (-doomed.ended_us, -doomed.revision, doomed)
        if len(self._heap) < self._wanted:
            heappush(self._heap, entry)
        elif self._wanted:
            heappushpop(self._heap, entry)

    def __iter__(self) -> Iterator[Doomed]:
        """Oldest first."""
        return (entry[2] for entry in sorted(self._heap, reverse=True))


def _whole(record: RunRecord, retention: JobRetention) -> timedelta:
    """How long a record is kept as it is."""
    return retention.skipped if record.status is RunStatus.SKIPPED else retention.finished


def _at_last(record: RunRecord, retention: JobRetention) -> timedelta:
    """How long something of a record is kept."""
    whole = _whole(record, retention)
    return max(whole, retention.keys) if promised(record) else whole


def _promise_holds(record: RunRecord, retention: JobRetention, age: timedelta) -> bool:
    return age <= retention.keys and promised(record)


def has_bodies_outside(record: RunRecord) -> bool:
    """Whether a record names claim checks under an id that no run of another job can have."""
    bodies = (record.payload_body, record.result_body, record.checkpoint_body)
    outside = any(body is not None and body.claim is not None for body in bodies)
    return outside and (is_fresh(record.run_id) or promised(record))


def _doomed(record: RunRecord, revision: int, ended_at: datetime, fate: Fate) -> Doomed:
    return Doomed(
        ended_us=(ended_at - _EPOCH) // _MICROSECOND,
        revision=revision,
        run=record.run_key,
        shrinks=fate is Fate.SHRINK,
        bodies_outside=has_bodies_outside(record),
        expires_at=record.expires_at,
    )


def _values(described: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for entry in fields(JobRetention):
        if type(milliseconds := described.get(entry.name + "_ms")) is int:
            values[entry.name] = timedelta(milliseconds=milliseconds)
        elif entry.name in described:
            values[entry.name] = described[entry.name]
    return values
