"""Large bodies go with their runs, and never before."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.bodies import Body
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import RunKey, RunStatus
from tests.support.upkeep import HOUR, SEND, Upkeep

LARGE = b"x" * 100


async def large(upkeep: Upkeep, run_id: str) -> Body:
    return Body(claim=await upkeep.ports.payloads.put(run_id, "in", "a", LARGE))


async def bodies(upkeep: Upkeep) -> set[str]:
    return {run_id async for run_id in upkeep.ports.payloads.run_ids()}


async def test_large_bodies_go_with_their_runs(upkeep: Upkeep):
    ago = timedelta(days=9)
    for run_id, key in {"k-gone": "a", "0" * 26: None, "chosen": None}.items():
        await upkeep.finished(run_id, ago, payload_body=await large(upkeep, run_id), key=key)
    await upkeep.finished("k-stays", HOUR, payload_body=await large(upkeep, "k-stays"), key="b")
    await upkeep.one_pass()
    assert await upkeep.ids() == ["k-stays"]
    assert await bodies(upkeep) == {"k-stays", "chosen"}, "another job may have a run of an id that was chosen outside"
    await upkeep.cluster.clock.advance(HOUR)
    await upkeep.one_pass()
    assert await bodies(upkeep) == {"k-stays"}


async def test_a_stub_lets_its_large_bodies_go(upkeep: Upkeep):
    for number in range(5):
        body = await large(upkeep, f"k-{number}")
        await upkeep.finished(f"k-{number}", number * HOUR + HOUR, key="a", payload_body=body)
    await upkeep.one_pass()
    assert await bodies(upkeep) == {"k-0", "k-1", "k-2"}


async def test_bodies_without_record_and_message_go_after_an_hour(upkeep: Upkeep):
    for run_id in ("orphan", "queued", "delayed", "ended"):
        await large(upkeep, run_id)
    project = upkeep.ports.broker.project
    await upkeep.ports.broker.store(Outgoing(names.trigger_subject(project, RunKey(*SEND, "queued"))))
    await upkeep.ports.broker.store(Outgoing(names.retry_subject(project, RunKey(*SEND, "delayed"), 1)))
    await upkeep.finished("ended", HOUR)
    await upkeep.cluster.clock.advance(timedelta(minutes=45))
    await upkeep.one_pass()
    assert await bodies(upkeep) == {"orphan", "queued", "delayed", "ended"}
    await large(upkeep, "young")
    await upkeep.one_pass()
    assert await bodies(upkeep) == {"queued", "delayed", "ended", "young"}
    await upkeep.cluster.clock.advance(HOUR)
    await upkeep.one_pass()
    assert await bodies(upkeep) == {"queued", "delayed", "ended"}


async def test_a_run_that_got_its_record_after_the_survey_keeps_its_bodies(upkeep: Upkeep):
    await large(upkeep, "late")
    await upkeep.cluster.clock.advance(2 * HOUR)
    hang = upkeep.ports.fail("payloads.newest", when="hang")
    passing = asyncio.ensure_future(upkeep.one_pass())
    await hang.reached.wait()
    await upkeep.finished("late", timedelta(), status=RunStatus.RUNNING)
    hang.release()
    await passing
    assert await bodies(upkeep) == {"late"}


async def test_of_very_many_bodies_each_has_its_turn(upkeep: Upkeep, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("jetjobs._engine.pruner._SUSPECTS", 8)
    monkeypatch.setattr("jetjobs._engine.pruner._ORPHANS", 5)
    for number in range(40):
        await large(upkeep, f"o{number}")
    await upkeep.cluster.clock.advance(HOUR)
    passes = 0
    while await bodies(upkeep):
        before = len(await bodies(upkeep))
        await upkeep.one_pass()
        assert before - len(await bodies(upkeep)) <= 5
        passes += 1
        assert passes < 60
    assert passes >= 8
