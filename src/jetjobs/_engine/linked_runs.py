"""What a handler in a child process triggers, and what it asks of those runs: over the link, done by its host."""

from __future__ import annotations

import asyncio
import itertools
import queue
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from jetjobs._core import codec
from jetjobs._core.cancelling import CancelOutcome, CancelResult
from jetjobs._core.durations import DurationLike, InstantLike, instant, optional_duration
from jetjobs._core.models import RunKey, RunStatus
from jetjobs._core.run_ids import check_key
from jetjobs._core.triggering import Asked, check_options
from jetjobs._core.wire import unpack_record
from jetjobs._engine.frames import read_error
from jetjobs.errors import BlockingCallError, ClientError
from jetjobs.job import Job, address_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetjobs._core.models import JobAddress, RunRecord

_NUMBER = itertools.count(1)


class Asks:
    """The asks of a process, each waited for in the thread that made it."""

    def __init__(self, say: Callable[[list[Any]], None]) -> None:
        self._say = say
        self._waiting: dict[int, queue.SimpleQueue[tuple[bytes, bool] | None]] = {}
        self._open = 0  # the call whose handler may ask

    def begin(self, call: int) -> None:
        """A handler starts."""
        self._open = call

    def end(self) -> None:
        """The handler has gone: threads it left behind get no answer any more."""
        self._open = 0
        for waiting in list(self._waiting.values()):
            waiting.put(None)

    def heard(self, number: int, piece: bytes, last: bool) -> None:  # noqa: FBT001 - a frame's parts
        """A piece of an answer came."""
        waiting = self._waiting.get(number)
        if waiting is not None:
            waiting.put((piece, last))

    def ask(self, call: int, verb: str, *given: Any) -> tuple[int, Any]:
        """The number of this ask and what the host answered; this thread waits for it.

        Raises:
            ClientError: the handler whose context this is has returned.
            Exception: what the same call raised in the host.
        """
        _refuse_on_a_loop()
        number = next(_NUMBER)
        pieces: queue.SimpleQueue[tuple[bytes, bool] | None] = queue.SimpleQueue()
        self._waiting[number] = pieces
        try:
            if call != self._open:
                raise _ended()
            self._say(["ask", number, verb, list(given)])
            kind, data = codec.decode(self._whole(number, pieces))
        finally:
            del self._waiting[number]
        value = codec.decode(data)
        if kind == "raised":
            raise read_error(value)
        return number, value

    def _whole(self, number: int, pieces: queue.SimpleQueue[tuple[bytes, bool] | None]) -> bytes:
        found: list[bytes] = []
        while (got := pieces.get()) is not None:
            found.append(got[0])
            if got[1]:
                return b"".join(found)
            self._say(["more", number])
        raise _ended()


def _refuse_on_a_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BlockingCallError(
        "a handler in a process of its own asked its host from a running event loop, which would stop that loop; ask "
        "from a thread (await asyncio.to_thread(...))"
    )


def _ended() -> ClientError:
    return ClientError("the handler whose context this is has returned: its host answers it no more")


class LinkedChildren:
    """Triggers children of the run whose handler this process is in; implements `context.ChildTrigger`."""

    def __init__(self, asks: Asks, call: int) -> None:
        self._asks = asks
        self._call = call

    async def trigger_child(self, job: Any, payload: Any = None, **options: Any) -> NoReturn:  # noqa: ARG002
        """Refused: the handler isn't on the host's event loop.

        Raises:
            ClientError: says what to write.
        """
        raise ClientError(
            'with isolation="process" the handler runs in a process without its host\'s event loop; write '
            "ctx.trigger_child_blocking(…) instead of await ctx.trigger_child(…)"
        )

    def trigger_child_blocking(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: DurationLike | None = None,
        at: InstantLike | None = None,
    ) -> LinkedRun:
        """The child's run, new or the one an earlier attempt made.

        Raises:
            JetJobsError: as in a thread.
        """
        found = _named(job)
        if found.job is not None:
            found.job.check_payload(payload)
        check_options(Asked(delay=delay, at=at))
        options = {
            "key": None if key is None else check_key(key),
            "delay": optional_duration(delay, "delay"),
            "at": None if at is None else instant(at, "at"),
        }
        data = None if payload is None else codec.encode(payload)
        number, answer = self._asks.ask(self._call, "trigger", *found.address, found.schema, data, options)
        return LinkedRun(self._asks, self._call, number, told=answer, job=found.job)


class _Named(NamedTuple):
    address: JobAddress
    job: Job[Any, Any] | None = None

    @property
    def schema(self) -> str | None:
        return None if self.job is None else self.job.payload_schema_digest


def _named(job: object) -> _Named:
    return _Named(address_of(job), cast("Job[Any, Any]", job) if isinstance(job, Job) else None)


class LinkedRun:
    """One run that the handler triggered; its calls block, and go through the host.

    `duplicate`: an earlier attempt made it; `payload_differs`: with another payload than was given now;
    `no_host`: it is stored, but no live host took runs of its job a moment ago;
    `paused`: it is stored, and waits until somebody resumes its job.
    """

    def __init__(self, asks: Asks, call: int, number: int, *, told: list[Any], job: Job[Any, Any] | None) -> None:
        self._asks = asks
        self._call = call
        self._number = number
        self._job = job
        self.key = RunKey(*told[:3])
        self.duplicate, self.payload_differs, self.no_host, self.paused = told[3:]

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

    def status(self, *, timeout: DurationLike | None = None) -> RunStatus:
        """Where the run is now."""
        return RunStatus(self._ask("status", timeout))

    def record(self, *, timeout: DurationLike | None = None) -> RunRecord:
        """Everything known of the run; of one that hasn't started, what its message says."""
        return unpack_record(self._ask("record", timeout))

    def wait(self, timeout: DurationLike | None = None) -> RunRecord:
        """The record once the run has ended, whatever the outcome.

        Raises:
            TimeoutError: not ended in time.
        """
        return unpack_record(self._ask("wait", timeout))

    def result(self, timeout: DurationLike | None = None) -> Any:
        """What its handler returned, once the run has ended; as the handler's return type where a `Job` was given.

        Raises:
            RunEnded: it ended without a value; has `.record`.
            TimeoutError: not ended in time.
        """
        from jetjobs._results import result_reader  # noqa: PLC0415 - brings pydantic

        value = self._ask("result", timeout)
        read = None if self._job is None else result_reader(self._job)
        return value if read is None else read(value)

    def cancel(self, *, timeout: DurationLike | None = None) -> CancelResult:
        """Stop the run: it never starts, or its handler is told."""
        outcome, status = self._ask("cancel", timeout)
        return CancelResult(CancelOutcome(outcome), RunStatus(status))

    def reschedule(self, at: InstantLike, *, timeout: DurationLike | None = None) -> None:
        """Move a delayed run to another instant; a past one starts it now."""
        self._ask("reschedule", instant(at, "at"), timeout)

    def _ask(self, verb: str, *given: Any) -> Any:
        *others, timeout = given
        return self._asks.ask(self._call, verb, self._number, *others, optional_duration(timeout, "timeout"))[1]
