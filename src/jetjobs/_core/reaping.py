"""Which records belong to runs that nothing will ever finish.

A record alone can't tell: a run waits for its message. So the reaper asks first whether the record is
*stale*, then reads the stream in an order that can't miss a message on its way (trigger, schedule, trigger), asks
the owner, and only then writes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from jetjobs._core.delivery import lost
from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.models import LOST, RunError, RunRecord, RunStatus
from jetjobs._core.policy import LOST_AFTER

Doubt = Literal["fine", "owner", "retry"]


@dataclass(frozen=True, slots=True)
class ReapingRules:
    """After how long without heartbeat a RUNNING run, or past `retry_at` a RETRYING one, is looked into."""

    lost_after: timedelta = LOST_AFTER
    retry_slack: timedelta = LOST_AFTER


def doubt(record: RunRecord, rules: ReapingRules, now: datetime) -> Doubt:
    """What to look into: `owner` (its message and its host), `retry` (its messages), or nothing."""
    if record.status is RunStatus.RUNNING:
        seen = record.heartbeat_at or record.started_at
        return "owner" if seen is None or now - seen > rules.lost_after else "fine"
    if record.status is RunStatus.RETRYING:
        due = record.retry_at
        return "retry" if due is None or now - due > rules.retry_slack else "fine"
    return "fine"


def reap_running(record: RunRecord, now: datetime, *, owner_message_there: bool, owner_holds: bool) -> RunRecord | None:
    """The end of a stale RUNNING run, or `None` when a redelivery or its host will still end it."""
    if owner_holds:
        return None
    if owner_message_there and record.attempt < record.max_attempts:
        return None
    return lost(record, now)


def reap_waiting(record: RunRecord, now: datetime, *, anything_there: bool) -> RunRecord | None:
    """The end of a RETRYING run whose message is gone, or `None` while one is there."""
    if anything_there:
        return None
    if record.cancel_asked:
        return advance(record, Event.CANCEL, finished_at=now, retry_at=None)
    last = f"; {record.error}" if record.error is not None else ""
    error = RunError(LOST, f"lost: its retry was due and its message is gone{last}")
    return advance(record, Event.FAIL, finished_at=now, retry_at=None, error=error)
