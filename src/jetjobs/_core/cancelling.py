"""What a cancel does to a run, decided from what is known of it.

A run that never started gets a CANCELLED record of its own; one that waits for its retry becomes CANCELLED at
once; a running one is only marked, and its host ends it; one that ended stays what it is. An id with neither
record nor message gets nothing written for it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from jetjobs._core.lifecycle import Event, advance, begin
from jetjobs._core.models import RunRecord, RunStatus


class CancelOutcome(StrEnum):
    """What a cancel came to; `CancelResult` tells what each means."""

    CANCELLED = "CANCELLED"
    ASKED = "ASKED"
    ALREADY_FINISHED = "ALREADY_FINISHED"


@dataclass(frozen=True, slots=True)
class CancelResult:
    """What a cancel came to, and the run's status right after it.

    `CANCELLED`: no handler of the run was running, none will. `ASKED`: the running handler is told to stop and
    gets no further attempt; what it returns in the meantime still counts. `ALREADY_FINISHED`: nothing changed.
    """

    outcome: CancelOutcome
    status: RunStatus


@dataclass(frozen=True, slots=True)
class Create:
    """Store this record, which must not exist yet; then the run's messages may go."""

    record: RunRecord


@dataclass(frozen=True, slots=True)
class Save:
    """Replace the record read. `frees` tells whether the run's messages may go afterwards."""

    record: RunRecord
    frees: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """Nothing to write. `ring` asks for the doorbell again, in case the first one was lost."""

    result: CancelResult
    ring: bool = False


@dataclass(frozen=True, slots=True)
class NoSuchRun:
    """There is nothing to cancel, so nothing is written."""


CancelAction = Create | Save | Answer | NoSuchRun


def decide_cancel(record: RunRecord | None, *, waiting: RunRecord | None, now: datetime, claim: str) -> CancelAction:
    """What to write for a cancel.

    `waiting` is the record a run without one would show (QUEUED or SCHEDULED), `None` when no message of it
    exists. `claim` is a random name that lets the caller recognise its own write after a lost answer.
    """
    if record is None:
        if waiting is None:
            return NoSuchRun()
        return Create(begin(Event.CANCEL, replace(waiting, claim=claim, cancel_asked=True, finished_at=now)))
    if record.status.is_terminal:
        return Answer(_of_ended(record, claim))
    if record.status is RunStatus.RETRYING:
        ended = advance(record, Event.CANCEL, claim=claim, cancel_asked=True, finished_at=now, retry_at=None)
        return Save(ended, frees=True)
    if record.cancel_asked:
        return Answer(CancelResult(CancelOutcome.ASKED, record.status), ring=True)
    return Save(advance(record, Event.ASK_CANCEL, cancel_asked=True), frees=False)


def _of_ended(record: RunRecord, claim: str) -> CancelResult:
    mine = record.status is RunStatus.CANCELLED and record.claim == claim
    return CancelResult(CancelOutcome.CANCELLED if mine else CancelOutcome.ALREADY_FINISHED, record.status)
