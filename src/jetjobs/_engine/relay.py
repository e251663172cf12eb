"""The host's side of what a handler in a child process asks for: runs of other jobs, and how they went.

The child has no connection of its own. It asks over the link, the host does it as for a handler in a thread, and an
answer goes back in pieces, each asked for: so what is under way to a child is always little, and the event loop that
sends it never waits for a child that doesn't read.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from jetjobs._core import codec
from jetjobs._core.models import JobAddress
from jetjobs._core.triggering import Target
from jetjobs._engine.frames import whole_record, write_error
from jetjobs._log import get_logger
from jetjobs.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetjobs._engine.tasks import Tasks
    from jetjobs.context import JobContext

log = get_logger("jetjobs.engine")

PIECE = 32 * 1024


class Relay:
    """Answers the asks of one handler. Belongs to the event loop's thread."""

    def __init__(self, context: JobContext[Any], tasks: Tasks, tell: Callable[[bytes], None]) -> None:
        self._context = context  # the hooks' too: children without a key are counted over all of the attempt
        self._tasks = tasks
        self._tell = tell
        self._runs: dict[int, Any] = {}
        self._unsent: dict[int, memoryview] = {}
        self._going: set[asyncio.Task[Any]] = set()
        self._closed = False

    def heard(self, frame: list[Any]) -> None:
        """Take up an ask, or send the next piece of an answer."""
        match frame:
            case ["ask", int(number), str(verb), given] if not self._closed:
                # Started in the order they came: children without a key are told apart by it.
                task = self._tasks.start(self._answer(number, verb, given))
                self._going.add(task)
                task.add_done_callback(self._going.discard)
            case ["more", int(number)]:
                self._send(number)
            case _:
                log.warning("child_said_nonsense", kind=str(frame)[:80])

    def close(self) -> None:
        """The handler has gone: nobody waits for an answer any more."""
        self._closed = True
        self._unsent.clear()
        for task in self._going:
            task.cancel()

    async def _answer(self, number: int, verb: str, given: list[Any]) -> None:
        try:
            answer = ["done", codec.encode(await self._done(number, verb, given))]
        except Exception as error:  # noqa: BLE001 - the ask is a handler's call: what goes wrong is the handler's to see
            answer = ["raised", codec.encode(write_error(error))]
        self._unsent[number] = memoryview(codec.encode(answer))
        self._send(number)

    def _send(self, number: int) -> None:
        left = self._unsent.pop(number, None)
        if left is None or self._closed:
            return
        if len(left) > PIECE:
            self._unsent[number] = left[PIECE:]
        self._tell(codec.encode(["answer", number, bytes(left[:PIECE]), len(left) <= PIECE]))

    async def _done(self, number: int, verb: str, given: list[Any]) -> Any:
        if verb == "trigger":
            return await self._trigger(number, given)
        which, *rest = given
        run = self._runs.get(which)
        ask = _VERBS.get(verb)
        if run is None or ask is None:
            msg = f"a handler asked its host to {verb!r} a run that it didn't trigger"
            raise ClientError(msg)
        return await ask(run, *rest)

    async def _trigger(self, number: int, given: list[Any]) -> list[Any]:
        module, job, schema, data, options = given
        payload = None if data is None else codec.decode(data)
        run = await self._context.trigger_child(Target(JobAddress(module, job), schema), payload, **options)
        self._runs[number] = run
        return [*run.key, run.duplicate, run.payload_differs, run.no_host, run.paused]


async def _status(run: Any, timeout: Any) -> str:
    return (await run.status(timeout=timeout)).value


async def _record(run: Any, timeout: Any, *, ended: bool) -> bytes:
    return whole_record(await (run.wait(timeout) if ended else run.record(timeout=timeout)))


async def _result(run: Any, timeout: Any) -> Any:
    return await run.result(timeout)


async def _cancel(run: Any, timeout: Any) -> list[str]:
    result = await run.cancel(timeout=timeout)
    return [result.outcome.value, result.status.value]


async def _reschedule(run: Any, at: Any, timeout: Any) -> None:
    await run.reschedule(at, timeout=timeout)


_VERBS: dict[str, Callable[..., Any]] = {
    "status": _status,
    "record": partial(_record, ended=False),
    "wait": partial(_record, ended=True),
    "result": _result,
    "cancel": _cancel,
    "reschedule": _reschedule,
}
