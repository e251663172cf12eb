"""`JobRun`: what a caller holds of a run: where it is, how it ended, and how to stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from jetjobs._client.cancelling import Cancelling
from jetjobs._client.publishing import Triggered
from jetjobs._client.reading import Reader
from jetjobs._client.rescheduling import reschedule
from jetjobs._client.scope import Scope, seconds
from jetjobs._client.waiting import wait_for_end
from jetjobs._core.cancelling import CancelResult
from jetjobs._core.durations import DurationLike, InstantLike
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs.errors import (
    PayloadInvalidError,
    RunCancelled,
    RunEnded,
    RunFailed,
    RunMissed,
    RunSkipped,
    RunTimedOut,
)

R = TypeVar("R")

_ENDINGS: dict[RunStatus, type[RunEnded]] = {
    RunStatus.FAILED: RunFailed,
    RunStatus.TIMED_OUT: RunTimedOut,
    RunStatus.CANCELLED: RunCancelled,
    RunStatus.SKIPPED: RunSkipped,
    RunStatus.MISSED: RunMissed,
}


class JobRun(Generic[R]):
    """One run.

    `duplicate`: the idempotency key already had it; `payload_differs`: with another payload than was given now;
    `no_host`: it is stored, but no live host took runs of its job a moment ago.
    `paused`: it is stored, and waits until somebody resumes its job.
    """

    __slots__ = ("_read_result", "_scope", "duplicate", "key", "no_host", "paused", "payload_differs")

    def __init__(self, scope: Scope, triggered: Triggered, read_result: Callable[[Any], R] | None = None) -> None:
        self._scope = scope
        self._read_result = read_result
        self.key = triggered.run
        self.duplicate = triggered.duplicate
        self.payload_differs = triggered.payload_differs
        self.no_host = triggered.no_host
        self.paused = triggered.paused

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

    async def status(self, *, timeout: DurationLike | None = None) -> RunStatus:
        """Where the run is now.

        Raises:
            RunNotFound: neither a record nor a message of it.
        """
        return (await self._known(timeout)).status

    async def record(self, *, timeout: DurationLike | None = None) -> RunRecord:
        """Everything known of the run; of one that hasn't started, what its message says.

        Raises:
            RunNotFound: neither a record nor a message of it.
        """
        return await self._known(timeout)

    async def wait(self, timeout: DurationLike | None = None) -> RunRecord:
        """The record once the run has ended, whatever the outcome; a large result is fetched.

        Without a timeout it waits as long as the run takes, through outages too.

        Raises:
            TimeoutError: not ended in time.
            RunNotFound: neither a record nor a message of it.
        """
        limit = None if timeout is None else seconds(timeout, "timeout")
        record = await wait_for_end(self._scope, self.key, limit)
        # The run has ended: what is left is a read like any other, and gets the time of one.
        return await Reader(self._scope).whole(record, self._scope.deadline())

    async def result(self, timeout: DurationLike | None = None) -> R:
        """What the handler returned, once the run has ended; as the handler's return type where a `Job` is at hand.

        Raises:
            RunFailed, RunTimedOut, RunCancelled, RunSkipped, RunMissed: it ended without a value; has `.record`.
            TimeoutError: not ended in time.
            RunNotFound: neither a record nor a message of it.
            PayloadInvalidError: retention has let the value go.
        """
        record = await self.wait(timeout)
        ending = _ENDINGS.get(record.status)
        if ending is not None:
            raise ending(_why(record), record)
        if record.stub:
            raise PayloadInvalidError(f"{self.key} ended long ago, and only how is kept of it: its result has gone")
        value = record.result
        return value if self._read_result is None else self._read_result(value)

    async def cancel(self, *, timeout: DurationLike | None = None) -> CancelResult:
        """Stop the run: it never starts, or its handler is told. Cancelling again is harmless.

        Raises:
            RunNotFound: neither a record nor a message of it; nothing was written.
            AnswerUnknown: not confirmed in time; cancel again.
        """
        return await Cancelling(self._scope, self.key).cancel(self._scope.deadline(timeout))

    async def reschedule(self, at: InstantLike, *, timeout: DurationLike | None = None) -> None:
        """Move a delayed run to another instant; a past one starts it now.

        Raises:
            RunNotFound: no such run.
            ClientError: it isn't SCHEDULED any more, or due within a second.
        """
        await reschedule(self._scope, self.key, at, self._scope.deadline(timeout))

    async def _known(self, timeout: DurationLike | None) -> RunRecord:
        return await Reader(self._scope).known(self.key, self._scope.deadline(timeout))


def over(run: JobRun[R], scope: Scope) -> JobRun[R]:
    """The same run over another connection."""
    # Not a method: users would see it.
    if scope is run._scope:  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        return run
    triggered = Triggered(run.key, run.duplicate, run.payload_differs, run.no_host, run.paused)
    return JobRun(scope, triggered, run._read_result)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _why(record: RunRecord) -> str:
    status = record.status.value.replace("_", " ").lower()
    reason = str(record.error) if record.error is not None else record.skip_reason
    return f"run {record.run_key} {'was' if status in {'cancelled', 'skipped', 'missed'} else 'has'} {status}" + (
        f": {reason}" if reason else ""
    )
