"""`client.runs`: the runs of a project, looked at, listed, watched, and changed many at a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, Unpack, overload

from jetjobs._client.changing import BulkCancel, BulkDelete
from jetjobs._client.choosing import RunIds, read_choice
from jetjobs._client.reading import Reader, only_one
from jetjobs._client.retrying import FROM_RECORD, BulkRetry
from jetjobs._client.run_filters import RunFilters, read_filters, resolve
from jetjobs._client.scanning import page, unroll
from jetjobs._client.scope import Scope, seconds
from jetjobs._client.watching import Watch
from jetjobs._core.durations import DurationLike
from jetjobs._core.models import RunKey, RunRecord
from jetjobs._core.names import check_address
from jetjobs._core.run_changes import RunChange
from jetjobs._core.run_filter import RunFilter, sort_key
from jetjobs._core.run_ids import safe_run_id
from jetjobs.errors import ConfigError


class RunsView:
    """The runs of a project. Lists show runs that have a record: all that ever started, and what ended unstarted."""

    def __init__(self, scope: Callable[[], Scope]) -> None:
        self._scope = scope

    async def get(
        self,
        run_id: str,
        *,
        module: str | None = None,
        job: str | None = None,
        timeout: DurationLike | None = None,
    ) -> RunRecord:
        """Everything known of one run; one that waits to start shows what its message says.

        Raises:
            RunNotFound: no run with this id, or none of this job.
            AmbiguousRunId: several jobs have one.
        """
        scope = self._scope()
        reader = Reader(scope)
        deadline = scope.deadline(timeout)
        if module is not None and job is not None:
            return await reader.known(RunKey(*check_address(module, job), safe_run_id(run_id)), deadline)
        wanted = read_filters({"module": module, "job": job, "include_skipped": True})
        found = await reader.find(safe_run_id(run_id), deadline)
        return only_one([record for record in found if wanted.passes(record)], run_id, scope.project)

    async def list(
        self,
        *,
        limit: int = 100,
        before: RunRecord | None = None,
        timeout: DurationLike | None = None,
        **filters: Unpack[RunFilters],
    ) -> list[RunRecord]:
        """The newest runs that match, newest first; the page that follows a record with `before=` it.

        The filters are those of `RunFilters`.

        Raises:
            ConfigError: an unknown status or filter, a naive instant, or a limit below 1.
            ClientError: only statuses of waiting runs are asked for; they have no records to list.
        """
        if limit < 1:
            raise ConfigError(f"limit must be 1 or more, not {limit!r}")
        wanted = read_filters(filters)
        scope = self._scope()
        deadline = scope.deadline(timeout)
        wanted = await resolve(scope, wanted, deadline)
        older_than = sort_key(before) if before is not None else None
        return await page(scope, wanted, limit, before=older_than, deadline=deadline)

    async def iter(self, **filters: Unpack[RunFilters]) -> AsyncIterator[RunRecord]:
        """All runs that match, newest first, read as they are asked for. Runs made meanwhile are left out.

        The filters are those of `RunFilters`.
        """
        async with aclosing(unroll_named(self._scope(), read_filters(filters))) as batches:
            async for batch in batches:
                for record in batch:
                    yield record

    @overload
    def watch(
        self, *, heartbeat: None = None, existing: bool = False, **filters: Unpack[RunFilters]
    ) -> AsyncIterator[RunRecord]: ...
    @overload
    def watch(
        self, *, heartbeat: DurationLike, existing: bool = False, **filters: Unpack[RunFilters]
    ) -> AsyncIterator[RunRecord | None]: ...
    async def watch(
        self, *, heartbeat: DurationLike | None = None, existing: bool = False, **filters: Unpack[RunFilters]
    ) -> AsyncIterator[RunRecord | None]:
        """The records of runs that match, each time one changes, until the client is closed; through outages too.

        Of changes within half a second only the last may be seen; what is deleted isn't told. With `existing` what is
        there comes first, newest first. With a `heartbeat` it gives `None` once it has begun to watch, and whenever
        nothing changed for so long: a chance to stop.

        Raises:
            ConfigError, ClientError: as `list`.
        """
        wanted = read_filters(filters)
        beat = None if heartbeat is None else seconds(heartbeat, "heartbeat")
        async with aclosing(watch_named(self._scope, wanted, beat, existing=existing)) as batches:
            async for batch in batches:
                for record in batch or (None,):
                    yield record

    async def cancel(
        self,
        runs: RunIds | None = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        timeout: DurationLike | None = None,
        **filters: Unpack[RunFilters],
    ) -> Sequence[RunChange]:
        """Stop runs: those given, or all active ones that match, queued and scheduled ones too.

        One change for each run, in their order, whatever became of the others. `dry_run` changes nothing and tells
        what would have come of it. `limit` bounds how many the filters choose. `timeout` counts from the last run that
        was done: after so long without one, the rest fails.

        Raises:
            ClientError: neither runs nor filters are given.
            ConfigError: runs and other filters than `module` and `job`, or as `list`.
        """
        choice = read_choice(runs, filters, limit, waiting_too=True)
        scope = self._scope()
        return await BulkCancel(scope, choice, dry_run=dry_run).run(scope.deadline(timeout))

    async def delete(
        self,
        runs: RunIds | None = None,
        *,
        dry_run: bool = False,
        forget_keys: bool = False,
        limit: int | None = None,
        timeout: DurationLike | None = None,
        **filters: Unpack[RunFilters],
    ) -> Sequence[RunChange]:
        """Let go of runs that have ended, with their payloads and results; an active one is never touched.

        A run that can be named again (by its key, event id, parent or row of retries), or that ended less than
        `min_age` ago, shrinks to a stub, which goes by itself: a second trigger must find it. `forget_keys` deletes the
        former too: then the same key makes a new run. The rest is as in `cancel`.

        Raises:
            ClientError, ConfigError: as `cancel`.
        """
        choice = read_choice(runs, filters, limit)
        scope = self._scope()
        deleting = BulkDelete(scope, choice, dry_run=dry_run, forget_keys=forget_keys)
        return await deleting.run(scope.deadline(timeout))

    async def retry(
        self,
        runs: RunIds | None = None,
        *,
        dry_run: bool = False,
        limit: int | None = None,
        payload: Any = FROM_RECORD,
        timeout: DurationLike | None = None,
        **filters: Unpack[RunFilters],
    ) -> Sequence[RunChange]:
        """A new run for each run given that has ended, or for each one that matches and FAILED or TIMED_OUT.

        With the payload it had, or with `payload`. Its id follows from the run's, so that two people at once make one:
        while a retry is active, or once one succeeded, there is no other. `retry_of` of the new run names the first of
        the row. `status=` chooses others than FAILED and TIMED_OUT. The rest is as in `cancel`.

        Raises:
            ClientError, ConfigError: as `cancel`.
        """
        choice = read_choice(runs, filters, limit)
        scope = self._scope()
        return await BulkRetry(scope, choice, payload, dry_run=dry_run).run(scope.deadline(timeout))


async def unroll_named(scope: Scope, wanted: RunFilter) -> AsyncGenerator[list[RunRecord], None]:
    """All that match, newest first, some at a time; the schedule may be given by its name."""
    patience = scope.deadline()
    wanted = await resolve(scope, wanted, patience)
    async with aclosing(unroll(scope, wanted, patience)) as batches:
        async for batch in batches:
            yield batch


async def watch_named(
    scope: Callable[[], Scope], wanted: RunFilter, heartbeat: float | None, *, existing: bool
) -> AsyncGenerator[list[RunRecord], None]:
    """Batches of records as they change, an empty one for a heartbeat; the schedule may be given by its name."""
    wanted = await resolve(scope(), wanted, scope().deadline())
    async with aclosing(Watch(scope, wanted, heartbeat).batches(existing=existing)) as batches:
        async for batch in batches:
            yield batch
