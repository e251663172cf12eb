"""A host that is closed, by somebody who doesn't wait for it."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs import HostSettings
from jetjobs._core.models import RunStatus
from tests.engine.host.stage import Stage
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
