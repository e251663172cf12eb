"""A payload that doesn't validate here although its caller's release accepted it: whose fault, and what to do.

While two releases are side by side, or callers are ahead of hosts, the header `Jetjobs-Payload-Schema` tells that the
payload was made for another model than this host's. Then it isn't wrong, only early or late: a host of the other
release takes it. It waits outside the queue for that, as an `@at` message of its run's turn: given back by a nak it
would hold a slot of the job all the while, and with one slot nothing else would run.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final, Literal

from jetjobs._core.headers import delayed_message
from jetjobs._core.messages import Outgoing, Trigger
from jetjobs._core.models import RunRecord, RunStatus

Verdict = Literal["park", "leave", "fail"]

PARKED_FOR: Final = timedelta(seconds=1)
SPACING: Final = timedelta(milliseconds=5)
"""What one host parks comes back at most so fast: a whole queue of another release may not keep it busy."""


def verdict_on(
    trigger: Trigger, record: RunRecord | None, *, schema: str | None, expires_at: datetime, now: datetime
) -> Verdict:
    """What to do with a delivery whose payload doesn't validate against this host's `schema`.

    `park`: it waits outside the queue and comes again. `leave`: send nothing; the run of a host that died is handed
    out again anyway. `fail`: go on as with any delivery; whoever starts it says why. `expires_at` is the run's.

    Only what would start the run now is kept from it. A message that the run's record retires, that brings back a retry
    which was saved and never published, or that tells of a last attempt whose host died needs no handler, and parked or
    left it would do none of that.
    """
    if trigger.payload_schema is None or trigger.payload_schema == schema:
        return "fail"
    if record is None:
        return "park" if now < min(trigger.start_deadline or expires_at, expires_at) else "fail"
    if record.status.is_terminal or record.cancel_asked or now >= (record.expires_at or expires_at):
        return "fail"
    if record.status is RunStatus.RUNNING:
        owner = record.owner
        mine = owner is not None and owner.is_message(trigger.sequence, trigger.stored_at)
        return "leave" if mine and record.attempt < record.max_attempts else "fail"
    return "park" if trigger.turn >= record.turn else "fail"


def next_return(last: datetime | None, now: datetime) -> datetime:
    """When the next one parked comes back, `last` being when the one before it does."""
    soonest = now + PARKED_FOR
    return soonest if last is None else max(soonest, last + SPACING)


def parked_message(project: str, trigger: Trigger, at: datetime, *, expires_at: datetime) -> Outgoing:
    """The message that brings the same trigger again, with the limits it had."""
    return delayed_message(
        project,
        trigger.key,
        at,
        trigger.body,
        turn=trigger.turn,
        info=trigger.info,
        key=trigger.idempotency_key,
        scheduled_for=trigger.scheduled_for,
        start_deadline=trigger.start_deadline,
        expires_at=expires_at,
        payload_schema=trigger.payload_schema,
        traceparent=trigger.traceparent,
    )
