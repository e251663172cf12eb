"""Orders to stop a handler in a child process, given as its host and its child are just between two steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

from jetjobs import JobPolicy
from jetjobs._core.completion import Returned
from jetjobs._core.messages import Trigger
from jetjobs._core.models import RunKey
from jetjobs._engine.children import Child
from jetjobs._engine.execution import Verdict
from jetjobs._engine.frames import Call
from jetjobs._engine.held import HeldRun
from jetjobs._engine.isolation import Target
from jetjobs._engine.processes import ProcessExecution
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


def execution() -> ProcessExecution:
    journal, key = Journal(), RunKey("m", "job", "r")
    engine = Upkeep(MemoryCluster(ManualClock())).engine
    trigger = Trigger(key, None, 1, datetime.now(UTC), 1)
    held = HeldRun(key, trigger, cast("Any", None), 0.0)
    return ProcessExecution(Verdict(JobPolicy(), journal), make_context(), held, engine)


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
