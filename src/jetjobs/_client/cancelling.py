"""Cancelling a run: read, decide, write; again when somebody else wrote first."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import assert_never

from jetjobs._client.calls import Deadline, Unconfirmed
from jetjobs._client.reading import Reader, Waiting
from jetjobs._client.scope import Scope
from jetjobs._core import names
from jetjobs._core.cancelling import (
    Answer,
    CancelAction,
    CancelOutcome,
    CancelResult,
    Create,
    NoSuchRun,
    Save,
    decide_cancel,
)
from jetjobs._core.models import RunKey, RunRecord
from jetjobs._core.policy import MAX_AGE
from jetjobs._core.retention import record_ttl
from jetjobs._ports import Stored
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable, RunNotFound, WrongRevision

Chooses = Callable[[RunRecord], bool]


class Cancelling:
    """One cancel of one run."""

    def __init__(self, scope: Scope, run: RunKey) -> None:
        self._run = run
        self._project = scope.project
        self._reader = Reader(scope)
        self._runs = scope.backend.runs
        self._broker = scope.backend.broker
        self._time = scope.time
        self._lookup = scope.lookup
        self._claim = secrets.token_hex(8)
        self._waiting: Waiting | None = None

    async def cancel(self, deadline: Deadline) -> CancelResult:
        """Stop the run, whatever it is doing.

        Raises:
            RunNotFound: neither a record nor a message of it; nothing was written.
            AnswerUnknown: not confirmed in time; cancel again.
        """
        result = await self.cancel_if(lambda _: True, deadline)
        assert result is not None
        return result

    async def cancel_if(self, chooses: Chooses, deadline: Deadline) -> CancelResult | None:
        """The same, if the run as it is in that moment is one of those chosen."""
        unconfirmed = Unconfirmed(deadline, f"cancel of run {self._run}")
        while True:
            action, stored = await unconfirmed.look(self._decide(chooses, deadline))
            if action is None:
                return None
            try:
                return await self._carry_out(action, stored, deadline)
            except WrongRevision:
                continue
            except (AnswerUnknown, BrokerUnavailable) as error:
                await unconfirmed.pause(error)

    async def foresee(self, chooses: Chooses, deadline: Deadline) -> CancelResult | None:
        """What a cancel would come to now; nothing is written."""
        action, _ = await self._decide(chooses, deadline)
        match action:
            case None:
                return None
            case Create(record):
                return CancelResult(CancelOutcome.CANCELLED, record.status)
            case Save(record, frees):
                return CancelResult(CancelOutcome.CANCELLED if frees else CancelOutcome.ASKED, record.status)
            case Answer(result, _):
                return result
            case NoSuchRun():
                raise self._not_found()
        assert_never(action)

    async def _decide(self, chooses: Chooses, deadline: Deadline) -> tuple[CancelAction | None, Stored | None]:
        stored = await self._reader.stored(self._run, deadline)
        if stored is None:
            self._waiting = await self._reader.waiting(self._run, deadline)
            if self._waiting is None:
                stored = await self._reader.stored(self._run, deadline)
        waiting = self._waiting.record if self._waiting is not None else None
        seen = stored.record if stored is not None else waiting
        if seen is not None and not self._is_mine(seen) and not chooses(seen):
            return None, stored
        action = decide_cancel(
            stored.record if stored is not None else None,
            waiting=waiting,
            now=await self._time.now(self._broker, deadline),
            claim=self._claim,
        )
        return action, stored

    def _is_mine(self, seen: RunRecord) -> bool:
        """Whether a cancel of this call went through though its answer was lost."""
        return seen.claim == self._claim

    async def _carry_out(self, action: CancelAction, stored: Stored | None, deadline: Deadline) -> CancelResult:
        match action:
            case Create(record):
                await self._runs.create(record, ttl=await self._lifetime(record, deadline))
                return await self._won(record)
            case Save(record, frees):
                assert stored is not None
                lifetime = await self._lifetime(record, deadline) if frees else None
                await self._runs.update(record, stored.revision, ttl=lifetime)
                if frees:
                    return await self._won(record)
                await self._ring()
                return CancelResult(CancelOutcome.ASKED, record.status)
            case Answer(result, ring):
                if ring:
                    await self._ring()
                return result
            case NoSuchRun():
                raise self._not_found()
        assert_never(action)

    def _not_found(self) -> RunNotFound:
        return RunNotFound(f"no run {self._run} in project {self._project!r}: nothing to cancel")

    async def _lifetime(self, record: RunRecord, deadline: Deadline) -> timedelta:
        """After how long the record goes by itself: hosts may remove it sooner, and nobody else ever would."""
        rule = await self._lookup.retention(self._run.address, deadline)
        # As long as a message may lie in the stream: one that couldn't be taken away must find the record.
        return max(record_ttl(record, rule), MAX_AGE)

    async def _won(self, record: RunRecord) -> CancelResult:
        """Tell who waits, and take the messages away: nobody will start them, and a leftover is harmless."""
        self._broker.announce_end(record)
        with suppress(BrokerError):
            for subject in (
                names.run_schedules(self._project, self._run),
                names.trigger_subject(self._project, self._run),
            ):
                message = await self._broker.last(subject)
                if message is not None:
                    await self._broker.purge(subject, up_to=message.sequence)
        return CancelResult(CancelOutcome.CANCELLED, record.status)

    async def _ring(self) -> None:
        with suppress(BrokerError):  # the mark on the record is what counts
            await self._broker.ring_cancel(self._run)
