"""A host's own way to ask for runs: children of what it runs, and runs for callers at the gateway."""

from __future__ import annotations

from typing import Any, cast

from jetjobs._client.blocking import BorrowedLoop
from jetjobs._client.blocking_run import JobRun as BlockingRun
from jetjobs._client.calls import Deadline
from jetjobs._client.handle import JobHandle
from jetjobs._client.job_run import JobRun
from jetjobs._client.scope import Scope
from jetjobs._core.durations import DurationLike, InstantLike
from jetjobs._core.models import JobAddress, RunKey, RunRecord, TriggerInfo
from jetjobs._core.run_ids import check_key, run_id_for_child
from jetjobs._core.triggering import PLAIN, Asked, Target, check_options
from jetjobs._log import get_logger
from jetjobs.job import Job, address_of

SUBMIT_WITHIN = 5.0
"""Seconds for a gateway's caller: those who ask wait about as long."""

_logger = get_logger("jetjobs.client")


class HostAsking:
    """Asks for runs over the connection of a host. Made on the event loop on which the host runs."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.line = BorrowedLoop(scope)
        self._handles: dict[JobAddress | Target | tuple[int, JobAddress], JobHandle[Any, Any]] = {}

    def children_of(self, parent: RunRecord) -> Children:
        """What triggers the children of one start of a run."""
        return Children(self, parent)

    async def submit(self, job: Job[Any, Any], payload: Any, key: str | None) -> JobRun[Any]:
        """Have a run stored for somebody outside; the payload fits the handler."""
        asked = PLAIN if key is None else check_options(Asked(idempotency_key=key))
        return await self.handle(job).trigger_checked(payload, asked, self._scope.within(SUBMIT_WITHIN))

    def handle(self, job: object, *, oldest_name: bool = False) -> JobHandle[Any, Any]:
        """A job to trigger: by its `Job`, as `"module.job"`, a pair of names, or a `Target` checked elsewhere.

        With `oldest_name` a renamed `Job` is triggered under the name that an older release has for it, too.

        Raises:
            InvalidNameError: no job can be called so.
        """
        declared = cast("Job[Any, Any]", job) if isinstance(job, Job) else None
        schema: str | None = None
        if declared is not None:
            address = declared.origin if oldest_name else declared.address
            key: JobAddress | Target | tuple[int, JobAddress] = id(declared), address
        elif isinstance(job, Target):
            key, address, schema = job, job.address, job.schema
        else:
            key = address = address_of(cast("object", job))
        found = self._handles.get(key)
        if found is None:
            found = self._handles[key] = JobHandle(self._scope, address, declared, schema=schema)
        return found

    def deadline(self) -> Deadline:
        """The end of a call that begins now."""
        return self._scope.deadline()


class Children:
    """Triggers the children of one start of a run; implements `context.ChildTrigger`.

    Children without a key are counted anew in each attempt.
    """

    __slots__ = ("_asking", "_counts", "_parent")

    def __init__(self, asking: HostAsking, parent: RunRecord) -> None:
        self._asking = asking
        self._parent = parent
        self._counts: dict[JobAddress, int] | None = None

    async def trigger_child(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: DurationLike | None = None,
        at: InstantLike | None = None,
    ) -> JobRun[Any]:
        """The child's run, new or the one an earlier attempt made."""
        # An attempt on a host of another release must come to the same child.
        handle = self._asking.handle(job, oldest_name=True)
        handle.check(payload)
        asked = check_options(Asked(delay=delay, at=at))
        # Counted before the first await: children asked for at once keep their order.
        parent = self._parent.run_key
        if self._counts is None:
            self._counts = {}
        child = child_of(parent, handle.address, key, self._counts)
        info = TriggerInfo("child", parent_run_id=parent.run_id)
        run = await handle.trigger_named(child, info, payload, asked=asked, deadline=self._asking.deadline())
        if run.payload_differs:
            _logger.warning("child_payload_differs", parent=str(parent), child=str(child), key=key)
        return run

    def trigger_child_blocking(self, job: Any, payload: Any = None, **options: Any) -> BlockingRun[Any]:
        """The same from the thread of a plain handler; the run's calls block.

        Raises:
            BlockingCallError: this thread runs an event loop.
        """
        line = self._asking.line
        run = line.call(lambda _scope, _left: self.trigger_child(job, payload, **options))
        return BlockingRun[Any].of(line, run)


def child_of(parent: RunKey, address: JobAddress, key: str | None, counts: dict[JobAddress, int]) -> RunKey:
    """The run a parent's child is: the one of its key, or the next of its job, which goes into `counts`.

    The n-th of a job without a key has the same id in each attempt.

    Raises:
        InvalidNameError: no key can be so.
    """
    if key is None:
        named: str | int = counts.get(address, 0) + 1
        counts[address] = named
    else:
        named = check_key(key)
    return RunKey(*address, run_id_for_child(parent, *address, named))
