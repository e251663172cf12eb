"""`JobClient`: trigger jobs and follow their runs, from a host's own process or from any other service.

A client creates nothing on the broker: it works with a user who may only store triggers and read. What it finds
missing it names.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from jetjobs._client.binding import ClientBinding
from jetjobs._client.handle import JobHandle as JobHandle
from jetjobs._client.hosts import HostsView
from jetjobs._client.job_run import JobRun as JobRun
from jetjobs._client.jobs import JobsView
from jetjobs._client.lookup import JobLookup
from jetjobs._client.many import JobName, trigger_many
from jetjobs._client.many import TriggerError as TriggerError
from jetjobs._client.many import TriggerRequest as TriggerRequest
from jetjobs._client.publishing import Triggered
from jetjobs._client.runs import RunsView
from jetjobs._client.scope import Scope
from jetjobs._core.cancelling import CancelOutcome as CancelOutcome
from jetjobs._core.cancelling import CancelResult as CancelResult
from jetjobs._core.controls import JobControl as JobControl
from jetjobs._core.controls import JobInfo as JobInfo
from jetjobs._core.durations import DurationLike
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._core.names import check_address, split_address
from jetjobs._core.run_changes import ChangeOutcome as ChangeOutcome
from jetjobs._core.run_changes import RunChange as RunChange
from jetjobs._core.run_ids import safe_run_id
from jetjobs._given import modules_given
from jetjobs._nats import OpenClient, open_backend
from jetjobs._ports import Backend
from jetjobs.config import ClientSettings, connect_options, resolve_client_settings, resolve_project
from jetjobs.errors import ClientError
from jetjobs.job import Job
from jetjobs.module import Module

P = TypeVar("P")
R = TypeVar("R")


class JobClient:
    """Triggers jobs of one project and follows their runs.

    ```python
    async with JobClient("nats://localhost:4222", project="shop") as client:
        run = await client.get_job("billing", "send_invoice").trigger({"id": 7}, idempotency_key="inv-7")
        print(await run.result(timeout="30s"))
    ```

    `nats` is a URL, connect options, or an open nats-py client, which stays open. `modules` are bound while the
    client is open, so that their jobs' own `trigger` works too. `timeout` (10 s) ends every call that gives none of
    its own. Belongs to the event loop it was connected on.
    """

    def __init__(
        self,
        nats: Any = None,
        *,
        project: str | None = None,
        modules: Module | Iterable[Module] = (),
        timeout: DurationLike | None = None,
        backend: Backend | None = None,
    ) -> None:
        given = ClientSettings() if timeout is None else ClientSettings(timeout=timeout)
        self._settings = resolve_client_settings(given)
        self._nats = nats
        self._project = _project(project, backend)
        self._modules = modules_given(modules, "JobClient")
        self._given = backend
        self._scope: Scope | None = None
        self._binding: ClientBinding | None = None
        self._turn = asyncio.Lock()
        self._handles: dict[JobAddress | int, JobHandle[Any, Any]] = {}
        self.runs = RunsView(self._open)
        self.jobs = JobsView(self._open)
        self.hosts = HostsView(self._open)

    @property
    def project(self) -> str:
        """Name of the project."""
        return self._project

    async def connect(self) -> None:
        """Connect, and bind the modules. Idempotent.

        Raises:
            BrokerUnavailable, AccessDenied: not reachable within the client's timeout, or not let in.
            AmbiguousHostError: later, from a job bound to two projects.
        """
        async with self._turn:
            if self._scope is not None:
                return
            settings = self._settings
            if self._given is None:
                self._scope = await open_scope(self._nats, self._project, settings)
            else:
                self._scope = _scope_of(self._given, self._project, settings)
            self._binding = ClientBinding(self._scope, self.get_job)
            for module in self._modules:
                module.bind(self._binding)

    async def close(self) -> None:
        """Unbind the modules and let go of the connection. Idempotent."""
        async with self._turn:  # what is being opened is there to be closed then
            scope, self._scope = self._scope, None
        if self._binding is not None:
            for module in self._modules:
                module.unbind(self._binding)
            self._binding = None
        self._handles.clear()
        if scope is not None:
            scope.life.over = True
            if self._given is None:
                await scope.backend.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

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
        if found is None:
            found = self._handles[key] = JobHandle(self._open(), address, declared)
        return found

    async def trigger_many(
        self, requests: Iterable[TriggerRequest], *, timeout: DurationLike | None = None
    ) -> list[JobRun[Any] | TriggerError]:
        """A run, or what went wrong, for each request in their order; one bad request spoils no other.

        `timeout` counts from the last trigger confirmed: after so long without one, what is left is not sent.
        """
        return await trigger_many(requests, self._find, self._open().deadline(timeout))

    def run(self, module: str, job: str, run_id: str) -> JobRun[Any]:
        """A run by its names, to follow or to cancel; nothing is read yet.

        Raises:
            InvalidNameError: no run can be called so.
        """
        return JobRun(self._open(), Triggered(RunKey(*check_address(module, job), safe_run_id(run_id))))

    def _find(self, job: JobName) -> JobHandle[Any, Any]:
        return self.get_job(*job) if isinstance(job, tuple) else self.get_job(job)

    def _open(self) -> Scope:
        if self._scope is None:
            raise ClientError(
                "this client is not connected; write `async with JobClient(...) as client:`, "
                "or call `await client.connect()` first"
            )
        return self._scope


async def open_scope(nats: Any, project: str, settings: ClientSettings) -> Scope:
    """One project over a new connection, or over an open nats-py client.

    Raises:
        BrokerUnavailable, AccessDenied: not reachable, or not let in.
    """
    target = nats if isinstance(nats, OpenClient) else connect_options(nats)
    return _scope_of(await open_backend(target, project, name="jetjobs client"), project, settings)


def _scope_of(backend: Backend, project: str, settings: ClientSettings) -> Scope:
    lookup = JobLookup(backend.catalog, project)
    return Scope(backend, project, settings.timeout.total_seconds(), settings.max_payload, lookup)


def _project(project: str | None, backend: Backend | None) -> str:
    return backend.broker.project if project is None and backend is not None else resolve_project(project)
