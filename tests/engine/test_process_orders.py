"""Orders to stop a handler in a child process, given as its host and its child are just between two steps."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from jetjobs import JobPolicy
from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.completion import Raised, Returned
from jetjobs._core.messages import Trigger
from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._engine.children import Child
from jetjobs._engine.execution import Verdict
from jetjobs._engine.frames import Call
from jetjobs._engine.held import HeldRun
from jetjobs._engine.isolation import Target
from jetjobs._engine.processes import ProcessExecution, run_isolated
from jetjobs.context import Journal
from jetjobs.testing import ManualClock, MemoryCluster, make_context
from tests.support.upkeep import Upkeep

CALL = Call(7, Target(("here",), "jobs", False, "job"), b"", None, has_state=False, offset=timedelta(0))


class Scripted:
    """A child that says what is written here, and notes what it is told and how it is struck."""

    def __init__(self, *frames: list[Any]) -> None:
        self.process = SimpleNamespace(pid=1)
        self.frames = list(frames)
        self.struck: list[str] = []
        self.before_last: Callable[[], None] = lambda: None

    def tell(self, frames: Iterable[bytes]) -> None: ...

    def receive(self) -> list[Any] | None:
        if len(self.frames) == 1:
            self.before_last()
        return self.frames.pop(0) if self.frames else None

    def terminate(self) -> None:
        self.struck.append("SIGTERM")

    def kill(self) -> None:
        self.struck.append("SIGKILL")

    def end(self, _patience: float = 0.0) -> None:
        self.struck.append("ended")


def held_run() -> HeldRun:
    key = RunKey("m", "job", "r")
    return HeldRun(key, Trigger(key, None, 1, datetime.now(UTC), 1), cast("Any", None), 0.0)


def execution() -> ProcessExecution:
    engine = Upkeep(MemoryCluster(ManualClock())).engine
    return ProcessExecution(Verdict(JobPolicy(), Journal()), make_context(), held_run(), engine)


async def test_a_child_kept_for_the_next_run_is_out_of_reach_of_this_one_s_orders() -> None:
    made, child = execution(), Scripted(["started"], ["ended", False, ["returned", None, False]])
    assert made._talk(cast("Child", child), CALL) == Returned()
    made.stop("fenced")
    assert child.struck == []
    assert made.allowance() is None


async def test_a_child_that_ends_as_it_is_struck_is_not_kept() -> None:
    """The signal may be on its way to it still."""
    made = execution()
    child = Scripted(["started"], ["ended", False, ["returned", None, False]])
    child.before_last = lambda: made.stop("fenced")
    assert made._talk(cast("Child", child), CALL) == Returned()
    assert child.struck == ["SIGKILL", "ended"]


async def test_an_order_that_came_while_the_payload_was_fetched_in_vain_is_over() -> None:
    """It strikes nothing, grace after grace."""
    clock = ManualClock()
    upkeep, held = Upkeep(MemoryCluster(clock)), held_run()
    lost = upkeep.ports.fail("payloads.get", when="hang", times=None)
    body = Body(b"", claim=ClaimCheck("jetjobs.test.body.r.in.x", 1, 1, "0" * 64))
    held.record = RunRecord("r", "m", "job", RunStatus.RUNNING, payload_body=body)
    verdict = Verdict(JobPolicy(), Journal())
    going = asyncio.ensure_future(
        run_isolated(upkeep.engine, cast("Any", None), held, verdict=verdict, context=make_context())
    )
    await lost.reached.wait()
    held.stop("cancel")
    lost.release()
    assert isinstance(await going, Raised)
    await clock.advance(60)
    assert isinstance(held.execution, ProcessExecution)
    assert held.execution._strength == 0
