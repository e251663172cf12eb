"""What became of each run of a call that cancels, deletes or retries many, and what is decided for each.

Deleting lets go of what a run said, and keeps what keeps promises. A run that somebody may name again (by its key, its
event's id, its parent) shrinks to a stub, and so does one that ended a moment ago: a trigger sent twice, or a schedule
fired again by a broker that crashed, would start it anew. One whose message is still in the stream stays as it is.

Retries of one run form a row, named after its first: so of several people, and of several runs of a row, one new run
comes. The last of a row that ended without success is followed by the next; one that is active or succeeded by none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, StrEnum, auto

from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import TTL_SLACK, Fate, promised, record_ttl
from jetjobs._core.run_ids import run_id_for_retry
from jetjobs.errors import JetJobsError

RETRIED_BY_FILTER = frozenset({RunStatus.FAILED, RunStatus.TIMED_OUT})
"""What a retry by filters without a status takes: CANCELLED and MISSED mostly are so on purpose."""


class ChangeOutcome(StrEnum):
    """What became of one run."""

    CANCELLED = "CANCELLED"
    ASKED = "ASKED"
    ALREADY_FINISHED = "ALREADY_FINISHED"
    DELETED = "DELETED"
    SHRUNK = "SHRUNK"
    RETRIED = "RETRIED"
    ALREADY_RETRIED = "ALREADY_RETRIED"
    STILL_ACTIVE = "STILL_ACTIVE"
    NOT_FOUND = "NOT_FOUND"
    FAILED = "FAILED"


_DONE = frozenset(
    {
        ChangeOutcome.CANCELLED,
        ChangeOutcome.ASKED,
        ChangeOutcome.DELETED,
        ChangeOutcome.SHRUNK,
        ChangeOutcome.RETRIED,
        ChangeOutcome.ALREADY_RETRIED,
    }
)


@dataclass(frozen=True, slots=True)
class RunChange:
    """What became of one run; of a `dry_run`, what would have.

    `module` and `job` are `None` for an id that was not found. `status` is the run's as it was read, or right after a
    cancel. `new_run_id` names the run that retries it. `error` says why, where the outcome is FAILED or NOT_FOUND.

    `CANCELLED`, `ASKED`, `ALREADY_FINISHED`: as `JobRun.cancel`. `DELETED`: nothing is left. `SHRUNK`: only a stub is
    left, which goes by itself. `RETRIED`: a new run was stored. `ALREADY_RETRIED`: somebody else's, or an earlier one.
    `STILL_ACTIVE`: not changed, the run has not ended, or its message is still in the stream.
    """

    run_id: str
    outcome: ChangeOutcome
    module: str | None = None
    job: str | None = None
    status: RunStatus | None = None
    new_run_id: str | None = None
    error: JetJobsError | None = None

    @property
    def ok(self) -> bool:
        """Whether the run is now as was asked for.

        >>> RunChange("r1", ChangeOutcome.STILL_ACTIVE).ok
        False
        """
        return self.outcome in _DONE

    @property
    def run_key(self) -> RunKey | None:
        """The run, when it was found."""
        return None if self.module is None or self.job is None else RunKey(self.module, self.job, self.run_id)


def change(run: RunKey, outcome: ChangeOutcome, status: RunStatus | None = None) -> RunChange:
    """What became of a run that was found."""
    return RunChange(run.run_id, outcome, run.module, run.job, status)


@dataclass(frozen=True, slots=True)
class Ended:
    """A record to delete, and what is known around it: its age since its end, who still waits for it."""

    record: RunRecord
    age: timedelta
    in_stream: bool
    named: bool


def fate_when_deleted(ended: Ended, retention: JobRetention, *, forget_keys: bool) -> Fate:
    """What deleting makes of a record."""
    if not ended.record.status.is_terminal or ended.in_stream:
        return Fate.KEEP
    if ended.named or ended.age < retention.min_age or _promise_holds(ended, retention, forget_keys=forget_keys):
        return Fate.SHRINK
    return Fate.DELETE


def stub_ttl(ended: Ended, retention: JobRetention, *, forget_keys: bool) -> timedelta:
    """How long the stub of a deleted run is kept."""
    least = max(retention.min_age - ended.age, TTL_SLACK)
    if _promise_holds(ended, retention, forget_keys=forget_keys):
        return max(record_ttl(ended.record, retention) - ended.age, least)
    return least


def _promise_holds(ended: Ended, retention: JobRetention, *, forget_keys: bool) -> bool:
    return not forget_keys and promised(ended.record) and ended.age <= retention.keys


class RetryStep(Enum):
    """What to do at one place of a row of retries."""

    STORE = auto()
    STAY = auto()
    GO_ON = auto()


def first_of_row(record: RunRecord) -> RunKey:
    """The run a row of retries is named after.

    >>> first_of_row(RunRecord("r-x", "m", "j", RunStatus.FAILED, retry_of="a")).run_id
    'a'
    """
    return RunKey(record.module, record.job, record.retry_of or record.run_id)


def nth_retry(first: RunKey, number: int) -> RunKey:
    """The n-th retry of a row, from 1."""
    return RunKey(first.module, first.job, run_id_for_retry(first, number))


def judge_retry(seen: RunRecord | None) -> RetryStep:
    """What a retry does where this record is, or waits to be."""
    if seen is None:
        return RetryStep.STORE
    return RetryStep.GO_ON if seen.status.is_terminal and not seen.ok else RetryStep.STAY
