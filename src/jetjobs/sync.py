"""`JobClient` for code that blocks: Django, Flask, scripts. The same surface as `jetjobs.JobClient`, without `await`.

One background thread per process does the I/O of all blocking clients. It starts with the first call, anew in each
forked child, and ends with the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack, overload

from jetjobs._client.blocking import Blocking, BlockingView, Line, OwnLine
from jetjobs._client.blocking_run import JobRun as JobRun
from jetjobs._client.handle import JobHandle as AsyncHandle
from jetjobs._client.handle import asked_of
from jetjobs._client.hosts import HostsView as AsyncHosts
from jetjobs._client.job_run import JobRun as AsyncRun
from jetjobs._client.jobs import JobsView as AsyncJobs
from jetjobs._client.many import JobName, trigger_many
from jetjobs._client.many import TriggerError as TriggerError
from jetjobs._client.many import TriggerRequest as TriggerRequest
from jetjobs._client.publishing import Triggered
from jetjobs._client.pulled import Pulled
from jetjobs._client.run_filters import RunFilters, read_filters
from jetjobs._client.runs import RunsView as AsyncRuns
from jetjobs._client.runs import unroll_named, watch_named
from jetjobs._client.scope import Scope, seconds
from jetjobs._core.durations import DurationLike
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._core.names import check_address, split_address
from jetjobs._core.run_ids import safe_run_id
from jetjobs._given import modules_given
from jetjobs._nats import OpenClient
from jetjobs.client import open_scope
from jetjobs.config import ClientSettings, resolve_client_settings, resolve_project
from jetjobs.errors import ConfigError
from jetjobs.job import Job
from jetjobs.module import Module
from jetjobs.triggered import TriggerOptions

P = TypeVar("P")
R = TypeVar("R")


class JobClient:
    """Triggers jobs of one project and follows their runs; every call blocks until it is answered.

    ```python
    client = JobClient("nats://localhost:4222", project="shop")
    run = client.get_job("billing", "send_invoice").trigger({"id": 7}, idempotency_key="inv-7")
    print(run.result(timeout="30s"))
    ```

    `nats` is a URL or connect options. `modules` are bound until `close`, so that their jobs' own
    `trigger_blocking` works too. `timeout` (10 s) ends every call that gives none of its own; connecting, which the
    first call does, counts in. Needs no `with`: one per process, made at import, is fine. Usable from any thread
    whose event loop isn't running (there: `BlockingCallError`), and in forked processes.
    """

    def __init__(
        self,
        nats: Any = None,
        *,
        project: str | None = None,
        modules: Module | Iterable[Module] = (),
        timeout: DurationLike | None = None,
    ) -> None:
        if isinstance(nats, OpenClient):
            raise ConfigError("an open NATS client belongs to its event loop; give a blocking client a URL or options")
        settings = resolve_client_settings(ClientSettings() if timeout is None else ClientSettings(timeout=timeout))
        self._project = resolve_project(project)
        self._line = OwnLine(partial(open_scope, nats, self._project, settings), settings.timeout.total_seconds())
        self._handles: dict[JobAddress | int, JobHandle[Any, Any]] = {}
        self._modules = modules_given(modules, "JobClient")
        self._binding = _Binding(self._project, self._line)
        self.runs = RunsView(self._line)
        self.jobs = JobsView(self._line)
        self.hosts = HostsView(self._line)
        for module in self._modules:
            module.bind(self._binding)

    @property
    def project(self) -> str:
        """Name of the project."""
        return self._project

    def connect(self) -> None:
        """Connect now rather than at the first call. Idempotent.

        Raises:
            BrokerUnavailable, AccessDenied: not reachable within the client's timeout, or not let in.
        """
        self._line.call(_nothing)

    def close(self) -> None:
        """Unbind the modules and let go of the connection; for good. Idempotent, and not owed: the exit does it."""
        for module in self._modules:
            module.unbind(self._binding)
        self._line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @overload
    def get_job(self, module: Job[P, R]) -> JobHandle[P, R]: ...
    @overload
    def get_job(self, module: str, job: str | None = None) -> JobHandle[Any, Any]: ...
    def get_job(self, module: Job[Any, Any] | str, job: str | None = None) -> JobHandle[Any, Any]:
        """A job to trigger: by its `Job`, typed through and through; by two names; or as `"module.job"`.

        Nothing is looked up yet.

        Raises:
            InvalidNameError: no job can be called so.
        """
        declared = module if isinstance(module, Job) else None
        if declared is not None:
            address = declared.address
        else:
            address = split_address(module) if job is None else check_address(module, job)
        key: JobAddress | int = address if declared is None else id(declared)
        found = self._handles.get(key)
        return found if found is not None else self._handles.setdefault(key, JobHandle(self._line, address, declared))

    def trigger_many(
        self, requests: Iterable[TriggerRequest], *, timeout: DurationLike | None = None
    ) -> list[JobRun[Any] | TriggerError]:
        """A run, or what went wrong, for each request in their order; one bad request spoils no other.

        `timeout` counts from the last trigger confirmed: after so long without one, what is left is not sent.
        """
        given = list(requests)  # here, not on the loop's thread: an iterable may be code that blocks

        async def ask(scope: Scope, left: float | None) -> list[AsyncRun[Any] | TriggerError]:
            del left  # patience begins with the first trigger
            return await trigger_many(given, partial(self._find, scope), scope.deadline(timeout))

        results = self._line.call(ask, timeout)
        return [each if isinstance(each, TriggerError) else JobRun.of(self._line, each) for each in results]

    def run(self, module: str, job: str, run_id: str) -> JobRun[Any]:
        """A run by its names, to follow or to cancel; nothing is read yet.

        Raises:
            InvalidNameError: no run can be called so.
        """
        triggered = Triggered(RunKey(*check_address(module, job), safe_run_id(run_id)))
        return JobRun(self._line, triggered, lambda scope: AsyncRun[Any](scope, triggered))

    def _find(self, scope: Scope, job: JobName) -> AsyncHandle[Any, Any]:
        return (self.get_job(*job) if isinstance(job, tuple) else self.get_job(job)).over(scope)


SyncJobClient = JobClient
"""`JobClient` of `jetjobs.sync` under the name that `jetjobs` exports it by, beside the one that awaits."""


class JobHandle(Generic[P, R]):
    """A job that can be triggered, found by name or by its `Job`."""

    def __init__(self, line: Line, address: JobAddress, job: Job[P, R] | None = None) -> None:
        self.address = address
        self._line = line
        self._job = job
        self._made: tuple[Scope, AsyncHandle[P, R]] | None = None

    def __repr__(self) -> str:
        return f"JobHandle({str(self.address)!r})"

    def trigger(self, payload: P | None = None, **options: Unpack[TriggerOptions]) -> JobRun[R]:
        """Ask for a run; see `TriggerOptions` for what each option does.

        With an `idempotency_key` the run is the same for as long as its record is kept, whoever asks.

        Raises:
            PayloadError: the payload can't be stored, or doesn't fit the handler where a `Job` is at hand.
            UnknownJobError: no host ever described the job; has `.close_names`.
            DuplicateRun: `on_duplicate="raise"`, and the key has a run.
            BrokerUnavailable: not reachable in time; nothing was sent.
            TriggerUnconfirmed: perhaps stored; has `.run_id`.
            BlockingCallError: this thread's event loop is running.
        """
        if self._job is not None:
            self._job.check_payload(payload)
        return self.trigger_checked(payload, **options)

    def trigger_checked(self, payload: Any, **options: Unpack[TriggerOptions]) -> JobRun[R]:
        """The same for a payload that was checked against the handler, or can't be."""
        asked, timeout = asked_of(options), options.get("timeout")

        async def ask(scope: Scope, left: float | None) -> AsyncRun[R]:
            deadline = scope.deadline(timeout) if left is None else scope.within(left)
            return await self.over(scope).trigger_checked(payload, asked, deadline)

        return JobRun[R].of(self._line, self._line.call(ask, timeout))

    def over(self, scope: Scope) -> AsyncHandle[P, R]:
        """The async twin, for the loop's thread."""
        if self._made is None or self._made[0] is not scope:
            self._made = (scope, AsyncHandle(scope, self.address, self._job))
        return self._made[1]


class RunsView(BlockingView[AsyncRuns]):
    """The runs of a project. Lists show runs that have a record: all that ever started, and what ended unstarted."""

    def __init__(self, line: Line) -> None:
        super().__init__(line, lambda scope: AsyncRuns(lambda: scope))

    get = Blocking(AsyncRuns.get)
    list = Blocking(AsyncRuns.list)
    cancel = Blocking(AsyncRuns.cancel)
    delete = Blocking(AsyncRuns.delete)
    retry = Blocking(AsyncRuns.retry)

    def iter(self, **filters: Unpack[RunFilters]) -> Iterator[RunRecord]:
        """All runs that match, newest first, read as they are asked for. Runs made meanwhile are left out.

        The filters are those of `RunFilters`.
        """
        wanted = read_filters(filters)
        for batch in Pulled(self._line, lambda scope: unroll_named(scope, wanted)):
            yield from batch

    @overload
    def watch(
        self, *, heartbeat: None = None, existing: bool = False, **filters: Unpack[RunFilters]
    ) -> Iterator[RunRecord]: ...
    @overload
    def watch(
        self, *, heartbeat: DurationLike, existing: bool = False, **filters: Unpack[RunFilters]
    ) -> Iterator[RunRecord | None]: ...
    def watch(
        self, *, heartbeat: DurationLike | None = None, existing: bool = False, **filters: Unpack[RunFilters]
    ) -> Iterator[RunRecord | None]:
        """The records of runs that match, each time one changes, until the client is closed; through outages too.

        Of changes within half a second only the last may be seen; what is deleted isn't told. With `existing` what is
        there comes first, newest first. With a `heartbeat` it gives `None` once it has begun to watch, and whenever
        nothing changed for so long: a chance to stop. Ctrl-C ends it at any time.
        """
        wanted = read_filters(filters)
        beat = None if heartbeat is None else seconds(heartbeat, "heartbeat")
        for batch in Pulled(self._line, lambda scope: watch_named(lambda: scope, wanted, beat, existing=existing)):
            yield from batch or (None,)


class JobsView(BlockingView[AsyncJobs]):
    """The jobs hosts have described in a project, and what people ordered for them; see the async twin."""

    def __init__(self, line: Line) -> None:
        super().__init__(line, lambda scope: AsyncJobs(lambda: scope))

    list = Blocking(AsyncJobs.list)
    get = Blocking(AsyncJobs.get)
    pause = Blocking(AsyncJobs.pause)
    resume = Blocking(AsyncJobs.resume)
    override = Blocking(AsyncJobs.override)


class HostsView(BlockingView[AsyncHosts]):
    """The hosts that live in a project."""

    def __init__(self, line: Line) -> None:
        super().__init__(line, lambda scope: AsyncHosts(lambda: scope))

    list = Blocking(AsyncHosts.list)
    drain = Blocking(AsyncHosts.drain)


class _Binding:
    """What the jobs of a blocking client's modules trigger through."""

    # Not the client itself: one that is dropped shall be freed at once, and its connection with it.
    def __init__(self, project: str, line: Line) -> None:
        self.project = project
        self._line = line
        self._handles: dict[int, JobHandle[Any, Any]] = {}

    def trigger_blocking(self, job: Job[Any, Any], payload: Any, **options: Unpack[TriggerOptions]) -> JobRun[Any]:
        found = self._handles.get(id(job))
        if found is None:
            found = self._handles.setdefault(id(job), JobHandle(self._line, job.address, job))
        return found.trigger_checked(payload, **options)


async def _nothing(_scope: Scope, _left: float | None) -> None:
    return
