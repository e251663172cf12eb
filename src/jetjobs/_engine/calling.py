"""One attempt of one job: its handler called under the timeout, between the module's hooks, until its code has gone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from jetjobs._core.completion import Raised
from jetjobs._engine.execution import TaskExecution, Verdict, describe
from jetjobs._engine.forks import leave_if_forked, lineage
from jetjobs._engine.isolation import is_isolated
from jetjobs._engine.processes import run_isolated
from jetjobs._engine.threads import NoThread, ThreadExecution
from jetjobs._log import get_logger
from jetjobs.context import JobContext, Journal

if TYPE_CHECKING:
    from jetjobs._core.completion import Ending
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.finishing import Finishing
    from jetjobs._engine.held import HeldRun
    from jetjobs._engine.hosted import HostedJob
    from jetjobs._engine.settling import Settling

log = get_logger("jetjobs.engine")


class Calling:
    """Calls one job's handler."""

    __slots__ = ("_engine", "_finishing", "_grace", "_hosted", "_settling", "_timeout")

    def __init__(self, engine: Engine, hosted: HostedJob, settling: Settling, finishing: Finishing) -> None:
        self._engine = engine
        self._hosted = hosted
        self._settling = settling
        self._finishing = finishing
        self._grace = engine.settings.interrupt_grace.total_seconds()
        timeout = hosted.job.policy.timeout
        self._timeout = None if timeout is None else timeout.total_seconds()

    async def call(self, held: HeldRun, payload: Any) -> Ending:
        """Call the handler; returns when no code of it runs any more."""
        engine, record = self._engine, held.record
        if record is None:
            msg = "only a claimed run is executed"
            raise AssertionError(msg)
        journal = held.journal = Journal()
        verdict = Verdict(self._hosted.job.policy, journal)
        ordered = "cancel" if record.cancel_asked else held.ordered
        if ordered is not None:  # while the claim was in question
            return verdict.stopped(ordered)
        held.earlier_logs = record.logs
        context = JobContext(
            record,
            payload=payload,
            state=self._hosted.state,
            journal=journal,
            clock_now=engine.backend.broker.now,
            children=None if engine.asking is None else engine.asking.children_of(record),
        )
        held.beat_at = engine.clock.monotonic()
        timer = None
        if self._timeout is not None:
            timer = engine.clock.call_later(self._timeout, lambda: held.stop("timeout"))
        try:
            if self._hosted.job.is_async:
                task = TaskExecution(
                    held.task, verdict, lambda: self._ignored(held, verdict), grace=self._grace, clock=engine.clock
                )
                held.execution = task
                hooked = self._hosted.module.has_hooks
                return await task.call(
                    _between_hooks(self._hosted, context) if hooked else self._hosted.job.invoke(context, payload)
                )
            if is_isolated(self._hosted.job):
                return await run_isolated(engine, self._hosted, held, verdict=verdict, context=context)
            return await self._in_thread(held, verdict, context)
        except NoThread as refused:
            return Raised(describe(refused))
        finally:
            if timer is not None:
                timer.cancel()

    async def _in_thread(self, held: HeldRun, verdict: Verdict, context: JobContext[Any]) -> Ending:
        engine = self._engine
        thread = ThreadExecution(
            verdict,
            self._grace,
            lambda: self._ignored(held, verdict),
            clock=engine.clock,
            threads=engine.threads,
        )
        held.execution = thread
        try:
            return await thread.call(lambda: _invoke_plain(self._hosted, context, thread))
        except asyncio.CancelledError:
            held.stop("fenced")  # The host lets the run go; its code must not go on beside the next owner's.
            raise

    def _ignored(self, held: HeldRun, verdict: Verdict) -> None:
        """A handler ignores its order to stop: record its outcome now if that is terminal, and wait for it to go.

        RETRYING has to wait until the code has gone, or two attempts could live side by side.
        """
        log.error("handler_ignores_stop", run=str(held.key))
        if not held.fenced and held.early is None:
            ending = verdict.stopped(verdict.journal.cancel_reason or "cancel")
            if self._settling.decide(held, ending).status.is_terminal:
                held.early = self._engine.tasks.start(self._finishing.save(held, ending))


async def _between_hooks(hosted: HostedJob, context: JobContext[Any]) -> Any:
    before, error = lineage(), None
    await hosted.module.run_before(context)
    try:
        return await hosted.job.invoke(context, context.payload)
    except BaseException as raised:
        error = raised
        raise
    finally:
        leave_if_forked(before)
        await hosted.module.run_after(context, error)


def _invoke_plain(hosted: HostedJob, context: JobContext[Any], thread: ThreadExecution) -> Any:
    """In the handler's thread. Hooks run on the event loop, where the module's state was made."""
    if not hosted.module.has_hooks:
        return hosted.job.invoke(context, context.payload)
    module, before, error = hosted.module, lineage(), None
    thread.on_loop(module.run_before(context))
    try:
        return hosted.job.invoke(context, context.payload)
    except BaseException as raised:
        error = raised
        raise
    finally:
        leave_if_forked(before)
        thread.on_loop(module.run_after(context, error))
