"""What a host does with a delivery: one pure function from what is known to what to do next.

The engine asks `decide` with the record as last read (or `None`), the message, and what it knows of itself; it
does what the answer says, and asks again when the answer was a question::

    decide ──▶ Ask(host)        ask that host over core NATS, decide again with its answer
           ──▶ Write(record)    create (no record yet) or update under the revision read;
                                then START the handler, or ACK; a conflict means: read, decide again
           ──▶ Help(record)     publish the retry the record waits for, then ack
           ──▶ Ack              the message has served
           ──▶ Drop             send nothing at all: the broker would apply it to the new owner
           ──▶ ReadAgain        the record is behind the message: read it from the leader again

A delivery of a run that this process holds already never comes here: it is dropped, and the first one goes on.
Rules, in order, with what each prevents:

* The start deadline is judged only when there is no record: a record says that the run began in time.
* Expiry bounds retries, snoozes and take-overs. An attempt that began in time has its whole timeout, so
  a RUNNING run isn't expired before that; the record's `expires_at` itself never moves, or a run that snoozes
  for less than its timeout would never expire.
* A terminal record retires any message, except that of an owner whose thread may still run (its slot
  is the thread's).
* A RUNNING run is never acked by another delivery of its own message, or its slot would be free
  under a live handler.
* Only a delivery newer than the owner's, after the owner's host was asked and did not claim it, and not
  within one ack wait of this host's own (re)connect, may take a run over or retire its message: after an
  outage of the broker every owner gets that long to come back.
* A RETRYING run starts only with the message of the turn it waits for: a snooze's delay or a
  backoff can't be cut short by an old message, and an old message of the owner repairs a
  retry that was saved and never published.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from jetjobs._core.lifecycle import Event, advance, begin
from jetjobs._core.messages import Trigger
from jetjobs._core.models import BY_HAND, KEPT_ATTEMPTS, LOST, Attempt, Owner, RunError, RunRecord, RunStatus
from jetjobs._core.policy import ACK_WAIT, JobPolicy
from jetjobs._core.retry import later

EXPIRED = "trigger expired before it could be retried"


@dataclass(frozen=True, slots=True)
class DeliveryRules:
    """Who judges, by which policy."""

    host_id: str
    policy: JobPolicy
    ack_wait: timedelta = ACK_WAIT
    version: str | None = None


class Situation(NamedTuple):
    """What this process knows besides record and message.

    `claim` is the new start's name; `owner_holds` is the owner host's answer, `None` while not asked.
    `since_connected` is the age of this host's connection. `payload_digest` is of the decoded payload, for the record.
    """

    claim: str
    since_connected: timedelta
    payload_digest: str | None = None
    owner_holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Ack:
    """Retire the message."""

    why: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Send nothing for this delivery."""

    why: str


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask `host_id` whether it still holds the run under `claim`."""

    host_id: str
    claim: str | None


@dataclass(frozen=True, slots=True)
class Write:
    """Create or update the record, then go on."""

    record: RunRecord
    then: Literal["start", "ack"]


@dataclass(frozen=True, slots=True)
class Help:
    """Publish the retry that the record waits for, then ack."""

    record: RunRecord


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """The message is of a later turn than the record knows."""


Action = Ack | Drop | Ask | Write | Help | ReadAgain


def decide(
    record: RunRecord | None, trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime
) -> Action:
    """What to do with a delivery; `now` is broker time. Never raises."""
    if record is None:
        return _first_start(trigger, situation, rules=rules, now=now)
    if record.status.is_terminal:
        return _of_ended_run(record, trigger, situation, rules)
    if record.status is RunStatus.RETRYING:
        return _of_waiting_run(record, trigger, situation, rules=rules, now=now)
    return _of_running_run(record, trigger, situation, rules=rules, now=now)


def expiry_of(trigger: Trigger, rules: DeliveryRules) -> datetime:
    """When the run expires: as the message says, else by its kind, from when the broker stored the message."""
    if trigger.expires_at is not None:
        return trigger.expires_at
    span = trigger.expires_in
    return later(trigger.stored_at, span if span is not None else rules.policy.expiry(trigger.info.kind))


def lost_attempt(record: RunRecord) -> tuple[Attempt, ...]:
    """The record's attempts with the one that is RUNNING there noted as lost."""
    lost = Attempt(
        attempt=record.attempt,
        host_id=record.host_id or "",
        started_at=record.started_at,
        finished_at=None,
        outcome="LOST",
    )
    return (*record.attempts, lost)[-KEPT_ATTEMPTS:]


def _first_start(trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime) -> Action:
    expires_at = expiry_of(trigger, rules)
    module, job, run_id = trigger.key
    record = RunRecord.of(
        run_id=run_id,
        module=module,
        job=job,
        status=RunStatus.RUNNING,
        max_attempts=rules.policy.max_attempts,
        payload_body=trigger.body,
        fired_at=trigger.stored_at,
        expires_at=expires_at,
        created_at=trigger.stored_at,
        starts=1,
        claim=situation.claim,
        owner=_owner(trigger, rules),
        host_id=rules.host_id,
        started_at=now,
        heartbeat_at=now,
        **_what_few_have(trigger, situation, rules),
    )
    late = _too_late(trigger, expires_at, now)
    if late is None:
        return Write(begin(Event.CLAIM, record), "start")
    missed = record.but(starts=0, claim=None, owner=None, host_id=None, started_at=None, heartbeat_at=None)
    return Write(begin(Event.MISS, missed.but(finished_at=now, skip_reason=late)), "ack")


def _what_few_have(trigger: Trigger, situation: Situation, rules: DeliveryRules) -> dict[str, Any]:
    """The fields of a first record that mostly have their default; each costs every later copy of the record."""
    found: dict[str, Any] = {}
    if trigger.info is not BY_HAND:
        info = found["trigger"] = trigger.info
        found |= {"schedule_id": info.schedule_id, "parent_run_id": info.parent_run_id, "retry_of": info.retry_of}
    if trigger.turn != 1:
        found["turn"] = trigger.turn
    if rules.version is not None:
        found["version"] = rules.version
    if trigger.idempotency_key is not None:
        found["key"] = trigger.idempotency_key
    if situation.payload_digest is not None:
        found["payload_digest"] = situation.payload_digest
    if trigger.scheduled_for is not None or trigger.start_deadline is not None:
        found |= {"scheduled_for": trigger.scheduled_for, "start_deadline": trigger.start_deadline}
    return found


def _too_late(trigger: Trigger, expires_at: datetime, now: datetime) -> str | None:
    if trigger.start_deadline is not None and now > trigger.start_deadline:
        return f"not started by its start deadline, {trigger.start_deadline.isoformat(timespec='milliseconds')}"
    if now > expires_at:
        return f"not started before it expired, {expires_at.isoformat(timespec='milliseconds')}"
    return None


def _of_ended_run(record: RunRecord, trigger: Trigger, situation: Situation, rules: DeliveryRules) -> Action:
    owner = record.owner
    if owner is None or not owner.is_message(trigger.sequence, trigger.stored_at):
        return Ack("the run has ended")
    if trigger.num_delivered < owner.num_delivered:
        return Drop("a newer delivery of this message ended the run")
    asked = _ask(owner, record, situation, rules)
    if asked is not None:
        return asked
    return Ack("the run has ended and its owner is gone")


def _ask(owner: Owner, record: RunRecord, situation: Situation, rules: DeliveryRules) -> Action | None:
    """The question to the owner's host, `Drop` when it holds the run or may come back, `None` when it is gone.

    A host need not ask itself: if it held the run, nobody would have asked here. Silence proves nothing within one ack
    wait of this host's own (re)connect: after an outage the owner may be reconnecting too, with its handler alive.
    """
    if owner.host_id == rules.host_id:
        return None
    if situation.owner_holds is None:
        return Ask(owner.host_id, record.claim)
    if situation.owner_holds:
        return Drop("its owner still holds the run")
    if situation.since_connected < rules.ack_wait:
        return Drop("connected a moment ago: the owner gets one ack wait to come back")
    return None


def _of_running_run(
    record: RunRecord, trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime
) -> Action:
    owner = record.owner
    if owner is None or not owner.is_message(trigger.sequence, trigger.stored_at):
        return Ack("another message runs this run")
    if trigger.num_delivered <= owner.num_delivered:
        return Drop("the owner's delivery is newer")
    asked = _ask(owner, record, situation, rules)
    if asked is not None:
        return asked
    ended = _ended_instead(record, rules, now)
    if ended is not None:
        return Write(ended, "ack")
    return _take_over(record, trigger, situation, rules=rules, now=now)


def _take_over(
    record: RunRecord, trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime
) -> Action:
    if record.attempt < record.max_attempts:
        return Write(_claim(record, trigger, situation, rules=rules, now=now), "start")
    seen = record.heartbeat_at or record.started_at
    if seen is not None and now - seen <= 2 * rules.ack_wait:
        return Drop("the last attempt may still be alive")
    return Write(lost(record, now), "ack")


def lost(record: RunRecord, now: datetime) -> RunRecord:
    """A RUNNING record whose host is gone for good: FAILED, or CANCELLED when that was asked."""
    seen = record.heartbeat_at or record.started_at
    since = seen.isoformat(timespec="seconds") if seen is not None else "its start"
    return advance(
        record,
        Event.CANCEL if record.cancel_asked else Event.FAIL,
        finished_at=now,
        error=RunError(LOST, f"lost: no heartbeat since {since}"),
        attempts=lost_attempt(record),
    )


def _ended_instead(record: RunRecord, rules: DeliveryRules, now: datetime) -> RunRecord | None:
    """The record's end, when it was cancelled or expired while nobody ran it."""
    running = record.status is RunStatus.RUNNING
    attempts = lost_attempt(record) if running else record.attempts
    if record.cancel_asked:
        return advance(record, Event.CANCEL, finished_at=now, attempts=attempts, retry_at=None)
    if _expired(record, rules, now):
        instead = "its host was lost" if running else "it had been put off"  # by a snooze, or a shutdown
        return advance(
            record,
            Event.FAIL,
            finished_at=now,
            attempts=attempts,
            retry_at=None,
            error=expired_error(record.error, instead),
        )
    return None


def expired_error(last: RunError | None, instead: str = "") -> RunError:
    """Why a run that expires before its next attempt is FAILED: by its last error, or for want of one by `instead`."""
    why = instead if last is None else str(last)
    return RunError("Expired", f"{EXPIRED}; {why}" if why else EXPIRED, "" if last is None else last.traceback)


def _expired(record: RunRecord, rules: DeliveryRules, now: datetime) -> bool:
    if record.expires_at is None or now <= record.expires_at:
        return False
    timeout = rules.policy.timeout
    if record.status is not RunStatus.RUNNING or record.started_at is None or timeout is None:
        return True
    return now > record.started_at + timeout


def _of_waiting_run(
    record: RunRecord, trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime
) -> Action:
    if trigger.turn > record.turn:
        return ReadAgain()
    if trigger.turn < record.turn:
        owner = record.owner
        if owner is not None and owner.is_message(trigger.sequence, trigger.stored_at):
            return Help(record)
        return Ack("the run waits for a later turn")
    ended = _ended_instead(record, rules, now)
    if ended is not None:
        return Write(ended, "ack")
    return Write(_claim(record, trigger, situation, rules=rules, now=now), "start")


def _claim(
    record: RunRecord, trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime
) -> RunRecord:
    return advance(
        record,
        Event.CLAIM,
        starts=record.starts + 1,
        turn=trigger.turn,
        claim=situation.claim,
        owner=_owner(trigger, rules),
        host_id=rules.host_id,
        version=rules.version,
        started_at=now,
        heartbeat_at=now,
        retry_at=None,
        progress=None,
        attempts=lost_attempt(record) if record.status is RunStatus.RUNNING else record.attempts,
    )


def _owner(trigger: Trigger, rules: DeliveryRules) -> Owner:
    return Owner(trigger.sequence, trigger.stored_at, trigger.num_delivered, rules.host_id)
