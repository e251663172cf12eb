"""Who may start a run whose host went silent, and when."""

from __future__ import annotations

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from jetjobs import HostSettings, JobContext, JobRetention, Module
from jetjobs._core import names
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import Owner, RunKey, RunRecord, RunStatus
from tests.engine.host.stage import Hosted, Stage
from tests.support.worlds import MemoryWorld

SLOW = HostSettings(ack_wait=30, heartbeat_every=10)


def cut(hosted: Hosted) -> None:
    hosted.connection.link.cut()  # type: ignore[attr-defined]  # a MemoryBackend


def heal(hosted: Hosted) -> None:
    hosted.connection.link.heal()  # type: ignore[attr-defined]


async def test_a_fenced_handler_that_still_cleans_up_is_waited_for(memory_stage: Stage) -> None:
    """Its host is back in time to answer the ask: the run is held for as long as the handler's code runs."""
    stage = memory_stage
    first = await stage.host()
    run_id = await stage.trigger("linger")
    await stage.when(lambda: stage.play.of(run_id))
    await stage.host()
    await stage.world.elapse(1.5)  # the second host is connected for longer than an ack wait
    cut(first)
    await stage.when(lambda: first.fenced)  # two thirds of the ack wait; the third that is left brings it back
    heal(first)
    await stage.world.elapse(5.0)
    assert len(stage.play.of(run_id)) == 1, "never two live attempts of one run"
    record = await stage.record(run_id)
    assert record is not None
    assert (record.status, record.starts) == (RunStatus.RUNNING, 1)
    stage.play.gates["cleaned"].set()
    await stage.when(lambda: len(stage.play.of(run_id)) == 2)
    assert stage.play.live == 1


async def test_a_host_back_in_time_keeps_its_run(memory_stage: Stage) -> None:
    stage = memory_stage
    first = await stage.host()
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: stage.play.of(run_id))
    await stage.host()
    await stage.world.elapse(1.5)
    for _ in range(5):
        cut(first)
        await stage.world.elapse(0.3)
        heal(first)
        await stage.world.elapse(0.5)
    stage.play.gates["it"].set()
    record = await stage.ended(run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    await stage.retired(run_id)


async def test_nobody_takes_over_within_an_ack_wait_of_its_own_connect(memory_stage: Stage) -> None:
    stage = memory_stage
    first = await stage.host()
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: stage.play.of(run_id))
    cut(first)
    await stage.world.elapse(0.95)  # fenced, and about to be delivered again
    await stage.host()
    await stage.world.elapse(0.9)
    assert len(stage.play.of(run_id)) == 1
    await stage.when(lambda: len(stage.play.of(run_id)) == 2, within=3)
    assert stage.play.live == 1


async def test_an_outcome_that_comes_after_the_run_was_taken_over_is_not_saved(memory_stage: Stage) -> None:
    """Nothing told its host before: the handler ends between two heartbeats."""
    stage = memory_stage
    await stage.host(settings=SLOW)
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: stage.play.of(run_id))
    stored = await stage.client_ports.runs.get(RunKey("m", "job", run_id))
    assert stored is not None
    taken = stored.record.but(claim="another", host_id="other", starts=2)
    await stage.client_ports.runs.update(taken, stored.revision)
    stage.play.gates["it"].set()
    await stage.when(lambda: stage.play.of(run_id)[0].how)
    await stage.world.elapse(0.3)  # and no redelivery yet
    assert await stage.record(run_id) == taken


async def test_an_outage_of_minutes_starts_nothing_twice(memory_stage: Stage) -> None:
    stage = memory_stage
    world = stage.world
    assert isinstance(world, MemoryWorld)
    await stage.host()
    runs = [await stage.trigger("wait it") for _ in range(3)]
    await stage.when(lambda: len(stage.play.calls) == 3)
    await stage.host()
    world.cluster.stop()
    await world.elapse(300.0)
    world.cluster.start()
    await world.elapse(5.0)
    assert len(stage.play.calls) == 3
    stage.play.gates["it"].set()
    for run_id in runs:
        record = await stage.ended(run_id)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        await stage.retired(run_id)


@pytest.mark.parametrize("outage", [1.0, 1.1, 1.2, 1.3, 1.4, 1.5])
async def test_whenever_the_broker_comes_back_there_is_time_to_reconnect(memory_stage: Stage, outage: float) -> None:
    """Half an ack wait, wherever between two looks at the broker it was back."""
    stage = memory_stage
    assert isinstance(stage.world, MemoryWorld)
    first = await stage.host()
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: stage.play.of(run_id))
    await stage.host()
    stage.world.cluster.stop()
    await stage.world.elapse(outage)
    cut(first)
    stage.world.cluster.start()
    await stage.world.elapse(0.5)
    heal(first)
    await stage.world.elapse(3.0)
    assert (len(stage.play.of(run_id)), stage.play.live) == (1, 1)
    stage.play.gates["it"].set()
    assert (await stage.ended(run_id)).starts == 1


async def test_three_reapers_make_one_end(stage: Stage) -> None:
    """The record says RUNNING, its host is gone and so is its message: nothing will ever redeliver it."""
    run_id = await orphan(stage, RunStatus.RUNNING)
    hosts = [await stage.host() for _ in range(3)]
    record = await stage.ended(run_id, "once")
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.message.startswith("lost: no heartbeat since ")
    await stage.world.elapse(2.0)
    client = await stage.client_ports.runs.get(record.run_key)
    assert client is not None
    assert client.record == record
    assert sum(hosted.ports.calls["runs.update"] for hosted in hosts) >= 1
    assert not stage.play.calls


async def test_a_reaped_run_is_kept_as_its_own_job_says(memory_stage: Stage) -> None:
    """Also by a host that has no such job."""
    stage = memory_stage
    module, other = Module("m"), Module("other")

    @module.job(timeout="1m", retention=JobRetention(finished="30d"))
    async def once(ctx: JobContext) -> None: ...

    @other.job(timeout="1m")
    async def nothing(ctx: JobContext) -> None: ...

    described = await stage.serve(module)
    await stage.driven(described.host.close())
    run_id = await orphan(stage, RunStatus.RUNNING)
    reaping = await stage.serve(other)
    assert (await stage.ended(run_id, "once")).status is RunStatus.FAILED
    await stage.driven(reaping.host.close())
    await stage.world.elapse(20 * 86_400)
    assert await stage.record(run_id, "once") is not None
    await stage.world.elapse(20 * 86_400)
    assert await stage.record(run_id, "once") is None


async def test_a_waiting_run_whose_message_is_gone_is_failed(stage: Stage) -> None:
    run_id = await orphan(stage, RunStatus.RETRYING)
    await stage.host()
    await stage.host()
    record = await stage.ended(run_id, "once")
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert "its retry was due and its message is gone" in record.error.message


async def test_a_lost_run_that_was_to_be_cancelled_is_cancelled(stage: Stage) -> None:
    run_id = await orphan(stage, RunStatus.RUNNING, cancel_asked=True)
    await stage.host()
    assert (await stage.ended(run_id, "once")).status is RunStatus.CANCELLED


async def test_a_run_whose_owner_answers_is_left(stage: Stage) -> None:
    """Its record is stale, because its host can't write, and it has no attempt left; but the host holds it."""
    first = await stage.host()
    run_id = await stage.trigger("wait it", "once")
    await stage.when(lambda: stage.play.of(run_id))
    second = await stage.host()
    failure = first.ports.fail("runs.update", times=None)
    await stage.world.elapse(4.5)
    record = await stage.record(run_id, "once")
    assert record is not None
    assert record.status is RunStatus.RUNNING
    assert second.ports.calls["broker.ask_owner"] >= 1, "it was in doubt, and its owner was asked"
    failure.release()
    stage.play.gates["it"].set()
    assert (await stage.ended(run_id, "once")).status is RunStatus.SUCCEEDED


async def test_an_outage_in_the_middle_of_a_scan(memory_stage: Stage) -> None:
    """The reaper doubts a run just as everybody reconnects: its owner gets an ack wait to come back, and answers."""
    stage = memory_stage
    assert isinstance(stage.world, MemoryWorld)
    first = await stage.host()
    run_id = await stage.trigger("wait it", "once")
    await stage.when(lambda: stage.play.of(run_id))
    second = await stage.host()
    await stage.world.elapse(1.5)
    stale = first.ports.fail("runs.update", times=None)  # no heartbeat for longer than lost_after
    scan = second.ports.fail("runs.scan", when="hang", skip=3)
    await stage.when(lambda: scan.hits)
    await stage.world.elapse(3.5)
    stage.world.cluster.stop()
    await stage.world.elapse(1.0)
    cut(first)
    stage.world.cluster.start()
    scan.release()
    await stage.world.elapse(0)  # the others are back, and the reaper has gone on, before the owner is
    heal(first)
    stale.release()
    await stage.world.elapse(2.0)
    stage.play.gates["it"].set()
    record = await stage.ended(run_id, "once")
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)


async def orphan(stage: Stage, status: RunStatus, **changes: object) -> str:
    """A run's record left behind by a host that is gone, with no message."""
    broker = stage.client_ports.broker
    await broker.measure_clock()
    long_ago = broker.now() - timedelta(minutes=1)
    record = RunRecord(
        "orphan",
        "m",
        "once",
        status,
        starts=1,
        claim="gone",
        owner=Owner(999_999, long_ago, 1, "gone-host"),
        host_id="gone-host",
        created_at=long_ago,
        started_at=long_ago,
        heartbeat_at=long_ago,
        retry_at=long_ago if status is RunStatus.RETRYING else None,
        turn=2 if status is RunStatus.RETRYING else 1,
    )
    await stage.client_ports.runs.create(record.but(**changes) if changes else record)
    assert await stage.client_ports.runs.get(RunKey("m", "once", "orphan")) is not None
    return "orphan"


async def test_a_message_only_a_newer_release_can_read_stays_that_of_its_run(stage: Stage) -> None:
    """It was started by a host of that release: acked by another one, its slot would be free under the handler."""
    broker, key = stage.client_ports.broker, RunKey("m", "once", "newer")
    hosted = await stage.host()
    await stage.client.jobs.pause("m", "once")
    await stage.when(lambda: any(job.paused for job in hosted.host.health().jobs))
    subject = names.trigger_subject(broker.project, key)
    await broker.store(Outgoing(subject, {"Jetjobs-Trigger": '{"kind": "telepathy"}'}), expected=0)
    message = await broker.last(subject)
    assert message is not None
    owner = Owner(message.sequence, message.stored_at, 0, "newer-host")
    running = RunRecord("newer", "m", "once", RunStatus.RUNNING).but(
        starts=1, claim="theirs", owner=owner, started_at=broker.now(), heartbeat_at=broker.now()
    )
    await stage.client_ports.runs.create(running)
    with capture_logs() as said:
        await stage.client.jobs.resume("m", "once")
        await stage.when(lambda: [entry for entry in said if entry["event"] == "bad_trigger"])
        await stage.world.rest()
    assert await broker.last(subject) == message
    assert await stage.record("newer", "once") == running


async def test_a_cancel_rings_at_once(memory_stage: Stage) -> None:
    stage = memory_stage
    await stage.host(settings=SLOW)
    run_id = await stage.trigger("wait never")
    await stage.when(lambda: stage.play.of(run_id))
    await stage.client.run("m", "job", run_id).cancel()
    await stage.world.elapse(0.1)
    assert stage.play.of(run_id)[0].how == "CancelledError"
    assert (await stage.ended(run_id)).status is RunStatus.CANCELLED


async def test_a_ring_during_a_heartbeat_is_not_lost(memory_stage: Stage) -> None:
    """That heartbeat may have passed the broker before the cancel: another one looks again."""
    stage = memory_stage
    hosted = await stage.host(settings=SLOW)
    run_id = await stage.trigger("wait never")
    await stage.when(lambda: stage.play.of(run_id))
    hanging = hosted.ports.fail("runs.update", when="hang", times=1)
    await stage.world.elapse(15)
    assert hanging.hits == 1
    before = hosted.ports.calls["runs.update"]
    await stage.client_ports.broker.ring_cancel(RunKey("m", "job", run_id))
    await stage.world.elapse(0.1)
    assert hosted.ports.calls["runs.update"] == before
    hanging.release()
    await stage.world.elapse(0.1)
    assert hosted.ports.calls["runs.update"] == before + 1
