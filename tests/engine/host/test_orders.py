"""What hosts make of orders for their jobs: hours in a moment, and messages that get lost."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs import Every, JobClient, JobContext, Module
from jetjobs._core.models import JobAddress, RunStatus
from jetjobs._core.retention import read_retention
from jetjobs.testing import memory_backend
from tests.engine.host.scene import Scene
from tests.engine.host.stage import Stage
from tests.support.worlds import MemoryWorld

JOB = ("m", "job")


async def test_a_limit_is_obeyed_by_hosts_that_run_and_by_those_that_start(stage: Stage) -> None:
    await stage.host()
    await stage.client.jobs.override(*JOB, max_concurrency=1)
    await stage.when(lambda: stage.hosts[0].host.health().jobs[0].limit == 1)
    for _ in range(7):
        await stage.trigger("wait gate")
    await stage.when(lambda: stage.play.live == 1)
    await stage.host()
    await stage.world.rest()
    assert stage.play.live == 1
    await stage.client.jobs.override(*JOB, max_concurrency=6)
    await stage.when(lambda: stage.play.live == 6)
    await stage.client.jobs.override(*JOB, max_concurrency=2)
    await stage.when(lambda: all(hosted.host.health().jobs[0].limit == 2 for hosted in stage.hosts))
    more = [await stage.trigger("sleep 0.2") for _ in range(8)]
    stage.play.gates["gate"].set()
    await stage.when(lambda: any(stage.play.of(run) for run in more))
    for run in more:
        while not (record := await stage.record(run)) or not record.status.is_terminal:
            assert stage.play.live <= 2
            await stage.world.elapse(0.05)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)


async def test_a_pause_keeps_what_comes_and_lets_it_go_on(stage: Stage) -> None:
    await stage.host()
    running = await stage.trigger("wait gate")
    await stage.when(lambda: stage.play.of(running))
    await stage.client.jobs.pause(*JOB)
    await stage.when(lambda: paused_on(stage, 0))
    waiting = await stage.trigger("return")
    stage.play.gates["gate"].set()
    assert (await stage.ended(running)).status is RunStatus.SUCCEEDED
    await stage.host()
    other = await stage.trigger("return", "once")
    assert (await stage.ended(other, "once")).status is RunStatus.SUCCEEDED
    assert not stage.play.of(waiting)
    await stage.client.jobs.resume(*JOB)
    assert (await stage.ended(waiting)).status is RunStatus.SUCCEEDED


async def test_a_host_says_how_long_it_keeps_what_ended(stage: Stage) -> None:
    await stage.host()
    (said,) = await stage.client.hosts.list()
    assert read_retention(said.retention) == stage.hosts[0].host.settings.retention


def paused_on(stage: Stage, number: int) -> bool:
    hosting = stage.hosts[number].host._hosting
    return hosting is not None and JobAddress(*JOB) in hosting.engine.paused


async def test_a_bell_that_nobody_hears_costs_ten_seconds(memory_stage: Stage) -> None:
    stage = memory_stage
    host = await stage.host()
    stage.client_ports.fail("broker.ring_control")
    await stage.client.jobs.override(*JOB, max_concurrency=2)
    await stage.when(lambda: host.host.health().jobs[0].limit == 2, within=11)


@pytest.mark.parametrize("method", ["broker.ensure_consumer", "catalog.control", "catalog.controls"])
async def test_what_fails_is_tried_again(memory_stage: Stage, method: str) -> None:
    stage = memory_stage
    host = await stage.host()
    failure = host.ports.fail(method)
    await stage.client.jobs.override(*JOB, max_concurrency=2)
    await stage.when(lambda: host.host.health().jobs[0].limit == 2, within=21)
    assert failure.hits == 1


async def test_a_limit_of_nobody_any_more_is_the_declared_one_for_all(memory_stage: Stage) -> None:
    stage = memory_stage
    host = await stage.host()
    await stage.client.jobs.override(*JOB, max_concurrency=2)
    await stage.when(lambda: host.host.health().jobs[0].limit == 2)
    await stage.client.jobs.override(*JOB, max_concurrency=None)
    await stage.when(lambda: host.host.health().jobs[0].limit == 4)
    before = host.ports.calls["broker.ensure_consumer"]
    await stage.world.elapse(30)
    assert host.ports.calls["broker.ensure_consumer"] == before, "nothing is ordered: nothing to see to"


@pytest.mark.parametrize("rung", [True, False])
async def test_orders_that_somebody_removed_hold_no_more(memory_stage: Stage, *, rung: bool) -> None:
    """By hand, or with the bucket. Resuming writes nothing then, and the job must go on all the same."""
    stage = memory_stage
    host = await stage.host()
    await stage.client.jobs.override(*JOB, max_concurrency=2)
    await stage.client.jobs.pause(*JOB)
    await stage.when(lambda: paused_on(stage, 0) and host.host.health().jobs[0].limit == 2)
    waiting = await stage.trigger("return")
    assert isinstance(stage.world, MemoryWorld)
    project = stage.world.cluster.project(stage.world.project)
    project.controls.remove(JobAddress(*JOB))
    if rung:
        assert (await stage.client.jobs.resume(*JOB)).control is None
    await stage.when(lambda: not paused_on(stage, 0), within=1 if rung else 11)
    assert (await stage.ended(waiting)).status is RunStatus.SUCCEEDED
    assert host.host.health().jobs[0].limit == project.consumer(JobAddress(*JOB)).max_ack_pending == 4
    before = host.ports.calls["catalog.control"]
    await stage.world.elapse(30)
    assert host.ports.calls["catalog.control"] == before, "nothing is ordered: nothing to ask for"


async def test_orders_for_a_job_hold_for_its_old_name(memory_stage: Stage) -> None:
    stage = memory_stage
    module = Module("m")

    @module.job(max_concurrency=4, timeout="1m", aliases=("old",))
    async def job(ctx: object, how: str = "") -> None: ...

    host = await stage.serve(module)
    await stage.client.jobs.override(*JOB, max_concurrency=2)
    await stage.when(lambda: [each.limit for each in host.host.health().jobs] == [2, 2])
    assert isinstance(stage.world, MemoryWorld)
    project = stage.world.cluster.project(stage.world.project)
    assert project.consumer(JobAddress("m", "old")).max_ack_pending == 2
    await stage.client.jobs.pause(*JOB)
    await stage.when(lambda: project.consumer(JobAddress("m", "old")).paused)


async def test_the_ticks_of_a_paused_job_wait_and_are_judged_when_it_goes_on(scene: Scene) -> None:
    await scene.host(Every("10s", misfire_grace="2m"))
    async with JobClient(backend=memory_backend(scene.cluster)) as client:
        await scene.pass_by(25)
        await scene.driven(client.jobs.pause("m", "j", actor="ops"))
        await scene.pass_by(1)
        before, count = await scene.record(), len(scene.calls)
        await scene.pass_by(600)
        after = await scene.record()
        assert len(scene.calls) == count
        assert after.cursor == before.cursor, "nothing is decided"
        await scene.host(Every("10s", misfire_grace="2m"))  # nor by one that starts
        await scene.pass_by(30)
        assert len(scene.calls) == count
        resumed = scene.cluster.now()
        await scene.driven(client.jobs.resume("m", "j", actor="ops"))
        await scene.pass_by(2)
    assert len(scene.calls) == count + 1, "several that are due are one run"
    assert resumed.timestamp() - scene.due[-1] <= 12, "the latest"
    counters = (await scene.record()).counters
    assert counters.missed - before.counters.missed >= 50, "those past their grace"
    assert counters.coalesced - before.counters.coalesced >= 10, "those within"
    await scene.pass_by(30)
    assert len(scene.calls) >= count + 3


async def test_a_host_inside_a_program_that_is_asked_to_drain_stays(memory_stage: Stage) -> None:
    stage = memory_stage
    host, other = await stage.host(), await stage.host()
    running = await stage.trigger("wait gate")
    await stage.when(lambda: stage.play.of(running))
    asked = host if stage.play.of(running)[0].host == "h0" else other
    answer = await stage.client.hosts.drain(asked.host.host_id, actor="ops")
    assert (answer.running, answer.closes, answer.again) == (1, False, False)
    await stage.when(lambda: asked.host.health().state == "draining")
    assert (await stage.client.hosts.drain(asked.host.host_id)).again
    runs = [await stage.trigger("return") for _ in range(6)]
    for run in runs:
        assert (await stage.ended(run)).status is RunStatus.SUCCEEDED
    rest = host if asked is other else other
    assert {call.host for run in runs for call in stage.play.of(run)} == {f"h{stage.hosts.index(rest)}"}
    assert [each.draining for each in await stage.client.hosts.list()].count(True) == 1
    await stage.world.elapse(5)
    assert stage.play.live == 1, "what runs is not interrupted"
    stage.play.gates["gate"].set()
    assert (await stage.ended(running)).status is RunStatus.SUCCEEDED


@pytest.mark.parametrize("before,after,runs_a_name", [(4, 1, 4), (1, 4, 1)])
async def test_a_limit_ordered_for_a_renamed_job_counts_its_names_together(
    memory_stage: Stage, before: int, after: int, runs_a_name: int
) -> None:
    stage = memory_stage
    module, gate = Module("m"), asyncio.Event()
    live: set[str] = set()
    at_start: list[int] = []

    @module.job(max_concurrency=before, timeout="1m", aliases=("old",))
    async def job(ctx: JobContext) -> None:
        live.add(ctx.run_id)
        at_start.append(len(live))
        await gate.wait()
        await stage.clock.sleep(0.05)
        live.remove(ctx.run_id)

    host = await stage.serve(module)
    runs = [(await stage.trigger("", name), name) for name in ("job", "old") * runs_a_name]
    await stage.when(lambda: len(live) == before)
    await stage.world.rest()
    await stage.client.jobs.override(*JOB, max_concurrency=after)
    await stage.when(lambda: {each.limit for each in host.host.health().jobs} == {after})
    if after > before:
        await stage.when(lambda: len(live) == len(runs), within=0.1)
    gate.set()
    for run, name in runs:
        assert (await stage.ended(run, name)).status is RunStatus.SUCCEEDED
    assert max(at_start[before:]) <= after
