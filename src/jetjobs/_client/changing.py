"""What `runs.cancel` and `runs.delete` do to each run."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace

from jetjobs._client.bulk import change_each
from jetjobs._client.calls import Deadline, read
from jetjobs._client.cancelling import Cancelling, Chooses
from jetjobs._client.choosing import Candidate, Choice, choose, find, waiting_runs
from jetjobs._client.deleting import Deleting, Deletion
from jetjobs._client.run_filters import WAITING, resolve
from jetjobs._client.scope import Scope
from jetjobs._core.cancelling import CancelResult
from jetjobs._core.descriptors import HostPresence
from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import RetentionRules, kept_by
from jetjobs._core.run_changes import ChangeOutcome, RunChange, change
from jetjobs._core.run_filter import RunFilter
from jetjobs.errors import PermissionMissing, RunNotFound

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
        self._retention = RetentionRules(JobRetention())
        self._named: Collection[str] = ()

    async def run(self, patience: Deadline) -> list[RunChange]:
        """Let go of each run chosen that has ended."""
        candidates = await choose(self._scope, self._choice, patience)
        if candidates:
            self._retention = await self._rules(patience)
            self._named = await self._live_ticks(patience)
        act = self._delete_chosen if self._choice.named is None else self._delete
        return await change_each(candidates, act, patience)

    async def _delete_chosen(self, candidate: Candidate, deadline: Deadline) -> RunChange | None:
        try:
            return await self._delete(candidate, deadline)
        except RunNotFound:
            return None  # it was there when it was chosen, and somebody else has let it go since

    async def _delete(self, candidate: Candidate, deadline: Deadline) -> RunChange:
        run = await find(self._scope, candidate, deadline)
        rule = self._retention.of(run.address)
        asked = Deletion(rule, named=run.run_id in self._named, forget_keys=self._forget_keys, dry_run=self._dry_run)
        return await Deleting(self._scope, run, asked).delete(deadline)

    async def _rules(self, deadline: Deadline) -> RetentionRules:
        catalog, hosts = self._scope.backend.catalog, list[HostPresence]()
        with suppress(PermissionMissing):
            hosts = await read(catalog.hosts, deadline, "listing hosts")
        return RetentionRules(kept_by(hosts)).described(await read(catalog.jobs, deadline, "listing jobs"))

    async def _live_ticks(self, deadline: Deadline) -> Collection[str]:
        """Ids of runs that schedules wait for: their records tell how they ended."""
        stored = await read(self._scope.backend.schedules.all, deadline, "listing schedules")
        return {each.schedule.run_id(at) for each in stored for at in each.schedule.live}
