"""A host that has fewer slots than its jobs may use."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from jetjobs import HostSettings
from jetjobs._core.models import RunStatus
from jetjobs.errors import HostError
from tests.engine.host.stage import Stage

ONE = HostSettings(ack_wait=1, heartbeat_every=0.3, lost_after=3, drain=0.2, interrupt_grace=0.2, capacity=1)


async def test_no_job_starves_beside_a_busy_one(memory_stage: Stage) -> None:
    stage = memory_stage
    await stage.host(settings=ONE)
    busy = [await stage.trigger("sleep 0.05") for _ in range(200)]
    other = await stage.trigger("return", "once")
    with capture_logs() as said:
        await stage.when(lambda: stage.play.of(other), within=2)
        for run_id in busy:
            record = await stage.ended(run_id, within=60)
            assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert len([entry for entry in said if entry["event"] == "host_is_full"]) < 5, "said now and then, not each time"


async def test_a_host_starts_once(memory_stage: Stage) -> None:
    hosted = await memory_stage.host()
    with pytest.raises(HostError, match="is started already"):
        await hosted.host.start()
    assert await memory_stage.ended(await memory_stage.trigger("return"))
    await hosted.host.close()
    with pytest.raises(HostError, match="is closed, and starts once"):
        await hosted.host.start()
    with pytest.raises(HostError, match="is closed"):
        await hosted.host.prepare()  # nobody would close what it opened


async def test_never_more_than_the_capacity(memory_stage: Stage) -> None:
    stage = memory_stage
    await stage.host(settings=ONE)
    runs = [await stage.trigger("sleep 0.3", job) for job in ("job", "once", "timed") for _ in range(4)]
    for job, run_id in zip(["job"] * 4 + ["once"] * 4 + ["timed"] * 4, runs, strict=True):
        while not (record := await stage.record(run_id, job)) or not record.status.is_terminal:
            assert stage.play.live <= 1
            await stage.world.elapse(0.05)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        await stage.retired(run_id, job)
