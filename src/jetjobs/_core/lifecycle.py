"""The life of a run: which status may follow which, and nothing else decides it.

::

                     ┌────────────── CLAIM (a dead owner's run, taken over)
                     ▼   │
    (none) ─CLAIM─▶ RUNNING ─RETRY─▶ RETRYING
      │               │  ▲              │
      │               │  └────CLAIM─────┤
      │ MISS, CANCEL, │ SUCCEED, FAIL,  │ CANCEL, FAIL
      │ FAIL          │ TIME_OUT, SKIP, │
      ▼               ▼ CANCEL          ▼
      └─────────▶ one terminal status ◀─┘   nothing leaves it

SCHEDULED and QUEUED have no record: they are messages in the stream. A record begins with a claim, or at
its end when the run never starts. BEAT and ASK_CANCEL keep a run RUNNING and only mark it.

Every write of a record is `advance(record, event, changes)` followed by a compare-and-set, so that
two writers can never both move a run, and a status that the table doesn't allow can't be written at all.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Any

from jetjobs._core.models import RunRecord, RunStatus

S = RunStatus


class Event(Enum):
    """What can happen to a run's record."""

    CLAIM = auto()
    BEAT = auto()
    ASK_CANCEL = auto()
    RETRY = auto()
    SUCCEED = auto()
    FAIL = auto()
    TIME_OUT = auto()
    CANCEL = auto()
    SKIP = auto()
    MISS = auto()


TRANSITIONS: dict[RunStatus | None, dict[Event, RunStatus]] = {
    None: {
        Event.CLAIM: S.RUNNING,
        Event.MISS: S.MISSED,
        Event.CANCEL: S.CANCELLED,
        Event.FAIL: S.FAILED,
    },
    S.RUNNING: {
        Event.CLAIM: S.RUNNING,
        Event.BEAT: S.RUNNING,
        Event.ASK_CANCEL: S.RUNNING,
        Event.RETRY: S.RETRYING,
        Event.SUCCEED: S.SUCCEEDED,
        Event.FAIL: S.FAILED,
        Event.TIME_OUT: S.TIMED_OUT,
        Event.CANCEL: S.CANCELLED,
        Event.SKIP: S.SKIPPED,
    },
    S.RETRYING: {
        Event.CLAIM: S.RUNNING,
        Event.CANCEL: S.CANCELLED,
        Event.FAIL: S.FAILED,
    },
}


class IllegalTransition(Exception):
    """A bug in jetjobs: somebody asked for a step the table doesn't have."""


def next_status(status: RunStatus | None, event: Event) -> RunStatus:
    """Status after `event`; `status` is `None` for a run without a record.

    >>> next_status(RunStatus.RUNNING, Event.RETRY).value
    'RETRYING'

    Raises:
        IllegalTransition: the event can't happen there; a terminal status has no events at all.
    """
    try:
        return TRANSITIONS[status][event]
    except KeyError:
        msg = f"no {event.name} from {status.value if status else 'nothing'}"
        raise IllegalTransition(msg) from None


def begin(event: Event, record: RunRecord) -> RunRecord:
    """The first record of a run, with the status `event` gives it; the status it was built with is ignored."""
    status = next_status(None, event)
    return record if record.status is status else record.but(status=status)


def advance(record: RunRecord, event: Event, **changes: Any) -> RunRecord:
    """The record after `event`, with `changes` applied; never touches a terminal one."""
    return record.but(status=next_status(record.status, event), **changes)
