"""`JobRun` for callers that block."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Self, TypeVar

from jetjobs._client.blocking import Blocking, BlockingView, Line, time_left
from jetjobs._client.job_run import JobRun as AsyncRun
from jetjobs._client.job_run import over
from jetjobs._client.publishing import Triggered
from jetjobs._client.scope import Scope
from jetjobs._core.durations import DurationLike
from jetjobs._core.models import RunRecord

R = TypeVar("R")


class JobRun(BlockingView[AsyncRun[R]]):
    """One run; its calls block. Usable from any thread, and in processes forked later.

    `duplicate`: the idempotency key already had it; `payload_differs`: with another payload than was given now;
    `no_host`: it is stored, but no live host took runs of its job a moment ago.
    `paused`: it is stored, and waits until somebody resumes its job.
    """

    __slots__ = ("duplicate", "key", "no_host", "paused", "payload_differs")

    def __init__(self, line: Line, triggered: Triggered, twin: Callable[[Scope], AsyncRun[R]]) -> None:
        super().__init__(line, twin)
        self.key, self.duplicate, self.payload_differs, self.no_host, self.paused = triggered

    @classmethod
    def of(cls, line: Line, run: AsyncRun[R]) -> Self:
        """An async run for callers that block."""
        triggered = Triggered(run.key, run.duplicate, run.payload_differs, run.no_host, run.paused)
        return cls(line, triggered, partial(over, run))

    @property
    def run_id(self) -> str:
        """The run's id, unique within its job."""
        return self.key.run_id

    @property
    def module(self) -> str:
        """The module of its job."""
        return self.key.module

    @property
    def job(self) -> str:
        """The job it is a run of."""
        return self.key.job

    def __repr__(self) -> str:
        return f"JobRun({str(self.key)!r})"

    status = Blocking(AsyncRun[Any].status)
    record = Blocking(AsyncRun[Any].record)
    cancel = Blocking(AsyncRun[Any].cancel)
    reschedule = Blocking(AsyncRun[Any].reschedule)

    def wait(self, timeout: DurationLike | None = None) -> RunRecord:
        """The record once the run has ended, whatever the outcome; a large result is fetched.

        Without a timeout it waits as long as the run takes, through outages too. Ctrl-C ends the wait, not the run.

        Raises:
            TimeoutError: not ended in time.
            RunNotFound: neither a record nor a message of it.
        """
        return self._line.call(lambda scope, left: self._over(scope).wait(time_left(timeout, left)), timeout)

    def result(self, timeout: DurationLike | None = None) -> R:
        """What the handler returned, once the run has ended; as the handler's return type where a `Job` is at hand.

        Raises:
            RunFailed, RunTimedOut, RunCancelled, RunSkipped, RunMissed: it ended without a value; has `.record`.
            TimeoutError: not ended in time.
            RunNotFound: neither a record nor a message of it.
            PayloadInvalidError: retention has let the value go.
        """
        return self._line.call(lambda scope, left: self._over(scope).result(time_left(timeout, left)), timeout)
