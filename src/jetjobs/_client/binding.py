"""What the jobs of a client's modules trigger through, so that `await send_invoice.trigger(...)` works."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from jetjobs._client.blocking import BorrowedLoop
from jetjobs._client.blocking_run import JobRun as BlockingRun
from jetjobs._client.handle import JobHandle, asked_of
from jetjobs._client.job_run import JobRun
from jetjobs._client.scope import Scope
from jetjobs.job import Job
from jetjobs.triggered import TriggerOptions


class ClientBinding:
    """Binds jobs to an open client or host, on its running loop."""

    def __init__(self, scope: Scope, find: Callable[[Job[Any, Any]], JobHandle[Any, Any]]) -> None:
        self._scope = scope
        self._find = find
        self._line = BorrowedLoop(scope)

    @property
    def project(self) -> str:
        """The project it triggers in."""
        return self._scope.project

    async def trigger(self, job: Job[Any, Any], payload: Any, **options: Unpack[TriggerOptions]) -> JobRun[Any]:
        """Ask for a run of `job`; the payload is already checked against the handler."""
        deadline = self._scope.deadline(options.get("timeout"))
        return await self._find(job).trigger_checked(payload, asked_of(options), deadline)

    def trigger_blocking(self, job: Job[Any, Any], payload: Any, **options: Unpack[TriggerOptions]) -> BlockingRun[Any]:
        """The same from any thread but the loop's."""
        run = self._line.call(lambda _scope, _left: self.trigger(job, payload, **options))
        return BlockingRun[Any].of(self._line, run)
