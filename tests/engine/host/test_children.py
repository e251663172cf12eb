"""Runs that trigger runs: an attempt repeated makes no second child."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs import Backoff, JobContext, Module
from jetjobs._core import names
from jetjobs._core.models import RunKey, RunStatus
from jetjobs.errors import (
    BlockingCallError,
    ConfigError,
    InvalidNameError,
    JetJobsError,
    PayloadInvalidError,
    UnknownJobError,
)
from jetjobs.outcomes import JobInterrupted
from tests.engine.host.stage import Stage

SOON = Backoff("100ms", factor=1, jitter=0)
Family = Callable[[JobContext[Any]], Coroutine[Any, Any, Any]]


class Children:
    """`m.parent` does what the test says, three times at most; what `m.child` and `m.other` got is in `seen`."""

    def __init__(self, parent: Family) -> None:
        self.module = Module("m")
        self.seen: list[tuple[str, str, Any]] = []

        @self.module.job(name="parent", max_attempts=3, backoff=SOON)
        async def _(ctx: JobContext[Any]) -> Any:
            return await parent(ctx)

        for name in ("child", "other"):
            self.module.expose_job(name, self._note, max_concurrency=4)

    async def _note(self, ctx: JobContext[Any], number: int) -> int:
        self.seen.append((ctx.job, ctx.run_id, number))
        assert ctx.trigger.kind == "child"
        return number


async def _parent_of(stage: Stage, children: Children) -> Any:
    await stage.serve(children.module)
    run = await stage.driven(stage.client.get_job("m.parent").trigger())
    return await stage.ended(run.run_id, "parent")


async def test_a_repeated_attempt_makes_the_same_children(stage: Stage) -> None:
    made: list[list[tuple[str, bool]]] = []

    async def parent(ctx: JobContext[Any]) -> None:
        runs = [
            await ctx.trigger_child("m.child", 1),
            await ctx.trigger_child(("m", "other"), 2),
            await ctx.trigger_child(children.module.jobs["child"], 3),
            await ctx.trigger_child("m.child", 4, key="four"),
        ]
        made.append([(run.run_id, run.duplicate) for run in runs])
        if ctx.attempt < 3:
            raise ValueError("again")

    children = Children(parent)
    record = await _parent_of(stage, children)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 3)
    key = record.run_key
    ids = [
        names.run_id_for_child(key, "m", "child", 1),
        names.run_id_for_child(key, "m", "other", 1),
        names.run_id_for_child(key, "m", "child", 2),
        names.run_id_for_child(key, "m", "child", "four"),
    ]
    assert made == [[(run_id, False) for run_id in ids], *[[(run_id, True) for run_id in ids]] * 2]
    for job, run_id in zip(("child", "other", "child", "child"), ids, strict=True):
        child = await stage.ended(run_id, job)
        assert (child.status, child.parent_run_id) == (RunStatus.SUCCEEDED, record.run_id)
        assert (child.trigger.kind, child.trigger.parent_run_id) == ("child", record.run_id)
        await stage.retired(run_id, job)
    assert sorted(children.seen, key=lambda each: each[2]) == [
        (job, run_id, number)
        for job, run_id, number in zip(("child", "other", "child", "child"), ids, (1, 2, 3, 4), strict=True)
    ]


async def test_children_asked_for_at_once_keep_their_order(stage: Stage) -> None:
    made: list[list[str]] = []

    async def parent(ctx: JobContext[Any]) -> None:
        runs = await asyncio.gather(*[ctx.trigger_child("m.child", number) for number in range(5)])
        assert not any(run.payload_differs for run in runs)
        made.append([run.run_id for run in runs])
        if ctx.attempt == 1:
            raise ValueError("again")

    children = Children(parent)
    record = await _parent_of(stage, children)
    assert record.status is RunStatus.SUCCEEDED, record.error
    assert made[0] == made[1] == [names.run_id_for_child(record.run_key, "m", "child", n) for n in range(1, 6)]


async def test_another_payload_in_the_same_place_is_told(memory_stage: Stage) -> None:
    async def parent(ctx: JobContext[Any]) -> bool:
        run = await ctx.trigger_child("m.child", ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError("again")
        return run.payload_differs

    children = Children(parent)
    with capture_logs() as logs:
        record = await _parent_of(memory_stage, children)
    assert record.result is True
    (told,) = [entry for entry in logs if entry["event"] == "child_payload_differs"]
    assert told["child"].startswith("m.child/c-")
    assert [number for _, _, number in children.seen] == [1]


async def test_a_lost_answer_makes_no_second_child(memory_stage: Stage) -> None:
    stage = memory_stage

    async def parent(ctx: JobContext[Any]) -> bool:
        stage.hosts[0].ports.fail("broker.store", when="after")
        child = await ctx.trigger_child("m.child", 1)
        made.set()
        return child.duplicate

    made = asyncio.Event()
    children = Children(parent)
    await stage.serve(children.module)
    run = await stage.client.get_job("m.parent").trigger()
    await asyncio.wait_for(made.wait(), 10)  # the pause before it sends again is of real time
    record = await stage.ended(run.run_id, "parent")
    assert record.result is False
    run_id = names.run_id_for_child(record.run_key, "m", "child", 1)
    await stage.ended(run_id, "child")
    assert children.seen == [("child", run_id, 1)]


async def test_a_delayed_child_waits_and_is_not_moved_by_the_next_attempt(memory_stage: Stage) -> None:
    stage = memory_stage

    async def parent(ctx: JobContext[Any]) -> None:
        await ctx.trigger_child("m.child", 1, key="later", delay="1h")
        if ctx.attempt == 1:
            raise ValueError("again")

    record = await _parent_of(stage, Children(parent))
    child = RunKey("m", "child", names.run_id_for_child(record.run_key, "m", "child", "later"))
    seen = await stage.client.run(*child).record()
    assert (seen.status, seen.trigger.kind, seen.parent_run_id) == (RunStatus.SCHEDULED, "child", record.run_id)
    assert seen.scheduled_for is not None
    assert record.attempts[0].finished_at is not None
    assert seen.scheduled_for.timestamp() <= record.attempts[0].finished_at.timestamp() + 3600
    message = await stage.client_ports.broker.last(names.run_schedules(stage.client.project, child))
    assert message is not None
    assert message.subject.endswith(".1")


async def test_what_can_t_be_a_child_is_refused_and_takes_no_number(memory_stage: Stage) -> None:
    refused: list[JetJobsError] = []

    async def parent(ctx: JobContext[Any]) -> str:
        declared = children.module.jobs["child"]
        attempts: list[tuple[Any, Any, dict[str, Any]]] = [
            ("m.chield", 1, {}),
            ("nonsense", 1, {}),
            (("m", "child", "x"), 1, {}),
            (declared, "no number", {}),
            ("m.child", 1, {"key": ""}),
            ("m.child", 1, {"key": 1}),
            ("m.child", 1, {"delay": "1s", "at": 5}),
        ]
        for job, payload, options in attempts:
            with pytest.raises(JetJobsError) as caught:
                await ctx.trigger_child(job, payload, **options)
            refused.append(caught.value)
        with pytest.raises(BlockingCallError, match="event loop"):
            ctx.trigger_child_blocking("m.child", 1)
        return (await ctx.trigger_child(declared, 7)).run_id

    children = Children(parent)
    record = await _parent_of(memory_stage, children)
    assert [type(error) for error in refused] == [
        UnknownJobError,
        InvalidNameError,
        InvalidNameError,
        PayloadInvalidError,
        InvalidNameError,
        InvalidNameError,
        ConfigError,
    ]
    assert isinstance(refused[0], UnknownJobError)
    assert refused[0].close_names[0] == "m.child"
    assert record.result == names.run_id_for_child(record.run_key, "m", "child", 1)


async def test_a_thread_that_waits_for_a_child_s_trigger_can_be_interrupted(memory_stage: Stage) -> None:
    """The broker doesn't answer, the run's time is up: the thread isn't left to the call's own timeout."""
    stage, module = memory_stage, Module("m")
    ended: list[BaseException] = []
    gone = threading.Event()

    @module.job(timeout=1)
    def parent(ctx: JobContext[Any]) -> None:
        try:
            ctx.trigger_child_blocking("m.child")
        except BaseException as error:
            ended.append(error)
            gone.set()
            raise

    @module.job
    async def child(ctx: JobContext[Any]) -> None: ...

    hosted = await stage.serve(module)
    run = await stage.client.get_job("m.parent").trigger()
    hanging = hosted.ports.fail("broker.store", when="hang", times=None)
    await asyncio.wait_for(hanging.reached.wait(), 10)
    assert (await stage.ended(run.run_id, "parent")).status is RunStatus.TIMED_OUT
    await stage.world.elapse(1)  # past the grace
    assert await asyncio.to_thread(gone.wait, 5)
    assert [type(error) for error in ended] == [JobInterrupted]
    hanging.release()
