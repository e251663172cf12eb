"""One attempt under way: a handler called, told to stop, and its end turned into an ending.

An order to stop is given once and repeated every grace until the code has gone; a handler that ignores it for the
grace is reported, so that its outcome can be recorded while it still occupies its slot.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.completion import (
    Cancelled,
    Ending,
    Raised,
    Returned,
    ShutDown,
    Skipped,
    Snoozed,
    TimedOut,
)
from jetjobs._core.durations import duration
from jetjobs._core.models import RunError
from jetjobs._core.texts import reason as short
from jetjobs._core.texts import run_error
from jetjobs._engine.forks import leave_if_forked, lineage
from jetjobs.errors import ConfigError, PayloadError
from jetjobs.outcomes import Discard, JobInterrupted, Outcome, RetryAfter, Skip, Snooze

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import timedelta
    from types import TracebackType

    from jetjobs._clock import Clock, Timer
    from jetjobs._core.policy import JobPolicy
    from jetjobs.context import Journal


_OURS = str(Path(__file__).parents[1]) + os.sep


class Execution(Protocol):
    """A handler under way."""

    def stop(self, reason: str) -> None:
        """Order the handler to stop. The first reason stays, but `fenced` overrides the others."""
        ...


class Verdict:
    """Turns what came out of a handler into an ending, given the policy and the order to stop, if any."""

    __slots__ = ("_policy", "journal")

    def __init__(self, policy: JobPolicy, journal: Journal) -> None:
        self._policy = policy
        self.journal = journal

    def returned(self, value: Any) -> Ending:
        """The ending of a handler that returned `value`."""
        late = self.journal.cancel_reason == "timeout"
        if value is None:
            return Returned(late=True) if late else _NOTHING_RETURNED
        try:
            data = codec.encode(value, path="result")
        except PayloadError as error:
            return Raised(run_error(type(error).__name__, f"result not serialisable: {error}"), again=False)
        return Returned(Body(data), late=late)

    def raised(self, error: BaseException) -> Ending:
        """The ending of a handler that raised."""
        try:
            return self._judged(_unwrapped(error))
        except BaseException as worse:  # noqa: BLE001 - reasons and delays are the user's objects, hostile ones too
            return Raised(describe(worse), again=False)

    def _judged(self, error: BaseException) -> Ending:
        reason = self.journal.cancel_reason
        if reason is not None and not isinstance(error, Skip):
            return self.stopped(reason, error)
        match error:
            case Skip(reason=text):
                return Skipped(short(str(text)))
            case Discard(reason=text):
                return Raised(run_error("Discard", str(text)), again=False)
            case Snooze(delay=delay):
                return self._delayed(delay, error)
            case RetryAfter(delay=delay, reason=text):
                return self._delayed(delay, error, text)
            case _:
                return Raised(describe(error, of_handler=True), again=self._again(error))

    def _again(self, error: BaseException) -> bool:
        if isinstance(error, asyncio.CancelledError):
            # Nobody ordered it: something the handler awaited was cancelled, which is a failure like any other.
            return Exception in self._policy.retry_on
        return isinstance(error, self._policy.retry_on) and not isinstance(error, self._policy.discard_on)

    def _delayed(self, delay: timedelta | float | str, error: BaseException, text: str = "") -> Ending:
        try:
            span = duration(delay, f"the delay of {type(error).__name__}")
        except ConfigError as wrong:
            return Raised(run_error(type(wrong).__name__, str(wrong)), again=False)
        if isinstance(error, Snooze):
            return Snoozed(span)
        return Raised(run_error("RetryAfter", str(text)), after=span)

    def stopped(self, reason: str, error: BaseException | None = None) -> Ending:
        """The ending of a handler that was ordered to stop, whatever it raised on its way out."""
        ordered = error is None or isinstance(error, asyncio.CancelledError | JobInterrupted)
        detail = "" if ordered else f"; while stopping: {describe(error)}"
        match reason:
            case "timeout":
                limit = self._policy.timeout
                seconds = f" after {limit.total_seconds():g} s" if limit is not None else ""
                return TimedOut(run_error("TimedOut", f"timed out{seconds}{detail}"))
            case "shutdown":
                return ShutDown(run_error("HostShutdown", f"its host was shut down{detail}"))
            case _:
                return Cancelled()


_NOTHING_RETURNED = Returned()


def _unwrapped(error: BaseException) -> BaseException:
    """The outcome that was raised inside a handler's task group, which wraps it; else the error as it is."""
    inner = error
    while isinstance(inner, BaseExceptionGroup):
        grouped = cast("tuple[BaseException, ...]", inner.exceptions)
        if len(grouped) != 1:
            break
        inner = grouped[0]
    return inner if isinstance(inner, Outcome) else error


def shown(error: BaseException) -> str:
    """The exception's text; a fallback when its `__str__` fails, for that is the user's code."""
    try:
        return str(error)
    except BaseException as worse:  # noqa: BLE001
        return f"<its text can't be shown: {type(worse).__name__}>"


def describe(error: BaseException | None, *, of_handler: bool = False) -> RunError:
    """Class, text and traceback of an exception, each cut to size; hostile `__str__`s get a fallback text.

    `of_handler` leaves out the frames of the engine that called the handler: they are every traceback's first.
    """
    if error is None:
        return RunError("Unknown")
    message = shown(error)
    try:
        frames = _from_handler_on(error.__traceback__) if of_handler else error.__traceback__
        lines = traceback.format_exception(type(error), error, frames, limit=40)
        text = "".join(lines)
    except BaseException as worse:  # noqa: BLE001
        text = f"<its traceback can't be shown: {type(worse).__name__}>"
    return run_error(type(error).__name__, message, text)


def _from_handler_on(frames: TracebackType | None) -> TracebackType | None:
    inner = frames
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OURS):
        inner = inner.tb_next
    return inner or frames  # an argument that doesn't fit is an error without a frame of the handler's


class TaskExecution:
    """An `async def` handler, awaited in its run's own task; orders to stop are cancellations of that task.

    A task of its own per handler would cost a tenth of the throughput. The price is `on_ignored`: while the
    handler swallows its cancellation the run's task is inside it, so somebody else must record the outcome.
    """

    __slots__ = (
        "_cancels",
        "_clock",
        "_foreign",
        "_grace",
        "_ignored_once",
        "_lineage",
        "_on_ignored",
        "_over",
        "_task",
        "_timer",
        "_verdict",
    )

    def __init__(
        self,
        task: asyncio.Task[Any] | None,
        verdict: Verdict,
        on_ignored: Callable[[], None],
        *,
        grace: float,
        clock: Clock,
    ) -> None:
        self._verdict = verdict
        self._grace = grace
        self._clock = clock
        self._on_ignored = on_ignored
        self._ignored_once = False
        self._lineage = lineage()
        self._over = False
        self._cancels = 0
        self._foreign = 0
        self._task = task
        self._timer: Timer | None = None

    async def call(self, coroutine: Coroutine[Any, Any, Any]) -> Ending:
        """Await the handler and say how it ended, whatever it does.

        Raises:
            CancelledError: the run's task was cancelled by somebody else than `stop`: the host is going away.
        """
        try:
            ending = self._verdict.returned(await coroutine)
        except asyncio.CancelledError as error:
            if self._is_abandoned():
                raise
            ending = self._verdict.raised(error)
        except BaseException as error:  # noqa: BLE001 - the fence around a user's handler
            ending = self._verdict.raised(error)
        finally:
            leave_if_forked(self._lineage)
            self._over = True
            if self._timer is not None:
                self._timer.cancel()
            for _ in range(self._cancels):
                if self._task is not None:
                    self._task.uncancel()
        return ending

    def is_in(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether the handler is what that task awaits."""
        return task is not None and task is self._task

    def _is_abandoned(self) -> bool:
        return self._task is not None and self._task.cancelling() > self._cancels + self._foreign

    def stop(self, reason: str) -> None:
        """Cancel the handler, and again every grace for as long as it swallows that."""
        journal = self._verdict.journal
        if journal.cancel_reason is None or reason == "fenced":
            journal.cancel_reason = reason
        if self._timer is None:
            self._cancel()

    def _cancel(self) -> None:
        if self._over or self._task is None:
            return
        # What the handler's own libraries cancelled before, and it survived, is no sign that the host goes away.
        self._foreign = self._task.cancelling() - self._cancels
        self._cancels += 1
        self._task.cancel()
        self._timer = self._clock.call_later(self._grace, self._ignored)

    def _ignored(self) -> None:
        if not self._over and not self._ignored_once:
            self._ignored_once = True
            self._on_ignored()
        self._cancel()
