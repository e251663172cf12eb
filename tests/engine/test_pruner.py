"""The pruner over ports in memory that can fail, under a clock that stands still."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.bodies import Body
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.messages import Outgoing, Trigger
from jetjobs._core.models import JobAddress, RunKey, RunStatus
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import describe_retention
from jetjobs._engine.held import HeldRun
from jetjobs._ports import Delivery
from jetjobs.config import HostSettings
from jetjobs.errors import BrokerUnavailable
from tests.support.upkeep import HOUR, SEND, Upkeep


async def test_a_pass_repeats_its_batches_until_the_job_is_under_its_number(upkeep: Upkeep):
    for number in range(10):
        await upkeep.finished(f"r{number}", number * HOUR + HOUR)
    await upkeep.finished("other", HOUR, JobAddress("billing", "other"))
    await upkeep.one_pass()
    assert await upkeep.ids() == ["other", "r0", "r1", "r2"]
    assert upkeep.ports.calls["broker.in_stream"] == 4, "seven went, two at a time"


async def test_ages_numbers_and_policies_of_jobs(upkeep: Upkeep):
    upkeep.pruner = upkeep.made(other=JobRetention(finished="30d", max_per_job=1))
    other = JobAddress("billing", "other")
    await upkeep.finished("old", timedelta(days=8))
    await upkeep.finished("new", timedelta(days=6))
    await upkeep.finished("skipped", 2 * HOUR, status=RunStatus.SKIPPED)
    await upkeep.finished("skipped-now", HOUR / 2, status=RunStatus.SKIPPED)
    await upkeep.finished("old-other", timedelta(days=8), other)
    await upkeep.finished("older-other", timedelta(days=9), other)
    await upkeep.one_pass()
    assert await upkeep.ids() == ["new", "old-other", "skipped-now"]


async def test_a_job_that_another_host_declared_goes_by_its_own_policy(upkeep: Upkeep):
    other = JobAddress("reports", "yearly")
    policy = describe_retention(JobRetention(finished="90d", max_per_job=8))
    await upkeep.eyes.catalog.describe(JobDescriptor(*other, retention=policy, digest="d"))
    for number in range(10):
        await upkeep.finished(f"r{number}", timedelta(days=20 + number), other)
    await upkeep.one_pass()
    assert await upkeep.ids() == [f"r{number}" for number in range(8)]


async def test_an_active_run_is_never_touched(upkeep: Upkeep):
    for status in (RunStatus.RUNNING, RunStatus.RETRYING):
        await upkeep.finished(f"active-{status}", timedelta(days=90), status=status)
    for number in range(5):
        await upkeep.finished(f"r{number}", timedelta(days=9))
    await upkeep.one_pass()
    assert await upkeep.ids() == ["active-RETRYING", "active-RUNNING"]


async def test_a_keyed_run_over_the_number_becomes_a_stub_that_goes_by_itself(upkeep: Upkeep):
    for number in range(6):
        await upkeep.finished(f"r{number}", number * HOUR + HOUR, key=f"k{number}", payload_body=Body(b"\xa1x"))
    await upkeep.one_pass()
    records = await upkeep.records()
    assert sorted(run_id for run_id, record in records.items() if record.stub) == ["r3", "r4", "r5"]
    assert all(record.payload_body is None for record in records.values() if record.stub)
    assert records["r5"].key == "k5"
    await upkeep.one_pass()
    assert await upkeep.records() == records
    await upkeep.cluster.clock.advance(timedelta(days=7) - 4 * HOUR - timedelta(minutes=20))
    assert await upkeep.ids() == ["r0", "r1", "r2", "r3"]
    await upkeep.cluster.clock.advance(5 * HOUR)
    assert await upkeep.ids() == []


@pytest.mark.parametrize("where", ["trigger", "schedule"])
async def test_a_record_stays_while_a_message_could_start_its_run_again(upkeep: Upkeep, where: str):
    held = await upkeep.finished("held", timedelta(days=9), key="k")
    await upkeep.finished("free", timedelta(days=9))
    subject = {
        "trigger": names.trigger_subject("test", held.run_key),
        "schedule": names.retry_subject("test", held.run_key, 2),
    }[where]
    sequence = await upkeep.ports.broker.store(Outgoing(subject))
    await upkeep.one_pass()
    assert await upkeep.ids() == ["held"]
    await upkeep.one_pass()
    assert await upkeep.ids() == ["held"], "it is looked at again, though nobody wrote"
    await upkeep.ports.broker.purge(subject, up_to=sequence)
    await upkeep.one_pass()
    assert await upkeep.ids() == []


async def test_an_expired_run_goes_whatever_lies_in_the_stream(upkeep: Upkeep):
    expired = upkeep.cluster.now() - timedelta(days=1)
    for number in range(4):
        record = await upkeep.finished(f"r{number}", timedelta(days=8), expires_at=expired)
        await upkeep.ports.broker.store(Outgoing(names.trigger_subject("test", record.run_key)))
    await upkeep.one_pass()
    assert await upkeep.ids() == []


async def test_a_run_that_a_schedule_waits_for_stays(upkeep: Upkeep):
    upkeep.named = {"s-1"}
    for number in range(3):
        await upkeep.finished(f"s-{number}", timedelta(days=9))
    await upkeep.one_pass()
    assert await upkeep.ids() == ["s-1"]


async def test_a_record_that_changed_meanwhile_is_left_alone(upkeep: Upkeep):
    await upkeep.finished("plain", timedelta(days=9))
    await upkeep.finished("keyed", timedelta(days=9), key="k", status=RunStatus.FAILED)
    upkeep.settings = HostSettings(retention=JobRetention(finished="1d", keys="30d", max_per_job=1))
    upkeep.pruner = upkeep.made()
    reached = upkeep.ports.fail("broker.in_stream", when="hang")
    passing = asyncio.ensure_future(upkeep.one_pass())
    await reached.reached.wait()
    for run_id in ("plain", "keyed"):
        stored = await upkeep.ports.runs.get(RunKey(*SEND, run_id))
        assert stored is not None
        await upkeep.ports.runs.update(replace(stored.record, host_id="somebody"), stored.revision)
    reached.release()
    await passing
    assert {record.host_id for record in (await upkeep.records()).values()} == {"somebody"}
    await upkeep.one_pass()
    assert {run_id: record.stub for run_id, record in (await upkeep.records()).items()} == {"keyed": True}


async def test_one_host_prunes_at_a_time_and_the_next_when_it_dies(upkeep: Upkeep):
    other = Upkeep(upkeep.cluster, host="h2")
    for number in range(6):
        await upkeep.finished(f"r{number}", number * HOUR + HOUR)
    hang = upkeep.ports.fail("runs.delete", when="hang", times=None)
    passing = asyncio.ensure_future(upkeep.pruner.one_pass())
    await hang.reached.wait()
    await other.pruner.one_pass()
    assert other.looked == 0
    passing.cancel()
    await asyncio.wait([passing])
    await other.one_pass()
    assert await other.ids() == ["r0", "r1", "r2"]


async def test_two_at_once_do_no_harm(upkeep: Upkeep):
    other = Upkeep(upkeep.cluster, host="h2")
    for number in range(20):
        await upkeep.finished(f"r{number:02}", number * HOUR + HOUR, key="k" if number % 2 else None)
    # A pass that takes longer than its lease: the next one begins beside it.
    hang = upkeep.ports.fail("broker.in_stream", when="hang")
    passing = asyncio.ensure_future(upkeep.pruner.one_pass())
    await hang.reached.wait()
    await other.one_pass()
    hang.release()
    await passing
    records = await upkeep.records()
    assert sorted(run_id for run_id, record in records.items() if not record.stub) == ["r00", "r01", "r02"]
    assert sorted(run_id for run_id, record in records.items() if record.stub) == [f"r{n:02}" for n in range(3, 20, 2)]


async def test_one_that_comes_late_takes_no_more_than_is_too_much(upkeep: Upkeep):
    other = Upkeep(upkeep.cluster, host="h2")
    for number in range(10):
        await upkeep.finished(f"r{number}", number * HOUR + HOUR)
    # It has counted ten, and looks for the seven oldest when the other one has left three.
    hang = upkeep.ports.fail("runs.scan", when="hang", skip=1)
    passing = asyncio.ensure_future(upkeep.pruner.one_pass())
    await hang.reached.wait()
    await other.one_pass()
    assert await other.ids() == ["r0", "r1", "r2"]
    hang.release()
    await passing
    assert await other.ids() == ["r0", "r1", "r2"]


async def test_where_nobody_wrote_and_nothing_is_due_nothing_is_read(upkeep: Upkeep):
    for number in range(4):
        await upkeep.finished(f"r{number}", number * HOUR + HOUR)
    await upkeep.one_pass()
    assert await upkeep.ids() == ["r0", "r1", "r2"]
    await upkeep.one_pass()
    looked, upkeep.ports.calls["runs.scan"] = upkeep.looked, 0
    assert looked == 1 + 1 + 1, "all; the job with too many; all, to see that it is enough"
    for _ in range(5):
        await upkeep.one_pass()
    assert upkeep.looked == 0
    await upkeep.finished("skipped", HOUR / 2, status=RunStatus.SKIPPED)
    await upkeep.one_pass()
    await upkeep.one_pass()
    assert (upkeep.looked, await upkeep.ids()) == (1 + 1 + 1, ["r0", "r1", "skipped"])
    await upkeep.one_pass()
    await upkeep.one_pass()
    assert (upkeep.looked, await upkeep.ids()) == (3 + 1, ["r0", "r1"])


async def test_an_empty_project_costs_a_lease_and_a_look_at_its_size(upkeep: Upkeep):
    await upkeep.one_pass()
    assert upkeep.ports.calls == {"catalog.lease": 1, "runs.holding": 1, "payloads.holding": 1}


@pytest.mark.parametrize("method", ["catalog.lease", "runs.scan", "broker.in_stream", "runs.delete", "runs.update"])
async def test_a_pass_that_failed_is_made_up_for_by_the_next(upkeep: Upkeep, method: str):
    for number in range(8):
        await upkeep.finished(f"r{number}", number * HOUR + HOUR, key="k" if number % 2 else None)
    upkeep.ports.fail(method)
    with pytest.raises(BrokerUnavailable):
        await upkeep.one_pass()
    await upkeep.one_pass()
    whole = [run_id for run_id, record in (await upkeep.records()).items() if not record.stub]
    assert sorted(whole) == ["r0", "r1", "r2"]


async def test_a_deletion_whose_answer_was_lost_is_no_loss(upkeep: Upkeep):
    for number in range(4):
        await upkeep.finished(f"r{number}", number * HOUR + HOUR)
    upkeep.ports.fail("runs.delete", when="after")
    with pytest.raises(Exception, match="made to fail"):
        await upkeep.one_pass()
    await upkeep.one_pass()
    assert await upkeep.ids() == ["r0", "r1", "r2"]


async def test_a_run_in_hand_here_stays(upkeep: Upkeep):
    """Its outcome is saved and its thread has not ended: its message, a tick's, is on a subject that others share."""
    broker, taken = upkeep.ports.broker, list[Delivery]()
    await broker.ensure_consumer(SEND, 1)
    (await broker.consume(SEND, taken.append)).allow(1)
    await broker.store(Outgoing(names.tick_subject("test", SEND, "s")))
    await upkeep.cluster.clock.settle()
    run = RunKey(*SEND, "s-1")
    held = HeldRun(run, Trigger(run, None, 1, upkeep.cluster.now(), 1), taken[0], 0.0)
    assert upkeep.engine.held.take(held)
    for run_id in ("s-1", "free"):
        await upkeep.finished(run_id, timedelta(days=9))
    await upkeep.one_pass()
    assert await upkeep.ids() == ["s-1"]
    upkeep.engine.held.release(held)
    await upkeep.one_pass()
    assert await upkeep.ids() == []
