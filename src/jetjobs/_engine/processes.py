"""A `def` handler in a child process, which can be killed for certain.

An order to stop sets `ctx.cancelled` in the child at once; SIGTERM after the grace raises `JobInterrupted` in it, as
in a thread; SIGKILL after another grace ends it whatever it does. The slot is free when the process is gone.

A thread of the host talks with the child. Hooks stay on the event loop, where the module's state was made.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.completion import Ending, Raised, Returned
from jetjobs._core.models import LogLine, Progress
from jetjobs._core.wire import pack_record
from jetjobs._engine.child_endings import died, error_of, how, is_death
from jetjobs._engine.execution import describe
from jetjobs._engine.frames import Call, read_ending, read_fields
from jetjobs._engine.guard import passed
from jetjobs._engine.isolation import find_target
from jetjobs._engine.relay import Relay
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError, PayloadInvalidError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from jetjobs._clock import Timer
    from jetjobs._core.bodies import ClaimCheck
    from jetjobs._core.models import RunRecord
    from jetjobs._engine.children import Child
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.execution import Verdict
    from jetjobs._engine.held import HeldRun
    from jetjobs._engine.hosted import HostedJob
    from jetjobs.context import JobContext

log = get_logger("jetjobs.engine")

LAST_MOMENT = 1.0  # seconds between a link's end and its process's
_numbers = itertools.count(1)
_LEVELS = frozenset({"debug", "info", "warning", "error", "critical"})


async def run_isolated(
    engine: Engine, hosted: HostedJob, held: HeldRun, *, verdict: Verdict, context: JobContext[Any]
) -> Ending:
    """Run a claimed run's handler in a child; returns when no code of the attempt runs any more."""
    if held.record is None:
        msg = "only a claimed run is executed"
        raise AssertionError(msg)
    execution = held.execution = ProcessExecution(verdict, context, held, engine)
    body = held.record.payload_body
    if body is not None and body.claim is not None:
        try:
            body = await _fetched(engine, held, body, body.claim)
        except (BrokerError, PayloadInvalidError) as error:
            execution.close()
            return Raised(describe(error))
    call = _call_for(hosted, held.record, body, engine.backend.broker.now())
    guard = engine.children.guard
    guard.watch(execution, engine.settings.ack_wait.total_seconds() / 24)
    try:
        ending = await execution.call(hosted, call)
    finally:
        guard.forget(execution)
    if is_death(ending) and passed(execution.told_until):
        # By the guard most likely: this host stood still, and the run may be another's.
        log.error("run_fenced", run=str(held.key), unconfirmed_s=round(engine.clock.monotonic() - held.confirmed_at, 1))
        held.stop("fenced")
    return ending


async def _fetched(engine: Engine, held: HeldRun, body: Body, claim: ClaimCheck) -> Body:
    """The bytes as they were fetched to be validated; the record may have come to name others meanwhile."""
    kept, held.fetched = held.fetched, None
    data = kept.data if kept is not None and kept.claim == claim else await engine.backend.payloads.get(claim)
    return Body(data, body.encoding)


def _call_for(hosted: HostedJob, record: RunRecord, body: Body | None, now: datetime) -> Call:
    """What the child is told of a run; what no handler can ask for stays here."""
    brief = replace(record, logs=(), attempts=(), payload_body=None, result_body=None, error=None)
    return Call(
        next(_numbers),
        find_target(hosted.module, hosted.job),
        pack_record(brief),
        body,
        has_state=hosted.state is not None,
        offset=now - datetime.now(UTC),
    )


class ProcessExecution:
    """A `def` handler in a child process. `stop` needs nobody who hears that it is ignored: it can't be."""

    def __init__(
        self,
        verdict: Verdict,
        context: JobContext[Any],
        held: HeldRun,
        engine: Engine,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._verdict = verdict
        self._journal = verdict.journal
        self._grace = engine.settings.interrupt_grace.total_seconds()
        self._context = context
        self._clock = engine.clock
        self._threads = engine.threads
        self._children = engine.children
        self._held = held
        # As renewal fences; and on the guard's clock.
        self._fence_after = (
            engine.settings.ack_wait.total_seconds() * 2 / 3 + time.monotonic() - engine.clock.monotonic()
        )
        self.told_until = math.inf
        self._relay = Relay(context, engine.tasks, self._answer)
        self._lock = threading.Lock()  # guards the next four, which both threads use
        self._child: Child | None = None
        self._number = 0
        self._listening = False
        self._strength = 0
        self._kept: Child | None = None  # the thread's alone
        self._over = False
        self._timer: Timer | None = None
        self._hook: asyncio.Task[Any] | None = None

    def allowance(self) -> tuple[int, float] | None:
        """The child, and until when it may run without news: as long as its host would let it. From any thread."""
        child = self._child
        if child is None or not child.alive():
            return None  # of a dead one, too: told of once more, its death would read as the handler's own
        return child.process.pid, self._held.confirmed_at + self._fence_after

    # ------------------------------------------------------------------ loop

    async def call(self, hosted: HostedJob, call: Call) -> Ending:
        """Run hooks and handler and say how it ended; returns only when no code of the attempt runs any more."""
        try:
            module = hosted.module
            if not module.has_hooks:
                return await self._in_child(call)
            raised = await self._hooked(module.run_before(self._context))
            if raised is not None:
                return self._verdict.raised(raised)
            ending = await self._in_child(call)
            raised = await self._hooked(module.run_after(self._context, error_of(ending, self._journal.cancel_reason)))
            return ending if raised is None else self._verdict.raised(raised)
        finally:
            self.close()

    def close(self) -> None:
        """No code of the attempt runs any more: orders have nothing to strike."""
        self._over = True
        self._relay.close()
        if self._timer is not None:
            self._timer.cancel()

    async def _hooked(self, hook: Coroutine[Any, Any, None]) -> BaseException | None:
        """What the hook raised; it is cancelled when an order to stop finds it running."""
        task = self._hook = self._loop.create_task(hook)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            self._hook = None
        return asyncio.CancelledError() if task.cancelled() else task.exception()

    async def _in_child(self, call: Call) -> Ending:
        if self._journal.cancel_reason is not None:
            return self._verdict.stopped(self._journal.cancel_reason)
        ended: asyncio.Future[Ending] = self._loop.create_future()
        thread = self._threads.take()
        self._children.busy += 1

        def settle(ending: Ending) -> None:
            self._children.busy -= 1
            self._threads.give_back(thread)
            if not ended.done():
                ended.set_result(ending)

        thread.calls.put(partial(self._in_thread, call, settle))
        return await ended

    def stop(self, reason: str) -> None:
        """Tell the child at once; SIGTERM after the grace, SIGKILL after another. A fenced one is killed at once."""
        if self._journal.cancel_reason is None or reason == "fenced":
            self._journal.cancel_reason = reason
        if self._over:
            return
        if reason == "fenced":
            self._strength = 1
            self._strike()
        elif self._timer is None:
            with self._lock:
                self._tell_reason()
            self._timer = self._clock.call_later(self._grace, self._strike)

    def _strike(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._hook is not None:
            self._hook.cancel()
        with self._lock:
            self._strength += 1
            if self._child is not None:
                self._child.terminate() if self._strength == 1 else self._child.kill()
        self._timer = self._clock.call_later(self._grace, self._strike)

    def _answer(self, frame: bytes) -> None:
        with self._lock:
            if self._child is not None and self._listening:
                self._child.tell([frame])

    def _tell_reason(self) -> None:
        """Only to a child that listens: its side of the link is empty then, so this can't block."""
        if self._child is not None and self._listening and self._journal.cancel_reason is not None:
            self._child.tell([codec.encode(["stop", self._number, self._journal.cancel_reason])])

    # ---------------------------------------------------------------- thread

    def _in_thread(self, call: Call, settle: Any) -> None:
        try:
            ending = self._converse(call)
        except Exception as error:  # noqa: BLE001 - a system that gives no process, or a handler that wrote to the link
            ending = Raised(describe(error))
            broken = self._child
            self._release()
            if broken is not None:
                self._children.end(broken)
        try:
            self._loop.call_soon_threadsafe(settle, ending)
        except RuntimeError:
            return  # The loop is closed: the process is ending, and its children with it.
        finally:
            if self._kept is not None:
                self._children.give_back(self._kept)

    def _converse(self, call: Call) -> Ending:
        key = call.target.key
        warm = self._children.take(key)
        ending = None if warm is None else self._talk(warm, call)
        if ending is None:
            # None was warm, or it died as it was asked, its handler not started: that is nobody's failed attempt.
            ending = self._talk(self._children.spawn(key), call)
        return ending or died("its process died before the handler could start")

    def _talk(self, child: Child, call: Call) -> Ending | None:
        """How the handler ended; `None` when the child died before it was started."""
        with self._lock:
            self._child, self._number, self._listening = child, call.number, False
            if self._strength:
                child.kill()
        self._children.guard.look()
        started = False
        child.tell(call.frames())
        while (frame := child.receive()) is not None:
            match frame:
                case ["started"]:
                    started = True
                    with self._lock:
                        self._listening = True
                        self._tell_reason()
                case ["ended", retire, ending]:
                    return self._finished(child, retire=retire, ending=read_ending(ending))
                case ["ask" | "more", *_]:
                    self._loop.call_soon_threadsafe(self._relay.heard, frame)
                case _:
                    self._note(frame)
        return self._lost(child, started=started)

    def _release(self) -> int:
        """From here on no order reaches the child; how hard it was struck before."""
        with self._lock:
            self._child = None
            return self._strength

    def _finished(self, child: Child, *, retire: bool, ending: Ending) -> Ending:
        if self._release() or retire:
            self._children.end(child)  # A signal may be on its way to it: the next run must not meet it.
        else:
            self._kept = child  # and not where an order finds it: the next run must not meet that either
        if isinstance(ending, Returned) and self._journal.cancel_reason == "timeout":
            return replace(ending, late=True)
        return ending

    def _lost(self, child: Child, *, started: bool) -> Ending | None:
        self._release()
        code = self._children.end(child, LAST_MOMENT)
        if self._journal.cancel_reason is not None:
            return self._verdict.stopped(self._journal.cancel_reason)
        return died(how(code)) if started else None

    def _note(self, frame: list[Any]) -> None:
        journal = self._journal
        match frame:
            case ["log", at, level, message, fields]:
                journal.add(LogLine(at, level, message, read_fields(fields)))
            case ["progress", done, total, message]:
                journal.progress = Progress(done, total, message)
            case ["checkpoint", data]:
                journal.checkpoint = Body(data)
            case ["said", method, event, fields]:
                self._write(method if method in _LEVELS else "info", event, read_fields(fields))
                return
            case _:
                log.warning("child_said_nonsense", kind=str(frame)[:80])
                return
        journal.changed = True

    def _write(self, method: str, event: str, fields: dict[str, Any]) -> None:
        try:
            getattr(self._context.logger, method)(event, **fields)
        except Exception:  # A listener: the host's own logging is no reason to lose the run.
            log.exception("log_line_lost")
