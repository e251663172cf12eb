"""One run of one job through the real engine, on a broker in memory: what a host would make of it, without a server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from jetjobs._client.calls import Deadline
from jetjobs._client.handle import JobHandle
from jetjobs._client.lookup import JobLookup
from jetjobs._client.scope import Scope, seconds
from jetjobs._core.durations import DurationLike
from jetjobs._core.models import BY_HAND, LogLine, Progress, RunError, RunKey, RunRecord, RunStatus, TriggerInfo
from jetjobs._core.triggering import PLAIN
from jetjobs._engine.hosting import Hosting, Served
from jetjobs._engine.isolation import find_target, is_isolated
from jetjobs._results import result_reader
from jetjobs.config import HostSettings
from jetjobs.errors import BlockingCallError, ConfigError
from jetjobs.job import Job
from jetjobs.module import Module
from jetjobs.testing.children import RecordedChild, RecordingAsking
from jetjobs.testing.jumping_clock import JumpingClock
from jetjobs.testing.memory_backend import MemoryBackend, memory_backend
from jetjobs.testing.memory_cluster import MemoryCluster

if TYPE_CHECKING:
    from jetjobs.testing.clock import ManualClock

P = TypeVar("P")
R = TypeVar("R")

_PROJECT = "test"
_SETTINGS = HostSettings(drain=0.1)
_CALL = 10.0
_BEYOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class RunOutcome(Generic[R]):
    """What became of a run: its record as a host would have stored it, and what the handler triggered.

    Attributes:
        record: All that is known of the run.
        value: What the handler returned, made again as its return type says; `None` without a success.
        children: The runs it triggered, in order; none of them was run.
        retry_in: The wait before the next start: a retry, or a snooze; `None` when the run has ended.
    """

    record: RunRecord
    value: R | None
    children: tuple[RecordedChild, ...]
    retry_in: timedelta | None

    @property
    def status(self) -> RunStatus:
        """SUCCEEDED, FAILED, TIMED_OUT, SKIPPED, or RETRYING when there is another start to come."""
        return self.record.status

    @property
    def ok(self) -> bool:
        """Whether it SUCCEEDED."""
        return self.record.ok

    @property
    def error(self) -> RunError | None:
        """How the last attempt failed."""
        return self.record.error

    @property
    def skip_reason(self) -> str | None:
        """What `ctx.skip` was given."""
        return self.record.skip_reason

    @property
    def snoozed(self) -> bool:
        """Whether the last start ended with `Snooze`."""
        attempts = self.record.attempts
        return bool(attempts) and attempts[-1].outcome == "SNOOZED"

    @property
    def logs(self) -> tuple[LogLine, ...]:
        """What `ctx.log` was given."""
        return tuple(self.record.logs)

    @property
    def progress(self) -> Progress | None:
        """What `ctx.progress` was given last."""
        return self.record.progress

    @property
    def checkpoint(self) -> Any:
        """What `ctx.checkpoint` was given last."""
        body = self.record.checkpoint_body
        return None if body is None else body.value


async def run_job(
    job: Job[P, R],
    payload: P | None = None,
    *,
    until_end: bool = False,
    module: Module | None = None,
    state: Any = None,
    trigger: TriggerInfo = BY_HAND,
    within: DurationLike = "60s",
) -> RunOutcome[R]:
    """Run a job once as a host does: payload checked and stored, timeout, threads or processes, what comes after.

    One start of the handler; with `until_end` its retries and snoozes too, without the waits between them.
    `state` is `ctx.state`; with `module` instead its lifespan is entered and its hooks are called. `within` is real
    time.

    Raises:
        PayloadInvalidError, PayloadError: the payload doesn't fit, or can't be stored.
        ConfigError: the module isn't the job's, or a child process could not find it.
        TimeoutError: the handler has not ended within so long.
    """
    limit = seconds(within, "within")
    async with _staged(job, module, state) as stage:
        run = await stage.trigger(payload, trigger)
        try:
            async with asyncio.timeout(limit):
                record = await stage.ended_start(run, 1)
                while until_end and not record.status.is_terminal:
                    record = await stage.next_start(run, record)
        except TimeoutError:
            raise TimeoutError(f"{job.address} has not ended within {limit:g} s; give the job a timeout") from None
        return stage.outcome(record)


def run_job_blocking(
    job: Job[P, R],
    payload: P | None = None,
    *,
    until_end: bool = False,
    module: Module | None = None,
    state: Any = None,
    trigger: TriggerInfo = BY_HAND,
    within: DurationLike = "60s",
) -> RunOutcome[R]:
    """`run_job` for a test that is no coroutine.

    Raises:
        BlockingCallError: this thread's event loop is running; await `run_job`.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        run = run_job(job, payload, until_end=until_end, module=module, state=state, trigger=trigger, within=within)
        return asyncio.run(run)
    raise BlockingCallError("an event loop runs in this thread; write await run_job(…)")


@asynccontextmanager
async def _staged(job: Job[P, R], module: Module | None, state: Any) -> AsyncGenerator[_Stage[P, R]]:
    """One that serves, and is closed after."""
    stage = _Stage(job, Served(_module(job, module, state), (job,)))
    try:
        await stage.hosting.prepare(update=True)
        await stage.hosting.start()
        yield stage
    finally:
        await stage.hosting.close()


class _Stage(Generic[P, R]):
    """A host in memory that serves one job."""

    def __init__(self, job: Job[P, R], served: Served) -> None:
        self.job = job
        self.clock = JumpingClock()
        # It asks of its clock what every clock has; that it can be told to advance is for the tests that hold it.
        self.cluster = MemoryCluster(cast("ManualClock", self.clock))
        self.ports: MemoryBackend = memory_backend(self.cluster, _PROJECT)
        self.asking = RecordingAsking()
        self.hosting = Hosting(
            self.ports,
            [served],
            _SETTINGS,
            clock=self.clock,
            host_id="test",
            version=None,
            schedules=False,
            asking=self.asking,
        )
        self._written = asyncio.Event()
        self.cluster.project(_PROJECT).runs.on_put = self._written.set

    async def trigger(self, payload: Any, info: TriggerInfo) -> RunKey:
        """Ask for the run, as a client does that has the job at hand."""
        lookup = JobLookup(self.ports.catalog, _PROJECT)
        scope = Scope(self.ports, _PROJECT, _CALL, _SETTINGS.max_payload, lookup)
        handle = JobHandle(scope, self.job.address, self.job)
        handle.check(payload)
        key = RunKey(*self.job.address, "test-run")
        run = await handle.trigger_named(key, info, payload, asked=PLAIN, deadline=Deadline(_CALL))
        return run.key

    async def ended_start(self, run: RunKey, starts: int) -> RunRecord:
        """The record once so many starts have ended."""
        while True:
            self._written.clear()
            stored = await self.ports.runs.get(run)
            if stored is not None:
                record = stored.record
                if record.status.is_terminal or (record.status is RunStatus.RETRYING and record.starts >= starts):
                    return record
            await self._written.wait()

    async def next_start(self, run: RunKey, record: RunRecord) -> RunRecord:
        """The record once the start it waits for has ended."""
        await self.hosting.engine.tasks.wait_idle(_CALL)  # its next message is stored
        if record.retry_at is not None:
            self.clock.jump(record.retry_at - self.clock.now() + _BEYOND)
        return await self.ended_start(run, record.starts + 1)

    def outcome(self, record: RunRecord) -> RunOutcome[R]:
        """What became of it."""
        read = result_reader(self.job)
        value: Any = record.result if record.ok else None
        return RunOutcome(
            record=record,
            value=value if read is None or value is None else read(value),
            children=tuple(self.asking.made),
            retry_in=_wait(record),
        )


def _wait(record: RunRecord) -> timedelta | None:
    ended_at = record.attempts[-1].finished_at if record.attempts else None
    if record.status.is_terminal or record.retry_at is None or ended_at is None:
        return None
    return record.retry_at - ended_at


def _module(job: Job[Any, Any], module: Module | None, state: Any) -> Module:
    if module is not None:
        if module.jobs.get(job.name) is not job:
            raise ConfigError(f"{job.address} is no job of {module!r}")
        if state is not None:
            raise ConfigError("state and module exclude each other: the module's lifespan gives the state")
    if is_isolated(job):
        find_target(module or _owner(job), job)  # now: the host's own way to it needs the module that declares it
    return module if module is not None else _OneJob(job, state)


class _OneJob(Module):
    """A module of one job of another, with a state of the test's, and without hooks."""

    def __init__(self, job: Job[Any, Any], state: Any) -> None:
        async def lifespan() -> AsyncIterator[Any]:
            yield state

        super().__init__(job.module_name, lifespan=lifespan)
        self._jobs[job.name] = job


def _owner(job: Job[Any, Any]) -> Module:
    home = sys.modules.get(job.handler.__module__)
    for value in [] if home is None else list(vars(home).values()):
        if isinstance(value, Module) and value.jobs.get(job.name) is job:
            return value
    raise ConfigError(
        f"{job.address} runs in a process of its own, which must find it again; write run_job(…, module=…)"
    )
