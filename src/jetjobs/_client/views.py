"""What a client shows of a project: `client.runs`, `client.jobs`, `client.hosts`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from datetime import datetime
from functools import partial

from jetjobs._client.calls import Deadline, read
from jetjobs._client.reading import Reader, only_one
from jetjobs._client.hosts import HostsView
from jetjobs._client.jobs import JobsView
from jetjobs._client.scope import Scope
from jetjobs._core.durations import DurationLike, InstantLike, instant
from jetjobs._core.models import HostPresence, JobAddress, JobDescriptor, RunKey, RunRecord, RunStatus
from jetjobs._core.names import check_address, check_job_name, check_module_name, split_address
from jetjobs._core.run_filter import Newest, RunFilter, SortKey, parse_statuses, sort_key
from jetjobs._core.run_ids import safe_run_id
from jetjobs.errors import ClientError, ConfigError

_PAGE = 1000
_WAITING = frozenset({RunStatus.QUEUED, RunStatus.SCHEDULED})


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
        wanted = run_filter(module=module, job=job, include_skipped=True)
        found = await reader.find(safe_run_id(run_id), deadline)
        return only_one([record for record in found if wanted.passes(record)], run_id, scope.project)

    async def list(
        self,
        *,
        module: str | None = None,
        job: str | None = None,
        status: str | Iterable[str] | None = None,
        since: InstantLike | None = None,
        until: InstantLike | None = None,
        error_type: str | None = None,
        text: str | None = None,
        include_skipped: bool = False,
        limit: int = 100,
        before: RunRecord | None = None,
        timeout: DurationLike | None = None,
    ) -> list[RunRecord]:
        """The newest runs that match, newest first; the page that follows a record with `before=` it.

        `since` counts in, `until` doesn't, both of the run's creation. `text` is looked for in id, key, error,
        reason and logs. SKIPPED runs show only when asked for.

        Raises:
            ConfigError: an unknown status, a naive instant, or a limit below 1.
            ClientError: only statuses of waiting runs are asked for; they have no records to list.
        """
        if limit < 1:
            raise ConfigError(f"limit must be 1 or more, not {limit!r}")
        wanted = run_filter(
            module=module,
            job=job,
            status=status,
            since=since,
            until=until,
            error_type=error_type,
            text=text,
            include_skipped=include_skipped,
        )
        scope = self._scope()
        older_than = sort_key(before) if before is not None else None
        return await _page(scope, wanted, lambda: Newest(limit, wanted.passes, older_than), scope.deadline(timeout))

    async def iter(
        self,
        *,
        module: str | None = None,
        job: str | None = None,
        status: str | Iterable[str] | None = None,
        since: InstantLike | None = None,
        until: InstantLike | None = None,
        error_type: str | None = None,
        text: str | None = None,
        include_skipped: bool = False,
    ) -> AsyncIterator[RunRecord]:
        """All runs that match, newest first, a page at a time. Runs made meanwhile are left out."""
        wanted = run_filter(
            module=module,
            job=job,
            status=status,
            since=since,
            until=until,
            error_type=error_type,
            text=text,
            include_skipped=include_skipped,
        )
        scope = self._scope()
        before: SortKey | None = None
        while True:
            newest = partial(Newest, _PAGE, wanted.passes, before)
            page = await _page(scope, wanted, newest, scope.deadline())
            for record in page:
                yield record
            if len(page) < _PAGE:
                return
            before = sort_key(page[-1])


def run_filter(
    *,
    module: str | None = None,
    job: str | None = None,
    status: str | Iterable[str] | None = None,
    since: InstantLike | None = None,
    until: InstantLike | None = None,
    error_type: str | None = None,
    text: str | None = None,
    include_skipped: bool = False,
) -> RunFilter:
    """The filter that a call's arguments mean, with names and statuses checked."""
    statuses = parse_statuses(status)
    if statuses is not None and statuses and statuses <= _WAITING:
        raise ClientError(
            "runs that are QUEUED or SCHEDULED have no record to list yet; look at one with client.runs.get(run_id)"
        )
    return RunFilter(
        module=None if module is None else check_module_name(module),
        job=None if job is None else check_job_name(job),
        statuses=statuses,
        since=_instant(since, "since"),
        until=_instant(until, "until"),
        error_type=error_type,
        text=text,
        include_skipped=include_skipped,
    )


def _instant(given: InstantLike | None, what: str) -> datetime | None:
    return None if given is None else instant(given, what)


async def _page(scope: Scope, wanted: RunFilter, newest: Callable[[], Newest], deadline: Deadline) -> list[RunRecord]:
    """One pass over the records the names allow, keeping the newest that match."""
    job = JobAddress(wanted.module, wanted.job) if wanted.module is not None and wanted.job is not None else None
    module = wanted.module if job is None else None

    async def scan() -> list[RunRecord]:
        kept = newest()  # a new one for each try
        async for stored in scope.backend.runs.scan(job, module=module):
            kept.show(stored.record)
        return kept.records()

    return await read(scan, deadline, "listing runs")


__all__ = ["HostsView", "JobsView"]
