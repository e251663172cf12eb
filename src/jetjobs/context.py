"""What a handler receives.

`JobContext` is made once per start of a handler, so making one does nothing: values are read from the record when
asked for, a logger is bound when it is first used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, Protocol, cast

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.models import NOTHING, JobAddress, LogLine, Progress, RunRecord, TriggerInfo
from jetjobs._core.texts import MAX_NAME
from jetjobs._journal import Journal as Journal
from jetjobs.errors import JobsNotHosted, PayloadError, PayloadTooLargeError
from jetjobs.outcomes import JobInterrupted, Skip

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # only checkers need the default; nothing is imported at run time

    S = TypeVar("S", default=Any)
else:
    from typing import TypeVar

    S = TypeVar("S")

CancelReason = Literal["cancel", "timeout", "shutdown", "fenced"]

MAX_CHECKPOINT = 64 * 1024
MAX_TEXT = 8 * 1024
MAX_FIELD = 2 * 1024
MAX_FIELDS = 32
_INT_LIMIT = 1 << 63
_LEVELS: Mapping[str, str] = MappingProxyType({
    "debug": "debug", "info": "info", "warning": "warning", "warn": "warning",
    "error": "error", "critical": "critical",
})  # fmt: skip
_STRUCTLOGS_OWN = frozenset({"event", "self"})  # parameters of its methods


class ChildTrigger(Protocol):
    """Triggers runs on behalf of a running one; ids derive from (parent, job, key or ordinal)."""

    async def trigger_child(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | float | None = None,
    ) -> Any:
        """The child's run, new or the one an earlier attempt made."""
        ...

    def trigger_child_blocking(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | float | None = None,
    ) -> Any:
        """The same from the thread of a plain handler."""
        ...


class JobContext(Generic[S]):
    """One start of a handler: which run it is, what it works on, and how to report and to stop.

    Attributes:
        payload: The payload, validated; the handler's second argument too.
        state: What the module's lifespan gave; `None` without one.
    """

    __slots__ = ("_children", "_clock_now", "_journal", "_logger", "_record", "payload", "state")

    payload: Any
    state: S

    def __init__(
        self,
        record: RunRecord,
        *,
        payload: Any,
        state: S,
        journal: Journal,
        clock_now: Callable[[], datetime],
        children: ChildTrigger | None = None,
    ) -> None:
        self._record = record
        self._journal = journal
        self._clock_now = clock_now
        self._children = children
        self._logger: Any = None
        self.payload = payload
        self.state = state

    @property
    def run_id(self) -> str:
        """Id of the run, the same for all its attempts."""
        return self._record.run_id

    @property
    def module(self) -> str:
        """Name of the module."""
        return self._record.module

    @property
    def job(self) -> str:
        """Name of the job within its module."""
        return self._record.job

    @property
    def attempt(self) -> int:
        """Number of this attempt, counted from 1."""
        return self._record.attempt

    @property
    def max_attempts(self) -> int:
        """How many attempts the run has."""
        return self._record.max_attempts

    @property
    def trigger(self) -> TriggerInfo:
        """What asked for the run."""
        return self._record.trigger

    @property
    def last_checkpoint(self) -> Any:
        """What the attempt before this one gave to `checkpoint`; `None` when there was nothing."""
        body = self._record.checkpoint_body
        return None if body is None else body.value

    @property
    def cancelled(self) -> bool:
        """True once this attempt must stop; a long plain handler looks now and then, a coroutine is cancelled."""
        return self._journal.cancel_reason is not None

    @property
    def cancel_reason(self) -> CancelReason | None:
        """Why it must stop: somebody's cancel, its timeout, the host's shutdown, or the run was taken over."""
        return cast("CancelReason | None", self._journal.cancel_reason)

    def raise_if_cancelled(self) -> None:
        """Stop here when the attempt must stop.

        Raises:
            JobInterrupted: with `cancel_reason`; let it pass.
        """
        reason = self._journal.cancel_reason
        if reason is not None:
            raise JobInterrupted(reason)

    def skip(self, reason: str = "") -> NoReturn:
        """End the run as SKIPPED: there was nothing to do."""
        raise Skip(reason)

    @property
    def logger(self) -> Any:
        """A structlog logger that knows module, job, run and attempt; it doesn't write to the record."""
        if self._logger is None:
            import structlog  # noqa: PLC0415 - a process that only declares and triggers doesn't pay for it

            record = self._record
            self._logger = structlog.get_logger("jetjobs.job").bind(
                module=record.module, job=record.job, run_id=record.run_id, attempt=record.attempt
            )
        return self._logger

    def log(self, message: str, /, *, level: str = "info", **fields: Any) -> None:
        """Write a line to the run's record, with the next heartbeat, and to structlog at once.

        `level` is `debug`, `info`, `warning`, `error` or `critical`. A run keeps its first 50 lines and the newest, at
        most 1,000 and 256 KiB. Fields that can't be stored are kept as their `repr`; long ones are cut. Never an error.
        """
        text = message if type(message) is str else _shown(message)
        name = _LEVELS.get(str(level).lower(), "info")
        some = list(fields.items())[:MAX_FIELDS]
        kept = {_cut(key, MAX_NAME): _storable(value) for key, value in some} if some else NOTHING
        self._journal.add(LogLine(self._clock_now(), name, _cut(text, MAX_TEXT), kept))
        # Not the fields as given: a renderer would call their __repr__ unguarded.
        said = {f"{key}_" if key in _STRUCTLOGS_OWN else key: value for key, value in kept.items()}
        from jetjobs._log import say  # noqa: PLC0415 - as structlog itself

        say(self.logger, name, text, said)

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far this attempt is; the record shows the last one said. A `done` that isn't finite says nothing.

        Raises:
            TypeError: `done` or `total` is no number.
        """
        journal, so_far = self._journal, _finite(done)
        if so_far is not None:
            text = None if message is None else _cut(str(message), MAX_FIELD)
            journal.progress = Progress(so_far, None if total is None else _finite(total), text)
            journal.changed = True

    def checkpoint(self, value: Any) -> None:
        """Remember a value for the next attempt, which finds it as `last_checkpoint`. Saved with the heartbeat.

        What was said since the last heartbeat (10 s) is lost when the host dies: be ready to do that part again.

        Raises:
            PayloadError: the value can't be stored; names the path. At most 64 KiB.
        """
        data = codec.encode(value, path="checkpoint")
        if len(data) > MAX_CHECKPOINT:
            raise PayloadTooLargeError(
                f"a checkpoint of {len(data)} bytes is over {MAX_CHECKPOINT}; store the data elsewhere and keep a key"
            )
        self._journal.checkpoint = Body(data)
        self._journal.changed = True

    async def trigger_child(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | float | None = None,
    ) -> Any:
        """The `JobRun` of another job, triggered as a child of this run; a repeated attempt makes no second child.

        `job` is a `Job`, `"module.job"`, or both names. Without `key` children of one job are told apart by their
        order, so ask for them in the same one in each attempt. A child lives on its own: it isn't waited for, and a
        cancel of the parent doesn't reach it.

        Raises:
            PayloadError: the payload can't be stored, or doesn't fit the handler where a `Job` is given.
            UnknownJobError: no host ever described the job.
            TriggerUnconfirmed, BrokerUnavailable: let it fail; the next attempt asks for the same child.
        """
        return await self._family().trigger_child(job, payload, key=key, delay=delay, at=at)

    def trigger_child_blocking(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: timedelta | float | str | None = None,
        at: datetime | float | None = None,
    ) -> Any:
        """`trigger_child` for plain handlers; the run it gives blocks, as those of `jetjobs.sync` do.

        Raises:
            BlockingCallError: this thread runs an event loop.
        """
        return self._family().trigger_child_blocking(job, payload, key=key, delay=delay, at=at)

    def __repr__(self) -> str:
        return f"<JobContext {JobAddress(self.module, self.job)}/{self.run_id} attempt {self.attempt}>"

    def _family(self) -> ChildTrigger:
        if self._children is None:
            raise JobsNotHosted(
                f"trigger_child is not available here: run {self.run_id} of {self.module}.{self.job} has no host "
                "that triggers children; trigger the job itself instead"
            )
        return self._children


def _storable(value: Any) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if type(value) is str:
        return _cut(value, MAX_FIELD)
    try:
        data = codec.encode(value)
    except PayloadError:
        return _shown(value)
    if len(data) > MAX_FIELD:
        return _shown(value)
    # A copy: what is logged doesn't change when the handler changes its list later. And plain JSON, which is all that
    # a log line in a record may hold.
    return codec.to_jsonable(codec.decode(data))


def _finite(value: float) -> float | None:
    """A number as records hold it, whatever class of number it is; `None` when it isn't finite."""
    if type(value) is int and -_INT_LIMIT <= value < _INT_LIMIT:
        return value
    try:
        number = float(value)
    except OverflowError:
        return None
    except ValueError as error:  # a text is no number
        raise TypeError(f"progress takes numbers, not {value!r}") from error
    return number if math.isfinite(number) else None


def _shown(value: object) -> str:
    try:
        return _cut(repr(value), MAX_FIELD)
    except Exception:  # noqa: BLE001 - anybody's __repr__ may raise anything, and a log line is no reason to fail
        return f"<{type(value).__name__} without a repr>"


def _cut(text: str, most: int) -> str:
    if not text.isascii():  # half a character, of a file's name say, could be neither stored nor printed
        text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= most else f"{text[: most - 1]}…"
