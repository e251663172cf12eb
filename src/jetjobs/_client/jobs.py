"""What a client shows of a project's jobs, and what people can order for them: `client.jobs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from jetjobs._client.calls import read
from jetjobs._client.controlling import look_up, order
from jetjobs._client.scope import Scope
from jetjobs._core.controls import (
    JobControl,
    JobInfo,
    check_actor,
    check_limit,
    job_info,
    override,
    present_name,
    switch,
)
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.durations import DurationLike
from jetjobs._core.models import JobAddress
from jetjobs._core.names import check_address, split_address


class JobsView:
    """The jobs hosts have described in a project, and what people ordered for them.

    Hosts hear of an order at once, or within ten seconds. It is kept until another one comes, through restarts of hosts
    and broker and through deployments. `actor` is kept and shown: who does it.
    """

    def __init__(self, scope: Callable[[], Scope]) -> None:
        self._scope = scope

    async def list(self, *, timeout: DurationLike | None = None) -> list[JobInfo]:
        """All of them, by module and name."""
        scope = self._scope()
        catalog, deadline = scope.backend.catalog, scope.deadline(timeout)
        described = await read(catalog.jobs, deadline, "listing jobs")
        stored = await read(catalog.controls, deadline, "listing jobs")
        controls = {each.control.address: each.control for each in stored}
        return [job_info(each, controls.get(each.address), _of_present(each, controls)) for each in described]

    async def get(self, module: str, job: str | None = None, *, timeout: DurationLike | None = None) -> JobInfo:
        """One job, by two names or as `"module.job"`.

        Raises:
            UnknownJobError: no host ever described it; has `.close_names`.
        """
        scope = self._scope()
        return await look_up(scope, _address(module, job), scope.deadline(timeout))

    async def pause(
        self, module: str, job: str | None = None, *, actor: str | None = None, timeout: DurationLike | None = None
    ) -> JobInfo:
        """Have no run of a job start, on any host, until `resume`. Pausing again is harmless.

        Running ones finish. Triggers are taken and wait, and so do retries and ticks.

        Raises:
            UnknownJobError: no host ever described it; has `.close_names`.
            PermissionMissing: this user may not.
            AnswerUnknown: not confirmed in time; pause again.
        """
        return await self._switch(_address(module, job), paused=True, actor=actor, timeout=timeout)

    async def resume(
        self, module: str, job: str | None = None, *, actor: str | None = None, timeout: DurationLike | None = None
    ) -> JobInfo:
        """Have a paused job go on: what waits starts at once. Resuming again is harmless.

        Raises:
            As `pause`.
        """
        return await self._switch(_address(module, job), paused=False, actor=actor, timeout=timeout)

    async def override(
        self,
        module: str,
        job: str | None = None,
        *,
        max_concurrency: int | None,
        actor: str | None = None,
        timeout: DurationLike | None = None,
    ) -> JobInfo:
        """Have so many runs of a job at once over all hosts, whatever its code declares; `None` ends that.

        A lower limit interrupts nothing: no run starts until enough have ended.

        Raises:
            ConfigError: the limit is no whole number above zero.
            UnknownJobError, PermissionMissing, AnswerUnknown: as `pause`.
        """
        limit, by = check_limit(max_concurrency), check_actor(actor)
        scope = self._scope()

        def decide(control: JobControl, now: datetime) -> JobControl:
            return override(control, limit, actor=by, now=now)

        return await order(scope, _address(module, job), decide, scope.deadline(timeout))

    async def _switch(
        self, address: JobAddress, *, paused: bool, actor: str | None, timeout: DurationLike | None
    ) -> JobInfo:
        scope, by = self._scope(), check_actor(actor)

        def decide(control: JobControl, now: datetime) -> JobControl:
            return switch(control, paused=paused, actor=by, now=now)

        return await order(scope, address, decide, scope.deadline(timeout))


def _of_present(job: JobDescriptor, controls: Mapping[JobAddress, JobControl]) -> JobControl | None:
    present = present_name(job)
    return None if present is None else controls.get(present)


def _address(module: str, job: str | None) -> JobAddress:
    return split_address(module) if job is None else check_address(module, job)
