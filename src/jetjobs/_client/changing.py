"""What `runs.cancel` and `runs.delete` do to each run."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

from jetjobs._client.bulk import change_each
from jetjobs._client.calls import Deadline, read
from jetjobs._client.cancelling import Cancelling, Chooses
from jetjobs._client.choosing import Candidate, Choice, choose, find, waiting_runs
from jetjobs._client.reading import Reader
from jetjobs._client.run_filters import WAITING, resolve
from jetjobs._client.scope import Scope
from jetjobs._core.cancelling import CancelResult
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import Fate, has_bodies_outside, read_retention, stub
from jetjobs._core.run_changes import ChangeOutcome, Ended, RunChange, change, fate_when_deleted, stub_ttl
from jetjobs._core.run_filter import RunFilter
from jetjobs._ports import Stored
from jetjobs.errors import AnswerUnknown, RunNotFound, WrongRevision

_ACTIVE = frozenset({RunStatus.RUNNING, RunStatus.RETRYING})


class BulkCancel:
    """One call of `runs.cancel`."""

    def __init__(self, scope: Scope, choice: Choice, *, dry_run: bool) -> None:
        self._scope = scope
        self._choice = choice
        self._dry_run = dry_run
        self._passes = choice.wanted.passes

    async def run(self, patience: Deadline) -> list[RunChange]:
        """Stop each run chosen: those with a record first, then those that wait."""
        if self._choice.named is not None:
            return await change_each(self._choice.named, self._cancel_named, patience)
        wanted = await resolve(self._scope, self._choice.wanted, patience)
        wanted = replace(wanted, statuses=wanted.statuses or (_ACTIVE | WAITING))
        self._passes = wanted.passes
        candidates = await self._candidates(wanted, patience)
        return await change_each(candidates, self._cancel_chosen, patience, limit=self._choice.limit)

    async def _candidates(self, wanted: RunFilter, patience: Deadline) -> list[Candidate]:
        """All of them, before the first is changed. A run that starts meanwhile has its message still."""
        statuses = wanted.statuses or frozenset()
        found: list[Candidate] = []
        if started := statuses & _ACTIVE:
            of_records = replace(wanted, statuses=started)
            found = await choose(self._scope, replace(self._choice, wanted=of_records), patience)
        if statuses & WAITING:
            known = {each.run for each in found}
            waiting = await waiting_runs(self._scope, wanted, patience)
            found += [Candidate(run.run_id, run) for run in waiting if run not in known]
        return found

    async def _cancel_named(self, candidate: Candidate, deadline: Deadline) -> RunChange | None:
        run = await find(self._scope, candidate, deadline)
        return _changed(run, await self._cancelled(run, _any, deadline))

    async def _cancel_chosen(self, candidate: Candidate, deadline: Deadline) -> RunChange | None:
        run = await find(self._scope, candidate, deadline)
        try:
            return _changed(run, await self._cancelled(run, self._still_chosen, deadline))
        except RunNotFound:
            return None  # it waited when it was chosen, and has ended and gone since

    def _still_chosen(self, record: RunRecord) -> bool:
        return record.status.is_terminal or self._passes(record)

    async def _cancelled(self, run: RunKey, chooses: Chooses, deadline: Deadline) -> CancelResult | None:
        cancelling = Cancelling(self._scope, run)
        if self._dry_run:
            return await cancelling.foresee(chooses, deadline)
        return await cancelling.cancel_if(chooses, deadline)


def _any(record: RunRecord) -> bool:
    del record
    return True


def _changed(run: RunKey, result: CancelResult | None) -> RunChange | None:
    return None if result is None else change(run, ChangeOutcome(result.outcome.value), result.status)


class BulkDelete:
    """One call of `runs.delete`."""

    def __init__(self, scope: Scope, choice: Choice, *, dry_run: bool, forget_keys: bool) -> None:
        self._scope = scope
        self._choice = choice
        self._dry_run = dry_run
        self._forget_keys = forget_keys
        self._reader = Reader(scope)
        self._retention: dict[JobAddress, JobRetention] = {}
        self._named: Collection[str] = ()

    async def run(self, patience: Deadline) -> list[RunChange]:
        """Let go of each run chosen that has ended."""
        candidates = await choose(self._scope, self._choice, patience)
        if candidates:
            self._retention = await self._rules(patience)
            self._named = await self._live_ticks(patience)
        return await change_each(candidates, self._delete, patience)

    async def _delete(self, candidate: Candidate, deadline: Deadline) -> RunChange | None:
        run = await find(self._scope, candidate, deadline)
        while True:
            stored = await self._reader.stored(run, deadline)
            if stored is None:
                return await self._without_record(run, deadline)
            ended = await self._ended(stored, deadline)
            fate = fate_when_deleted(ended, self._rule(run), forget_keys=self._forget_keys)
            if self._dry_run or await self._let_go(stored, ended, fate, deadline):
                return change(run, _FATES[fate], stored.record.status)

    async def _without_record(self, run: RunKey, deadline: Deadline) -> RunChange:
        waiting = await self._reader.waiting(run, deadline)
        if waiting is None:
            raise RunNotFound(f"no run {run} in project {self._scope.project!r}: nothing to delete")
        return change(run, ChangeOutcome.STILL_ACTIVE, waiting.record.status)

    async def _ended(self, stored: Stored, deadline: Deadline) -> Ended:
        record, broker = stored.record, self._scope.backend.broker
        now = await self._scope.time.now(broker, deadline)
        in_stream = record.status.is_terminal and bool(
            await read(
                lambda: broker.in_stream([record.run_key]), deadline, f"looking for messages of {record.run_key}"
            )
        )
        age = now - (record.finished_at or stored.stored_at)
        return Ended(record, age, in_stream, named=record.run_id in self._named)

    async def _let_go(self, stored: Stored, ended: Ended, fate: Fate, deadline: Deadline) -> bool:
        """Whether it is done; False when somebody else wrote first."""
        record, runs = stored.record, self._scope.backend.runs
        if fate is Fate.KEEP:
            return True
        if fate is Fate.DELETE:
            if not await read(
                lambda: runs.delete(record.run_key, stored.revision), deadline, f"deleting {record.run_key}"
            ):
                return False
        else:
            ttl = stub_ttl(ended, self._rule(record.run_key), forget_keys=self._forget_keys)
            try:
                await runs.update(stub(record), stored.revision, ttl=ttl)
            except (WrongRevision, AnswerUnknown):
                return False
        if has_bodies_outside(record):
            payloads = self._scope.backend.payloads
            await read(lambda: payloads.purge(record.run_id), deadline, f"deleting payloads of {record.run_key}")
        return True

    def _rule(self, run: RunKey) -> JobRetention:
        return self._retention.get(run.address) or _DEFAULT

    async def _rules(self, deadline: Deadline) -> dict[JobAddress, JobRetention]:
        jobs = await read(self._scope.backend.catalog.jobs, deadline, "listing jobs")
        return {job.address: rule for job in jobs if (rule := read_retention(job.retention)) is not None}

    async def _live_ticks(self, deadline: Deadline) -> Collection[str]:
        """Ids of runs that schedules wait for: their records tell how they ended."""
        stored = await read(self._scope.backend.schedules.all, deadline, "listing schedules")
        return {each.schedule.run_id(at) for each in stored for at in each.schedule.live}


_DEFAULT: Final = JobRetention()
_FATES: Final = {
    Fate.KEEP: ChangeOutcome.STILL_ACTIVE,
    Fate.SHRINK: ChangeOutcome.SHRUNK,
    Fate.DELETE: ChangeOutcome.DELETED,
}
