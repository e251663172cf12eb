"""Cancelling, wherever the run is: B105."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig, eventually

pytestmark = pytest.mark.faults


async def test_b105_cancel_in_every_state(rig: Rig) -> None:
    await rig.host()
    client = await rig.client()
    running = await rig.trigger("gate", 30)
    queued = await rig.trigger("gate", 30)
    await rig.journal.started(running)
    for outcome in ("CANCELLED", "ALREADY_FINISHED"):  # twice
        assert (await client.run("basic", "gate", queued).cancel()).outcome.name == outcome
    asked_at = time.monotonic()
    for _ in range(2):
        assert (await client.run("basic", "gate", running).cancel()).outcome.name in {"ASKED", "ALREADY_FINISHED"}
    end = await rig.journal.ended(running, within=20)
    assert (end.reason, end.at - asked_at < 10) == ("cancel", True)
    for run_id in (running, queued):
        assert (await rig.ended("gate", run_id)).status is RunStatus.CANCELLED
    after, _ = await rig.run("gate", 0)
    assert after.status is RunStatus.SUCCEEDED
    assert not rig.journal.starts(queued)
    assert (await client.run("basic", "gate", after.run_id).cancel()).outcome.name == "ALREADY_FINISHED"
    assert (await rig.record("gate", after.run_id)).status is RunStatus.SUCCEEDED


async def test_b105_cancel_of_a_thread_and_of_a_waiting_run(rig: Rig) -> None:
    await rig.host()
    client = await rig.client()
    run_id = await rig.trigger("spin3", 30)
    await rig.journal.started(run_id)
    await client.run("basic", "spin3", run_id).cancel()
    end = await rig.journal.ended(run_id, within=20)
    assert (end.how, end.reason) == ("JobInterrupted", "cancel")
    assert (await rig.ended("spin3", run_id)).status is RunStatus.CANCELLED
    waiting = await rig.trigger("one_at_a_time", "retry in a minute")

    async def waits() -> bool:
        return (await rig.record("one_at_a_time", waiting)).status is RunStatus.RETRYING

    await eventually(waits)
    await client.run("basic", "one_at_a_time", waiting).cancel()
    assert (await rig.ended("one_at_a_time", waiting, 30)).status is RunStatus.CANCELLED
    later = await rig.trigger("gate", 0, delay=timedelta(seconds=1))
    await client.run("basic", "gate", later).cancel()
    assert (await rig.ended("gate", later, 30)).status is RunStatus.CANCELLED
    after, _ = await rig.run("gate", 0, delay=timedelta(seconds=1.3))
    assert after.status is RunStatus.SUCCEEDED
    assert not rig.journal.starts(later)
    assert len(rig.journal.starts(waiting)) == 1
