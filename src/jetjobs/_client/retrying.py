"""What `runs.retry` does to each run: a new run in its row of retries, with its payload or an edited one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from enum import Enum, auto
from itertools import count
from typing import Any, Final

from jetjobs._client.bulk import change_each
from jetjobs._client.calls import Deadline
from jetjobs._client.choosing import Candidate, Choice, choose, find
from jetjobs._client.handle import JobHandle
from jetjobs._client.reading import Reader
from jetjobs._client.scope import Scope
from jetjobs._core import codec
from jetjobs._core.models import JobAddress, RunKey, RunRecord, TriggerInfo
from jetjobs._core.run_changes import (
    RETRIED_BY_FILTER,
    ChangeOutcome,
    RetryStep,
    RunChange,
    change,
    first_of_row,
    judge_retry,
    nth_retry,
)
from jetjobs._core.triggering import Asked
from jetjobs.errors import PayloadInvalidError

_LARGE_AT_ONCE: Final = 2  # each may be 64 MiB, and is in memory twice


class FromRecord(Enum):
    """Stands for the payload that a run had."""

    PAYLOAD = auto()


FROM_RECORD: Final = FromRecord.PAYLOAD


class BulkRetry:
    """One call of `runs.retry`."""

    def __init__(self, scope: Scope, choice: Choice, payload: Any, *, dry_run: bool) -> None:
        self._scope = scope
        self._choice = choice
        self._payload = payload
        self._dry_run = dry_run
        self._reader = Reader(scope)
        self._handles: dict[JobAddress, JobHandle[Any, Any]] = {}
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)
        self._rows: defaultdict[RunKey, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._new: dict[RunKey, RunKey] = {}

    async def run(self, patience: Deadline) -> list[RunChange]:
        """A new run for each one chosen that has ended."""
        wanted = self._choice.wanted
        if wanted.statuses is None:
            wanted = replace(wanted, statuses=RETRIED_BY_FILTER)
        candidates = await choose(self._scope, replace(self._choice, wanted=wanted), patience)
        return await change_each(candidates, self._retry, patience)

    async def _retry(self, candidate: Candidate, deadline: Deadline) -> RunChange:
        run = await find(self._scope, candidate, deadline)
        record = await self._reader.known(run, deadline)
        if not record.status.is_terminal:
            return change(run, ChangeOutcome.STILL_ACTIVE, record.status)
        first = first_of_row(record)
        # Two runs of one row must not become two new ones, even where the first of those has failed by now.
        async with self._rows[first]:
            new = self._new.get(first)
            if new is not None:
                return _retried(record, new, ChangeOutcome.ALREADY_RETRIED)
            change_made = await self._follow(first, record, deadline)
            self._new[first] = RunKey(first.module, first.job, change_made.new_run_id or "")
            return change_made

    async def _follow(self, first: RunKey, record: RunRecord, deadline: Deadline) -> RunChange:
        """The next run of the row, unless its last one is active or succeeded."""
        for number in count(1):
            new = nth_retry(first, number)
            match judge_retry(await self._reader.snapshot(new, deadline)):
                case RetryStep.GO_ON:
                    continue
                case RetryStep.STAY:
                    return _retried(record, new, ChangeOutcome.ALREADY_RETRIED)
                case RetryStep.STORE:
                    duplicate = False if self._dry_run else await self._store(new, record, deadline)
                    outcome = ChangeOutcome.ALREADY_RETRIED if duplicate else ChangeOutcome.RETRIED
                    return _retried(record, new, outcome)
        raise AssertionError("a row without end")

    async def _store(self, new: RunKey, record: RunRecord, deadline: Deadline) -> bool:
        """Have the new run stored; whether somebody else did first."""
        info = TriggerInfo("retry", retry_of=first_of_row(record).run_id)
        asked = Asked(scheduled_for=record.scheduled_for)
        body = record.payload_body
        if self._payload is FROM_RECORD and body is not None and body.claim is not None:
            async with self._large:
                payload = await self._payload_of(record, deadline)
                made = await self._handle(new).trigger_named(new, info, payload, asked=asked, deadline=deadline)
        else:
            payload = await self._payload_of(record, deadline)
            made = await self._handle(new).trigger_named(new, info, payload, asked=asked, deadline=deadline)
        return made.duplicate

    async def _payload_of(self, record: RunRecord, deadline: Deadline) -> Any:
        if self._payload is not FROM_RECORD:
            return self._payload
        if record.stub and record.payload_digest != _NO_PAYLOAD:
            raise PayloadInvalidError(
                f"only a stub is kept of run {record.run_key}, its payload has gone; give one with payload="
            )
        return await self._reader.payload(record, deadline)

    def _handle(self, run: RunKey) -> JobHandle[Any, Any]:
        found = self._handles.get(run.address)
        if found is None:
            found = self._handles[run.address] = JobHandle(self._scope, run.address)
        return found


def _retried(record: RunRecord, new: RunKey, outcome: ChangeOutcome) -> RunChange:
    return replace(change(record.run_key, outcome, record.status), new_run_id=new.run_id)


_NO_PAYLOAD: Final = codec.digest(None)
