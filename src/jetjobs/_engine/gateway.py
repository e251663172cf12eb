"""The call gateway of one host: requests over core NATS become runs, for callers without any right on the stream.

::

    call ──▶ place free? ──▶ read, validate ──▶ store the trigger ──▶ {"run_id": …, "duplicate": …}
                  └─▶ no: {"error": {"type": "Busy", …}}      └─▶ {"error": {"type": …, "message": …}}

Heard in the turn of the loop in which it came, a call costs at most a look at two numbers there; all else is a task's.
A host that drains leaves the groups first, so that other hosts hear what comes, and answers what it has heard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetjobs._core.gateway_calls import BUSY, INTERNAL, accepted, read_call, refused
from jetjobs._engine.tasks import Tasks
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError, JetJobsError, PayloadTooLargeError, TriggerUnconfirmed
from jetjobs.outcomes import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jetjobs._engine.asking import Asking
    from jetjobs._engine.engine import Engine
    from jetjobs._ports import Call, CallService
    from jetjobs.job import Job

log = get_logger("jetjobs.engine")

PLACES = 256  # calls of one host that are not answered yet
BYTES = 64 * 1024 * 1024  # bodies of all of them together
LONGEST_STOP, SHORTEST_STOP = 6.0, 1.0

_BUSY = refused(BUSY, f"this host is answering {PLACES} calls; call again a little later")


class Gateway:
    """Answers the calls to the jobs of one host."""

    def __init__(self, engine: Engine, jobs: Iterable[Job[Any, Any]]) -> None:
        self._engine = engine
        self._jobs = {job.address: job for job in jobs}
        self._tasks = Tasks()
        self._service: CallService | None = None
        self._bytes_held = 0
        self._told_busy = False

    async def start(self) -> None:
        """Hear calls, if the host can ask for runs at all."""
        if self._engine.asking is not None and self._jobs:
            self._service = await self._engine.backend.broker.answer_calls(self._jobs, self.on_call)

    async def stop(self, patience: float | None = None) -> None:
        """Hear no more; return when what was heard is answered, or its time is up, here or given. Idempotent."""
        service, self._service = self._service, None
        if service is not None:
            await service.stop()
        if patience is None:
            patience = self._engine.drain_within(SHORTEST_STOP, LONGEST_STOP)
        if not await self._tasks.wait_idle(patience):
            await self._tasks.cancel_all()

    def on_call(self, call: Call) -> None:
        """Take a call, or refuse it as Busy; returns at once."""
        asking = self._engine.asking
        if asking is None or len(self._tasks) >= PLACES or self._bytes_held + len(call.data) > BYTES:
            if not self._told_busy:
                self._told_busy = True
                log.warning("gateway_busy", calls=len(self._tasks), bytes=self._bytes_held)
            call.answer(_BUSY)
            return
        self._bytes_held += len(call.data)
        self._tasks.start(self._serve(call, asking))

    async def _serve(self, call: Call, asking: Asking) -> None:
        try:
            call.answer(await self._answer(call, asking))
        finally:
            self._bytes_held -= len(call.data)
            if len(self._tasks) <= 1:
                self._told_busy = False

    async def _answer(self, call: Call, asking: Asking) -> bytes:
        try:
            run = await self._submit(call, asking)
        except JetJobsError as error:
            if isinstance(error, BrokerError):
                log.warning("call_not_stored", job=str(call.job), error=str(error))
            run_id = error.run_id if isinstance(error, TriggerUnconfirmed) else None
            return refused(type(error).__name__, str(error), run_id)
        except (Exception, SystemExit, Outcome) as error:
            # A fence: a payload type is the user's code, and a caller must not wait for an answer that never comes.
            log.exception("call_broke", job=str(call.job))
            return refused(INTERNAL, f"{type(error).__name__} while the call was handled; the host's log has it")
        return accepted(run.run_id, duplicate=run.duplicate, payload_differs=run.payload_differs)

    async def _submit(self, call: Call, asking: Asking) -> Any:
        most = int(self._engine.settings.max_payload)
        if len(call.data) > most:
            raise PayloadTooLargeError(f"the payload takes {len(call.data)} bytes, at most {most} are allowed")
        asked = read_call(call.headers, call.data)
        job = self._jobs[call.job]
        job.check_payload(asked.payload)
        return await asking.submit(job, asked.payload, asked.key)
