"""Handlers in processes of their own that trigger children; a child process imports this file again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from jetjobs import Backoff, JobContext, JobPolicy, Module, RunStatus

QUICK = Backoff("50ms", factor=1, jitter=0)
family = Module("family", defaults=JobPolicy(timeout="60s", backoff=QUICK))
apart = JobPolicy(isolation="process", timeout="60s", max_attempts=2, backoff=QUICK)


class Square(BaseModel):
    of: int
    value: int


@family.job(max_concurrency=4)
async def part(ctx: JobContext, number: int) -> Square:
    return Square(of=number, value=number * number)


@family.job
async def large(ctx: JobContext, size: int) -> bytes:
    return bytes(size)


@family.job
async def deep(ctx: JobContext, levels: int) -> Any:
    made: Any = "here"
    for _ in range(levels):
        made = [made]
    return made


@family.job(isolation="process")
def fetches(ctx: JobContext, levels: int) -> Any:
    return ctx.trigger_child_blocking(deep, levels).result(timeout=10)


@family.job
async def fails(ctx: JobContext) -> None:
    raise ValueError("this part fails")


@family.job
async def endless(ctx: JobContext) -> None:
    await asyncio.Event().wait()


@family.job(isolation="process", max_attempts=2)
def split(ctx: JobContext, numbers: list[int]) -> list[Any]:
    """Asks twice for the same children, by all three kinds of names."""
    runs = [ctx.trigger_child_blocking(part, number) for number in numbers]
    runs.append(ctx.trigger_child_blocking("family.part", 7))
    runs.append(ctx.trigger_child_blocking(("family", "part"), 8, key="eight"))
    if ctx.attempt == 1:
        assert not any(run.duplicate for run in runs)
        raise ValueError("after the children")
    assert all(run.duplicate and not run.payload_differs and not run.no_host for run in runs)
    return [[run.module, run.job, run.run_id, str(run)] for run in runs]


@family.job(isolation="process")
def asks(ctx: JobContext, number: int) -> str:
    """Asks for one child, and says which it was given."""
    return str(ctx.trigger_child_blocking(part, number).run_id)


@family.job(isolation="process")
def follows(ctx: JobContext, size: int) -> dict[str, Any]:
    """Asks for everything that can be known of its children."""
    squared = ctx.trigger_child_blocking(part, 3)
    assert squared.result(timeout=45) == Square(of=3, value=9)
    assert ctx.trigger_child_blocking("family.part", 4).result(10) == {"of": 4, "value": 16}
    assert squared.wait(timeout="10s").status is squared.status() is RunStatus.SUCCEEDED
    later = ctx.trigger_child_blocking(part, 5, delay="1h")
    assert later.status() is RunStatus.SCHEDULED
    later.reschedule(0)
    assert later.result(10).value == 25
    never = ctx.trigger_child_blocking(part, 6, delay="1h")
    return {
        "record": squared.record().parent_run_id,
        "cancelled": never.cancel(timeout=5).outcome,
        "then": never.status(),
        "size": len(ctx.trigger_child_blocking(large, size).result(20)),
    }


def _named(call: Callable[[], object]) -> str:
    try:
        return f"no error: {call()}"
    except Exception as error:  # noqa: BLE001 - told, whatever it is
        more = {name: value for name, value in vars(error).items() if name != "record"}
        record = getattr(error, "record", None)
        return f"{type(error).__name__} {error} {more} {record and record.status}"


async def _on_a_loop(ctx: JobContext) -> None:
    ctx.trigger_child_blocking("family.part", 1)


@family.job(isolation="process")
def errs(ctx: JobContext) -> list[str]:
    """What goes wrong, as text."""
    waits = ctx.trigger_child_blocking(endless)
    calls: list[Callable[[], object]] = [
        lambda: ctx.trigger_child_blocking("family.prat", 1),
        lambda: ctx.trigger_child_blocking("nonsense"),
        lambda: ctx.trigger_child_blocking(part, "no number"),
        lambda: ctx.trigger_child_blocking("family.part", object()),
        lambda: ctx.trigger_child_blocking("family.part", 1, key=""),
        lambda: ctx.trigger_child_blocking("family.part", 1, delay="1s", at=5),
        lambda: waits.wait(timeout=0.1),
        lambda: waits.result(timeout="nonsense"),
        lambda: ctx.trigger_child_blocking(fails).result(timeout=45),
        lambda: asyncio.run(ctx.trigger_child("family.part", 1)),
        lambda: asyncio.run(_on_a_loop(ctx)),
    ]
    said = [_named(call) for call in calls]
    waits.cancel()
    return said


@family.job(isolation="process")
def waits(ctx: JobContext, started: str) -> None:
    """Waits for a child that doesn't end, beside a thread that does so too."""
    run = ctx.trigger_child_blocking(endless, key="one")
    threading.Thread(target=lambda: _named(run.wait), daemon=True).start()
    Path(started).write_text(str(os.getpid()))
    run.wait()


@family.job(isolation="process")
def keeps(ctx: JobContext, path: str) -> None:
    """A thread it leaves behind asks after the handler has returned."""

    def later() -> None:
        returned.wait(10)
        with Path(path).open("w") as file:
            file.write(_named(lambda: ctx.trigger_child_blocking("family.part", 1)))

    returned = threading.Event()
    threading.Timer(0.3, returned.set).start()
    threading.Thread(target=later, daemon=True).start()


@family.job(isolation="process", max_attempts=3)
def shows(ctx: JobContext, _payload: dict[str, int]) -> dict[str, Any]:
    """Every public name of its context."""
    ctx.log("said", level="warning", n=1)
    ctx.progress(1, 2, "half")
    ctx.checkpoint([1])
    ctx.logger.bind(more=2).info("to the log %s", "only")
    ctx.raise_if_cancelled()
    shown = {name: getattr(ctx, name) for name in dir(ctx) if not name.startswith("_")}
    plain = {name: value for name, value in shown.items() if not callable(value) and name not in {"logger", "trigger"}}
    return {"repr": repr(ctx), "names": sorted(shown), "kind": ctx.trigger.kind, **plain}
