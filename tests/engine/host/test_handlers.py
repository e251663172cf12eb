"""How a handler's end is understood, where it isn't as plain as a return or an error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from pydantic import BaseModel, model_validator
from structlog.testing import capture_logs

from jetjobs import Discard, JobContext, Module, RetryAfter, Snooze
from jetjobs._core.bodies import Body
from jetjobs._core.models import JobAddress, RunStatus
from jetjobs._core.texts import MAX_TRACEBACK
from jetjobs._engine.payloads import prepare
from tests.engine.host.stage import Stage


async def test_an_outcome_raised_in_a_task_group_counts(memory_stage: Stage) -> None:
    stage = memory_stage
    await stage.host()
    skipped = await stage.ended(await stage.trigger("group skip"))
    assert (skipped.status, skipped.skip_reason) == (RunStatus.SKIPPED, "nothing")
    waiting = await stage.reached(await stage.trigger("group later"), RunStatus.RETRYING)
    assert waiting.error is not None
    assert waiting.error.type == "RetryAfter"


async def test_a_timeout_is_one_although_the_handler_survived_a_cancellation_of_its_own(memory_stage: Stage) -> None:
    stage = memory_stage
    await stage.host()
    record = await stage.ended(await stage.trigger("cancels never", "timed"), "timed")
    assert (record.status, record.starts) == (RunStatus.TIMED_OUT, 1)


async def test_a_failure_is_in_the_log_of_the_host_with_the_handlers_own_frames(memory_stage: Stage) -> None:
    stage = memory_stage
    stage.play.acts["lose"] = raises(ConnectionError("the bank is away"))
    await stage.host()
    with capture_logs() as said:
        run_id = await stage.trigger("do lose", "once")
        record = await stage.ended(run_id, "once")
        await stage.when(lambda: told(said, "run_failed"))
    (line,) = told(said, "run_failed")
    assert (line["run"], line["attempt"], line["status"]) == (f"m.once/{run_id}", "1/1", "FAILED")
    assert line["error"] == "ConnectionError: the bank is away"
    assert record.error is not None
    assert line["exception"] == record.error.traceback
    assert __file__ in line["exception"]
    assert "execution.py" not in line["exception"]


async def test_of_a_failure_of_any_size_the_log_has_what_the_record_has(memory_stage: Stage) -> None:
    stage = memory_stage
    stage.play.acts["lose"] = raises(ValueError("x" * 3_000_000))
    await stage.host()
    with capture_logs() as said:
        record = await stage.ended(await stage.trigger("do lose", "once"), "once")
        await stage.when(lambda: told(said, "run_failed"))
    (line,) = told(said, "run_failed")
    assert record.error is not None
    assert (line["error"], line["exception"]) == (str(record.error), record.error.traceback)
    assert len(line["error"]) < 9 * 1024
    assert len(line["exception"].encode()) == MAX_TRACEBACK


async def test_an_attempt_that_is_followed_by_another_is_a_warning_without_a_traceback(memory_stage: Stage) -> None:
    stage = memory_stage
    stage.play.acts["lose"] = raises(RetryAfter("1h", "the bank is away"))
    stage.play.acts["snooze"] = raises(Snooze(60))
    await stage.host()
    with capture_logs() as said:
        await stage.reached(await stage.trigger("do lose"), RunStatus.RETRYING)
        await stage.when(lambda: told(said, "attempt_failed"))
        await stage.reached(await stage.trigger("do snooze"), RunStatus.RETRYING)
        skipped = await stage.trigger("group skip")
        await stage.ended(skipped)
        await stage.retired(skipped)
    (line,) = told(said, "attempt_failed")
    assert line["log_level"] == "warning"
    assert line["retry_at"] is not None
    assert "exception" not in line
    assert not told(said, "run_failed")


class Exits(BaseModel):
    @model_validator(mode="before")
    @classmethod
    def _leave(cls, _: object) -> object:
        sys.exit(3)


class Interrupted(BaseModel):
    """Somebody's Ctrl-C comes while it is checked."""

    @model_validator(mode="before")
    @classmethod
    def check(cls, _: object) -> object:
        raise KeyboardInterrupt


async def test_a_validator_that_exits_ends_its_run_and_not_the_host(memory_stage: Stage) -> None:
    stage = memory_stage
    module = Module("m")

    @module.job(timeout="1m", max_attempts=3)
    async def job(ctx: JobContext[Any], payload: Exits) -> None: ...

    await stage.serve(module)
    record = await stage.ended(await stage.trigger("anything"))
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert record.error is not None
    assert record.error.message == "the payload type of m.job raised SystemExit while it validated: 3"
    answer = await stage.world.call(JobAddress("m", "job"), b"{}", {})
    assert answer is not None
    assert b"SystemExit while the call was handled" in answer


def test_ctrl_c_in_a_validator_is_no_fault_of_the_payload() -> None:
    module = Module("m")

    @module.job(timeout="1m")
    async def job(ctx: JobContext[Any], payload: Interrupted) -> None: ...

    with pytest.raises(KeyboardInterrupt):
        prepare(job, Body(b"{}", "json"))


def told(said: Sequence[Mapping[str, Any]], event: str) -> list[Mapping[str, Any]]:
    return [entry for entry in said if entry["event"] == event]


class Shy:
    """Nobody may look at it."""

    def __repr__(self) -> str:
        raise RuntimeError("shy")

    __str__ = __repr__

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"shy about {name}")


def raises(error: BaseException) -> Callable[[JobContext[Any]], Any]:
    def act(_: JobContext[Any]) -> Any:
        raise error

    return act


HALF = "half a \ud800 character"
ODD: dict[str, Callable[[JobContext[Any]], Any]] = {
    "progress of an object": lambda ctx: ctx.progress(Shy()),  # type: ignore[arg-type]
    "progress of text": lambda ctx: ctx.progress("3", "4"),  # type: ignore[arg-type]
    "progress of nan": lambda ctx: ctx.progress(float("nan"), float("inf")),
    "progress beyond 64 bits": lambda ctx: ctx.progress(10**30, 10**40),
    "progress with half a character": lambda ctx: ctx.progress(1, 2, HALF),
    "progress message of an object": lambda ctx: ctx.progress(1, 2, Shy()),  # type: ignore[arg-type]
    "log of an object": lambda ctx: ctx.log(Shy(), shy=Shy()),  # type: ignore[arg-type]
    "log with half a character": lambda ctx: ctx.log(HALF, **{HALF: HALF}),
    "log beyond 64 bits": lambda ctx: ctx.log("n", n=10**30),
    "log at a level of its own": lambda ctx: ctx.log("x", level=Shy()),  # type: ignore[arg-type]
    "checkpoint of an object": lambda ctx: ctx.checkpoint(Shy()),
    "checkpoint beyond 64 bits": lambda ctx: ctx.checkpoint(10**30),
    "checkpoint with half a character": lambda ctx: ctx.checkpoint(HALF),
    "result of an object": lambda _: Shy(),
    "result beyond 64 bits": lambda _: 10**30,
    "result with half a character": lambda _: {HALF: HALF},
    "result too deep": lambda _: deep(100_000),
    "skip of an object": lambda ctx: ctx.skip(Shy()),  # type: ignore[arg-type]
    "skip with half a character": lambda ctx: ctx.skip(HALF),
    "skip of megabytes": lambda ctx: ctx.skip("x" * 3_000_000),
    "discard of an object": raises(Discard(Shy())),  # type: ignore[arg-type]
    "discard with half a character": raises(Discard(HALF)),
    "retry after nonsense": raises(RetryAfter("soon")),
    "retry after an object": raises(RetryAfter(Shy(), Shy())),  # type: ignore[arg-type]
    "snooze nonsense": raises(Snooze(-1)),
    "snooze of an object": raises(Snooze(Shy())),  # type: ignore[arg-type]
    "error of an object": raises(ValueError(Shy())),
    "memory": raises(MemoryError()),
    "a group of everything": raises(BaseExceptionGroup("g", [KeyboardInterrupt(), ValueError(HALF), SystemExit(3)])),
}


def deep(levels: int) -> list[Any]:
    inner: list[Any] = []
    for _ in range(levels):
        inner = [inner]
    return inner


@pytest.mark.parametrize("how", ODD)
async def test_whatever_a_handler_says_its_run_ends(memory_stage: Stage, how: str) -> None:
    """Once, with a record that can be read; never by being started again."""
    stage = memory_stage
    stage.play.acts[how] = ODD[how]
    await stage.host()
    with capture_logs() as said:
        run_id = await stage.trigger(f"do {how}", "once")
        record = await stage.ended(run_id, "once")
        await stage.retired(run_id, "once")
    assert record.status in {RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.SKIPPED}
    assert len(stage.play.of(run_id)) == 1
    assert not [entry for entry in said if entry["event"] in {"engine_task_failed", "run_broke", "service_pass_broke"}]
    if record.status is RunStatus.FAILED:
        assert record.error is not None
        assert record.error.type != "Lost"
