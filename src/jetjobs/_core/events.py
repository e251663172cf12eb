"""What an event becomes: nothing, because its filter doesn't hold or can't be asked; or the trigger of one run.

An event's identity is decided here too. A publisher that sends `Nats-Msg-Id` names the event, and the run's id is
derived from that name: sent twice, heard by several hosts, delivered again, it is one run. An event of a stream
without such a name is known by its place there. The instant at which it was stored belongs to that place: a stream
that was removed and made again counts from 1 again, and its events are others. An event that core NATS brings without a
name is a run of its own, whatever its body.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from jetjobs._core import codec, headers
from jetjobs._core.bodies import Body
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import NOTHING, JobAddress, RunKey, TriggerInfo
from jetjobs._core.run_ids import run_id_for_event
from jetjobs._core.signal_subjects import announces_end
from jetjobs._core.triggers import OnEvent
from jetjobs.errors import PayloadInvalidError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_MSGPACK_TYPES: Final = frozenset({headers.MSGPACK_TYPE, "application/x-msgpack", "application/vnd.msgpack"})
_LONGEST_TRACE: Final = 256


@dataclass(frozen=True, slots=True)
class Event:
    """One message of some other service. `place` tells where a stream holds it, `None` for core NATS."""

    subject: str
    headers: Mapping[str, str] = NOTHING
    data: bytes = b""
    place: str | None = None


@dataclass(frozen=True, slots=True)
class Filtered:
    """The filter doesn't hold: nothing is written."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The filter can't be asked, because the body isn't what its content type says: nothing is written."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """It asks for a run: under `run_id`, or under a fresh one when it has no identity."""

    run_id: str | None
    encoding: Literal["msgpack", "json"]


Verdict = Filtered | Unreadable | Wanted

FILTERED: Final = Filtered()


def stream_event(message: Message, stream: str) -> Event:
    """The event in a message that a user's stream delivered.

    >>> at = datetime(2026, 3, 1, tzinfo=UTC)
    >>> stream_event(Message("orders.paid", {}, b"{}", 7, at), "ORDERS").place
    'ORDERS:7:1772323200000000'
    """
    stored = (message.stored_at - _EPOCH) // _MICROSECOND
    return Event(message.subject, message.headers, message.data, f"{stream}:{message.sequence}:{stored}")


def judge_event(
    event: Event, trigger: OnEvent, address: JobAddress, project: str, *, others: Collection[JobAddress] = ()
) -> Verdict:
    """What becomes of an event; `others` are the names a renamed job has beside the one its events carry. Never raises.

    A job doesn't hear the ends of its own runs: each would ask for the next, without end.

    Without a filter the body isn't looked at: a payload nobody can read is the runner's business, which leaves a
    FAILED record that tells about it.
    """
    if any(announces_end(project, event.subject, name) for name in (address, *others)):
        return FILTERED
    encoding = _encoding(event)
    if trigger.filter is not None:
        try:
            value = codec.decode(event.data, encoding)
        except PayloadInvalidError as error:
            return Unreadable(str(error))
        if not trigger.filter.matches(value):
            return FILTERED
    identity = _header(event, headers.MSG_ID) or event.place
    run_id = run_id_for_event(address.module, address.job, event.subject, identity) if identity else None
    return Wanted(run_id, encoding)


def event_trigger(project: str, run: RunKey, event: Event, body: Body | None, *, expires_in: timedelta) -> Outgoing:
    """The trigger message of an event's run; the broker's clock starts `expires_in` when it stores it."""
    trace = _header(event, headers.TRACEPARENT)
    return headers.trigger_message(
        project,
        run,
        body,
        info=TriggerInfo("event", event_subject=event.subject),
        expires_in=expires_in,
        traceparent=trace if trace is not None and len(trace) <= _LONGEST_TRACE else None,
    )


def _encoding(event: Event) -> Literal["msgpack", "json"]:
    """MessagePack where the publisher says so, else JSON, whatever other type is named: most publishers name none."""
    kind = _header(event, headers.CONTENT_TYPE)
    if kind is not None and kind.partition(";")[0].strip().lower() in _MSGPACK_TYPES:
        return "msgpack"
    return "json"


def _header(event: Event, name: str) -> str | None:
    """A header's value; clients write names in any case. An empty one says nothing."""
    if not event.headers:
        return None
    value = event.headers.get(name)
    if value is None:
        wanted = name.lower()
        value = next((text for given, text in event.headers.items() if given.lower() == wanted), None)
    return value or None
