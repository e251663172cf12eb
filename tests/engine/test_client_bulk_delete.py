"""Runs deleted, one and many at a time, over ports in memory: what goes, what shrinks, and what an outage changes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from jetjobs._core.bodies import Body
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.lifecycle import Event
from jetjobs._core.models import RunKey, RunStatus
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import describe_retention
from jetjobs._core.run_changes import ChangeOutcome, RunChange
from jetjobs.errors import AnswerUnknown
from tests.support.client_world import BOOM, SEND, World, failed, outcomes


class TestDelete:
    async def test_active_runs_stay_whatever_is_asked(self, world: World):
        queued = await world.client.get_job("billing", "send").trigger(1)
        running = await world.start(RunKey("billing", "send", "running"))
        assert await world.client.runs.delete(job="send", status="running") == [
            RunChange("running", ChangeOutcome.STILL_ACTIVE, "billing", "send", RunStatus.RUNNING)
        ]
        assert outcomes(await world.client.runs.delete([queued, running])) == {
            queued.run_id: "STILL_ACTIVE",
            "running": "STILL_ACTIVE",
        }
        assert await queued.status() is RunStatus.QUEUED

    async def test_old_ones_go_with_their_payloads(self, world: World):
        run = (await world.client.get_job("billing", "send").trigger(1)).key
        message = await world.host.broker.last(f"jetjobs.test.trigger.billing.send.run.{run.run_id}")
        assert message is not None
        claim = await world.host.payloads.put(run.run_id, "in", "d", b"x" * 20_000)
        await world.start(run, payload_body=Body(claim=claim))
        await world.write(run, Event.FAIL, error=BOOM)
        await world.cluster.clock.advance(3600)
        # Not before its message has gone: that would start it again.
        assert outcomes(await world.client.runs.delete(run)) == {run.run_id: "STILL_ACTIVE"}
        await world.host.broker.purge(message.subject, up_to=message.sequence)
        assert outcomes(await world.client.runs.delete(run, dry_run=True)) == {run.run_id: "DELETED"}
        assert (await world.host.payloads.holding()).entries == 1
        assert outcomes(await world.client.runs.delete(status="failed")) == {run.run_id: "DELETED"}
        assert await world.host.runs.get(run) is None
        assert (await world.host.payloads.holding()).entries == 0

    async def test_young_and_promised_ones_shrink_and_go_by_themselves(self, world: World):
        young = await failed(world, "young", "secret")
        assert outcomes(await world.client.runs.delete("young")) == {"young": "SHRUNK"}
        stored = await world.host.runs.get(young)
        assert stored is not None
        assert (stored.record.stub, stored.record.payload_body) == (True, None)
        keyed = await failed(world, "keyed", key="inv-7")
        await world.cluster.clock.advance(3600)
        assert await world.host.runs.get(young) is None
        assert outcomes(await world.client.runs.delete("keyed")) == {"keyed": "SHRUNK"}
        stored = await world.host.runs.get(keyed)
        assert stored is not None
        assert (stored.record.key, stored.record.payload_body) == ("inv-7", None)
        assert outcomes(await world.client.runs.delete("keyed", forget_keys=True)) == {"keyed": "DELETED"}

    @pytest.mark.parametrize("said", [None, JobRetention(keys="2d")])
    async def test_a_key_is_promised_for_as_long_as_the_hosts_keep_it(self, world: World, said: JobRetention | None):
        for host_id, keys in (("h1", "3d"), ("h2", "30d")):
            now, kept = world.cluster.now(), describe_retention(JobRetention(keys=keys))
            host = HostPresence(host_id, "box", 1, now, now, jobs=("other.job",), retention=kept)
            await world.host.catalog.say(host, timedelta(days=40))
        described = None if said is None else describe_retention(said)
        await world.host.catalog.describe(JobDescriptor(*SEND, retention=described, digest="new"))
        keyed = await failed(world, "keyed", key="inv-7")
        await world.cluster.clock.advance(10 * 86_400)
        assert outcomes(await world.client.runs.delete("keyed")) == {"keyed": "DELETED" if said else "SHRUNK"}
        await world.cluster.clock.advance(15 * 86_400)
        assert (await world.host.runs.get(keyed) is None) is (said is not None), "a job's own word comes first"

    async def test_a_record_written_meanwhile_is_looked_at_again(self, world: World):
        run = await failed(world, "a")
        await world.cluster.clock.advance(3600)
        hanging = world.mine.fail("runs.delete", when="hang")
        deleting = asyncio.create_task(world.client.runs.delete(run))
        await hanging.reached.wait()
        stored = await world.host.runs.get(run)
        assert stored is not None
        await world.host.runs.update(stored.record, stored.revision)
        hanging.release()
        assert outcomes(await deleting) == {"a": "DELETED"}


class TestDeleteThroughOutages:
    """A delete waits an outage out as every other call does, and knows its own writes again."""

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_stub_is_written(self, world: World, when: Any):
        run = await failed(world, "young")
        world.mine.fail("runs.update", when=when, times=2)
        assert outcomes(await world.client.runs.delete("young")) == {"young": "SHRUNK"}
        stored = await world.host.runs.get(run)
        assert stored is not None
        assert stored.record.stub

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_record_goes(self, world: World, when: Any):
        run = await failed(world, "old")
        await world.cluster.clock.advance(3600)
        world.mine.fail("runs.delete", when=when)
        assert outcomes(await world.client.runs.delete("old")) == {"old": "DELETED"}
        assert await world.host.runs.get(run) is None

    @pytest.mark.parametrize("age", [0, 3600])
    async def test_large_bodies_go_though_the_answer_was_lost(self, world: World, age: int):
        run = (await world.client.get_job("billing", "send").trigger(1)).key
        message = await world.host.broker.last(f"jetjobs.test.trigger.billing.send.run.{run.run_id}")
        assert message is not None
        await world.host.broker.purge(message.subject, up_to=message.sequence)
        claim = await world.host.payloads.put(run.run_id, "in", "d", b"x" * 20_000)
        await world.start(run, payload_body=Body(claim=claim))
        await world.write(run, Event.FAIL, error=BOOM)
        await world.cluster.clock.advance(age)
        world.mine.fail("runs.delete" if age else "runs.update", when="after")
        (told,) = await world.client.runs.delete(run)
        assert told.ok
        assert (await world.host.payloads.holding()).entries == 0

    async def test_what_is_never_confirmed_ends_in_time(self, world: World):
        await failed(world, "young")
        world.mine.fail("runs.update", times=None, error=AnswerUnknown("lost"))
        async with asyncio.timeout(10):
            (told,) = await world.client.runs.delete("young", timeout=0.3)
        assert isinstance(told.error, AnswerUnknown)

    async def test_many_are_waited_for_too(self, world: World):
        for n in range(5):
            await failed(world, f"r{n}")
        world.mine.fail("runs.update", times=7)
        assert set(outcomes(await world.client.runs.delete(job="send")).values()) == {"SHRUNK"}

    async def test_one_that_somebody_else_let_go_is_no_failure(self, world: World):
        run = await failed(world, "a")
        await world.cluster.clock.advance(3600)
        hanging = world.mine.fail("runs.get", when="hang")
        deleting = asyncio.create_task(world.client.runs.delete(status="failed"))
        await hanging.reached.wait()
        stored = await world.host.runs.get(run)
        assert stored is not None
        await world.host.runs.delete(run, stored.revision)
        hanging.release()
        assert await deleting == []

    @pytest.mark.parametrize("verb", ["delete", "retry"])
    async def test_a_look_longer_than_the_timeout_leaves_time_for_the_rest(self, world: World, verb: str):
        await failed(world, "a")
        looking = world.mine.fail("runs.newest", when="hang")
        changing = asyncio.create_task(getattr(world.client.runs, verb)(job="send", timeout=1))
        await looking.reached.wait()
        await asyncio.sleep(1.1)  # the time itself
        looking.release()
        assert [each.ok for each in await changing] == [True]
