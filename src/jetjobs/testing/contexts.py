"""A context for a handler that a test calls itself: no host, no broker, no loop."""

from __future__ import annotations

from typing import Any, TypeVar

from jetjobs._clock import SystemClock
from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.models import BY_HAND, JobAddress, LogLine, Progress, RunRecord, RunStatus, TriggerInfo
from jetjobs.context import CancelReason, JobContext, Journal
from jetjobs.job import Job
from jetjobs.testing.children import RecordedChild, RecordingChildren

S = TypeVar("S")

_CLOCK = SystemClock()
_NO_JOB = JobAddress("test", "handler")


class HandlerContext(JobContext[S]):
    """A `JobContext` that shows what the handler said, and can tell it to stop."""

    __slots__ = ("children",)

    children: list[RecordedChild]

    def __init__(self, record: RunRecord, *, payload: Any, state: S) -> None:
        self.children = []
        super().__init__(
            record,
            payload=payload,
            state=state,
            journal=Journal(),
            clock_now=_CLOCK.now,
            children=RecordingChildren(record, self.children),
        )

    @property
    def logs(self) -> list[LogLine]:
        """What `ctx.log` was given, in order."""
        return self._journal.logs

    @property
    def last_progress(self) -> Progress | None:
        """What `ctx.progress` was given last."""
        return self._journal.progress

    @property
    def saved_checkpoint(self) -> Any:
        """What `ctx.checkpoint` was given last, as the next attempt would find it."""
        body = self._journal.checkpoint
        return None if body is None else body.value

    def cancel(self, reason: CancelReason = "cancel") -> None:
        """Tell the handler to stop, for it to find when it looks. A host also cancels the task of an `async def`."""
        self._journal.cancel_reason = reason


def make_context(
    payload: Any = None,
    *,
    job: Job[Any, Any] | None = None,
    state: S = None,
    attempt: int = 1,
    max_attempts: int | None = None,
    trigger: TriggerInfo = BY_HAND,
    last_checkpoint: Any = None,
    run_id: str = "test-run",
) -> HandlerContext[S]:
    """A context to call a handler with: `await send_invoice(make_context(), Invoice(id=7))`.

    `job` gives module, name and number of attempts, and has the payload checked into `ctx.payload`.

    Raises:
        PayloadInvalidError: the payload doesn't fit the job.
        PayloadError: the checkpoint can't be stored.
    """
    address = _NO_JOB if job is None else job.address
    most = max_attempts if max_attempts is not None else 1 if job is None else job.policy.max_attempts
    now = _CLOCK.now()
    record = RunRecord(
        run_id=run_id,
        module=address.module,
        job=address.job,
        status=RunStatus.RUNNING,
        starts=attempt,
        max_attempts=max(most, attempt),
        trigger=trigger,
        checkpoint_body=None if last_checkpoint is None else Body(codec.encode(last_checkpoint, path="checkpoint")),
        created_at=now,
        started_at=now,
    )
    return HandlerContext(record, payload=payload if job is None else job.check_payload(payload), state=state)
