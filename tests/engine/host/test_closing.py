"""A host that is closed, by somebody who doesn't wait for it."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from jetjobs import HostSettings, JobContext, JobHost, Module
from jetjobs._core.models import RunStatus
from tests.engine.host.stage import Stage
from tests.support.waiting import PATIENCE
from tests.support.worlds import ACK_WAIT

PATIENT = HostSettings(ack_wait=ACK_WAIT, heartbeat_every=0.3, lost_after=3, drain="1m")


async def test_a_close_that_is_cancelled_lets_everything_go(memory_stage: Stage) -> None:
    stage = memory_stage
    hosted = await stage.host(settings=PATIENT)
    run_id = await stage.trigger("wait gate")
    await stage.when(lambda: stage.play.live == 1)
    hosting = hosted.host._hosting
    assert hosting is not None
    closing = asyncio.ensure_future(hosted.host.close())
    await stage.world.rest()
    assert not closing.done()
    closing.cancel()
    await stage.when(closing.done)
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert stage.play.live == 0
    assert len(hosting.engine.tasks) == 0
    stage.play.gates["gate"].set()
    await stage.host()
    assert (await stage.ended(run_id)).status is RunStatus.SUCCEEDED


async def test_a_close_that_is_cancelled_again_and_again_lets_everything_go(memory_stage: Stage) -> None:
    """As scopes do it that cancel at every await."""
    stage = memory_stage
    hosted = await stage.host(settings=PATIENT)
    await stage.trigger("wait gate")
    await stage.when(lambda: stage.play.live == 1)
    hosting = hosted.host._hosting
    assert hosting is not None
    await _cancelled_again_and_again(hosted.host)
    assert stage.play.live == 0
    assert len(hosting.engine.tasks) == 0
    assert all(service._task is None for service in hosting._services)


async def test_a_close_that_is_cancelled_before_it_stopped_taking_takes_no_more(
    memory_stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call at the gateway may take its seconds to be answered."""
    stage = memory_stage
    hosted = await stage.host(settings=PATIENT)
    for _ in range(8):
        await stage.trigger("wait gate")
    await stage.when(lambda: stage.play.live == 4)
    hosting = hosted.host._hosting
    assert hosting is not None
    answering = asyncio.Event()

    async def stop(patience: float | None = None) -> None:
        if patience is None:
            answering.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(hosting.gateway, "stop", stop)
    closing = asyncio.ensure_future(hosted.host.close())
    await answering.wait()
    closing.cancel()
    await stage.when(closing.done)
    await stage.world.elapse(2)  # longer than an ack wait: all are handed out again
    assert stage.play.live == 0
    assert len(stage.play.calls) == 4
    assert len(hosting.engine.tasks) == 0


@pytest.mark.integration
async def test_who_closes_a_host_whose_close_was_cancelled_does_not_wait_for_ever(nats_url: str, project: str) -> None:
    host = JobHost([Module("m")], nats=nats_url, project=project)
    await host.start()
    await _cancelled_again_and_again(host)
    await asyncio.wait_for(host.close(), PATIENCE)
    await asyncio.wait_for(host.wait_closed(), PATIENCE)


async def test_a_plain_handler_hears_that_its_run_was_let_go(memory_stage: Stage) -> None:
    """Another host may start its next attempt when the ack wait is over."""
    stage = memory_stage
    heard: list[str | None] = []
    started, ended, over = threading.Event(), threading.Event(), threading.Event()
    module = Module("m")

    @module.job(timeout="1h")
    def job(ctx: JobContext) -> None:
        started.set()
        try:
            while not over.is_set():
                time.sleep(0.005)
        finally:
            heard.append(ctx.cancel_reason)
            ended.set()

    hosted = await stage.serve(module, settings=PATIENT)
    run_id = (await stage.client.get_job("m", "job").trigger()).run_id
    await asyncio.to_thread(started.wait, PATIENCE)
    closing = asyncio.ensure_future(hosted.host.close())
    await stage.world.rest()
    closing.cancel()
    await stage.when(closing.done)
    await asyncio.to_thread(ended.wait, PATIENCE)
    over.set()
    assert heard == ["fenced"]
    record = await stage.record(run_id)
    assert record is not None
    assert record.status is RunStatus.RUNNING


async def _cancelled_again_and_again(host: JobHost) -> None:
    closing = asyncio.ensure_future(host.close())
    await asyncio.sleep(0)
    async with asyncio.timeout(PATIENCE):
        while not closing.done():
            closing.cancel()
            await asyncio.sleep(0)
