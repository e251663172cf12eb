"""What becomes of a run when its handler's code has ended: one pure function from ending to record.

`settle` gives the record to save. RETRYING means: publish the retry, then ack. Anything else is terminal: ack.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never

from jetjobs._core.bodies import Body
from jetjobs._core.delivery import expired_error
from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.models import KEPT_ATTEMPTS, Attempt, RunError, RunRecord
from jetjobs._core.policy import JobPolicy
from jetjobs._core.retry import MAX_INTERRUPTIONS, backoff_delay, fits, later


@dataclass(frozen=True, slots=True)
class Returned:
    """The handler returned; `late` says that its timeout had been signalled before."""

    result: Body | None = None
    late: bool = False


@dataclass(frozen=True, slots=True)
class Raised:
    """The handler raised. `again` says whether its policy would retry this error, `after` how long it asked to wait."""

    error: RunError
    again: bool = True
    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The attempt was stopped by its timeout."""

    error: RunError


@dataclass(frozen=True, slots=True)
class Skipped:
    """The handler said there is nothing to do."""

    reason: str


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler wants to start again later."""

    delay: timedelta


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler was stopped because a cancel was asked for."""


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The handler was stopped because its host closes."""

    error: RunError


Ending = Returned | Raised | TimedOut | Skipped | Snoozed | Cancelled | ShutDown


@dataclass(frozen=True, slots=True)
class CompletionRules:
    """Who settles, by which policy. `roll` in [0, 1) is the dice for the backoff's jitter."""

    host_id: str
    policy: JobPolicy
    roll: float = 0.5


def settle(record: RunRecord, ending: Ending, rules: CompletionRules, now: datetime) -> RunRecord:
    """The record after an attempt; `record` is RUNNING and mine, `now` is broker time.

    >>> from datetime import UTC
    >>> from jetjobs._core.models import RunStatus
    >>> running = RunRecord("r", "m", "j", RunStatus.RUNNING, starts=1)
    >>> settle(running, Returned(), CompletionRules("h", JobPolicy()), datetime.now(UTC)).status.value
    'SUCCEEDED'
    """
    if type(ending) is Returned and not ending.late:
        return _succeeded(record, ending.result, rules, now)
    match ending:
        case Skipped(reason):
            return _end(record, Event.SKIP, rules, now, skip_reason=reason)
        case Cancelled():
            return _end(record, Event.CANCEL, rules, now, error=None)
        case _ if record.cancel_asked:
            # No further attempt, whatever the handler made of it.
            error = ending.error if isinstance(ending, Raised | TimedOut | ShutDown) else None
            return _end(record, Event.CANCEL, rules, now, error=error)
        case _:
            return _unfinished(record, ending, rules, now)


def _succeeded(record: RunRecord, result: Body | None, rules: CompletionRules, now: datetime) -> RunRecord:
    """What nearly every run comes to, with no more steps than it takes."""
    done = Attempt(record.attempt, rules.host_id, record.started_at, now, "SUCCEEDED")
    earlier = record.attempts
    changes: dict[str, Any] = {
        "finished_at": now,
        "heartbeat_at": now,
        "attempts": (*earlier, done)[-KEPT_ATTEMPTS:] if earlier else (done,),
    }
    if result is not None:
        changes["result_body"] = result
    if record.error is not None:
        changes["error"] = None  # An earlier attempt's: it stays among the attempts.
    return advance(record, Event.SUCCEED, **changes)


def _unfinished(
    record: RunRecord, ending: Returned | Raised | TimedOut | Snoozed | ShutDown, rules: CompletionRules, now: datetime
) -> RunRecord:
    """The record after an attempt that may get another one."""
    match ending:
        case Returned(result):
            error = RunError("TimedOut", "the handler returned after its timeout")
            return _failed(record, TimedOut(error), rules, now, result_body=result)
        case Raised() | TimedOut():
            return _failed(record, ending, rules, now)
        case Snoozed(delay):
            return _waiting(record, later(now, delay), rules, now, outcome="SNOOZED", snoozes=record.snoozes + 1)
        case ShutDown(error):
            return _shut_down(record, error, rules, now)
        case _:
            assert_never(ending)


def _noted(
    record: RunRecord, rules: CompletionRules, now: datetime, *, outcome: str, error: RunError | None
) -> tuple[Attempt, ...]:
    # A traceback is kept once, on the record itself: twenty attempts must not crowd out the logs.
    brief = RunError(error.type, error.message) if error is not None else None
    done = Attempt(record.attempt, rules.host_id, record.started_at, now, outcome, brief)
    return (*record.attempts, done)[-KEPT_ATTEMPTS:]


def _end(record: RunRecord, event: Event, rules: CompletionRules, now: datetime, **changes: object) -> RunRecord:
    error = changes.get("error")
    known = error if isinstance(error, RunError) else None
    attempts = _noted(record, rules, now, outcome=_OUTCOME[event], error=known)
    if event is Event.SKIP:
        changes["error"] = None
    return advance(record, event, finished_at=now, heartbeat_at=now, attempts=attempts, **changes)


_OUTCOME = {
    Event.SKIP: "SKIPPED",
    Event.CANCEL: "CANCELLED",
    Event.FAIL: "FAILED",
    Event.TIME_OUT: "TIMED_OUT",
}


def _failed(
    record: RunRecord, ending: Raised | TimedOut, rules: CompletionRules, now: datetime, **changes: object
) -> RunRecord:
    event = Event.TIME_OUT if isinstance(ending, TimedOut) else Event.FAIL
    again = not isinstance(ending, Raised) or ending.again
    if not again or record.attempt >= record.max_attempts:
        return _end(record, event, rules, now, error=ending.error, **changes)
    after = ending.after if isinstance(ending, Raised) else None
    if after is None:
        after = backoff_delay(rules.policy.backoff, record.attempt, rules.roll)
    retry_at = later(now, after)
    return _waiting(record, retry_at, rules, now, outcome=_OUTCOME[event], error=ending.error)


def _waiting(
    record: RunRecord,
    retry_at: datetime,
    rules: CompletionRules,
    now: datetime,
    *,
    outcome: str,
    error: RunError | None = None,
    **changes: object,
) -> RunRecord:
    """The record that waits for its next turn, or FAILED when it would expire before."""
    if not fits(retry_at, record.expires_at):
        return _end(record, Event.FAIL, rules, now, error=expired_error(error or record.error))
    return advance(
        record,
        Event.RETRY,
        turn=record.turn + 1,
        retry_at=retry_at,
        heartbeat_at=now,
        error=error if error is not None else record.error,
        attempts=_noted(record, rules, now, outcome=outcome, error=error),
        **changes,
    )


def _shut_down(record: RunRecord, error: RunError, rules: CompletionRules, now: datetime) -> RunRecord:
    if rules.policy.on_shutdown == "fail" or record.max_attempts == 1:
        return _end(record, Event.FAIL, rules, now, error=error)
    if record.interruptions < MAX_INTERRUPTIONS:
        free = record.interruptions + 1
        return _waiting(record, now, rules, now, outcome="INTERRUPTED", error=error, interruptions=free)
    if record.attempt >= record.max_attempts:
        return _end(record, Event.FAIL, rules, now, error=error)
    return _waiting(record, now, rules, now, outcome="INTERRUPTED", error=error)
