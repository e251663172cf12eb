"""Moving a delayed run: its schedule message is replaced, on the condition that it is still the one read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from jetjobs._client.calls import Deadline, Unconfirmed
from jetjobs._client.reading import Reader, due_at
from jetjobs._client.scope import Scope
from jetjobs._core import headers, names
from jetjobs._core.durations import InstantLike, instant
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import RunKey
from jetjobs._core.triggering import check_due, reschedule_refusal
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, ClientError, WrongRevision


class _Schedule(NamedTuple):
    message: Message
    due: datetime


async def reschedule(scope: Scope, run: RunKey, at: InstantLike, deadline: Deadline) -> None:
    """Have a SCHEDULED run fire at another instant.

    Raises:
        RunNotFound: no such run.
        ClientError: it isn't SCHEDULED, or due within a second.
        AnswerUnknown: not confirmed in time; ask the run's record.
    """
    new = _whole_milliseconds(check_due(instant(at, "at"), f"at={at!r}"))  # as the message will carry it
    unconfirmed = Unconfirmed(deadline, f"moving run {run}")
    while True:
        movable = _movable(scope, run, deadline, already=new if unconfirmed.sent else None)
        message, due = await unconfirmed.look(movable)
        if due == new:
            return
        span = timedelta(seconds=deadline.left)
        try:
            await scope.backend.broker.store(moved(message, due, new), expected=message.sequence, timeout=span)
        except WrongRevision:
            continue
        except (AnswerUnknown, BrokerUnavailable) as error:
            await unconfirmed.pause(error)
        else:
            return


async def _movable(scope: Scope, run: RunKey, deadline: Deadline, *, already: datetime | None) -> _Schedule:
    """The schedule of a run that may still be moved, or that is `already` where it was to go."""
    reader = Reader(scope)
    message = await reader.last(names.retry_subject(scope.project, run, 1), deadline)
    due = due_at(message) if message is not None else None
    if message is None or due is None:
        record = await reader.known(run, deadline)
        raise ClientError(f"run {run} can't be moved: it is {record.status.value}, not SCHEDULED")
    refusal = reschedule_refusal(due, await scope.time.now(scope.backend.broker, deadline))
    if refusal is not None and due != already:
        raise ClientError(f"run {run} can't be moved any more: {refusal}")
    return _Schedule(message, due)


def moved(message: Message, due: datetime, new: datetime) -> Outgoing:
    """The schedule for the new instant. What counts from the old one moves along; all else stays."""
    by = new - due
    kept = {name: value for name, value in message.headers.items() if not name.startswith("Nats-")}
    for name in (headers.START_DEADLINE, headers.SCHEDULED_FOR):
        text = kept.get(name)
        at = headers.read_instant(text) if text is not None else None
        # A `scheduled_for` other than the due instant is the caller's word for something else.
        if at is not None and (name == headers.START_DEADLINE or at == due):
            kept[name] = headers.write_instant(at + by)
    kept[headers.NATS_SCHEDULE] = "@at " + headers.write_instant(new)
    kept[headers.NATS_SCHEDULE_TARGET] = message.headers[headers.NATS_SCHEDULE_TARGET]
    kept[headers.TTL] = "never"
    return Outgoing(message.subject, kept, message.data)


def _whole_milliseconds(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
