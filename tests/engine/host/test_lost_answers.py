"""Writes that fail before or after their effect: one start, one outcome, no attempt used wrongly."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from jetjobs import JobContext, JobHost, Module
from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.models import RunKey, RunStatus
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, PayloadInvalidError, StorageFull, WrongRevision
from jetjobs.testing import FailingBackend
from jetjobs.testing.failing import When
from tests.engine.host.stage import SETTINGS, Stage


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["runs.create", "runs.update", "broker.store", "delivery.ack"])
async def test_one_failure_of_any_write(stage: Stage, method: str, when: When) -> None:
    hosted = await stage.host()
    await stage.host()
    failure = hosted.ports.fail(method, when=when, times=1)
    runs = [await stage.trigger("fail 1") for _ in range(6)]
    for run_id in runs:
        record = await stage.ended(run_id)
        assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "attempt 2", 2)
        assert [call.attempt for call in stage.play.of(run_id)] == [1, 2]
        await stage.retired(run_id)
    assert failure.hits == 1


@pytest.mark.parametrize(
    "method,skip", [("runs.create", 0), ("runs.update", 0), ("runs.update", 1), ("broker.store", 0), ("nothing", 0)]
)
async def test_a_lost_answer_waits_for_no_redelivery(memory_stage: Stage, method: str, skip: int) -> None:
    """Redelivery repairs what is left behind too, but an ack wait later."""
    stage = memory_stage
    hosted = await stage.host()
    hosted.ports.fail(method, when="after", skip=skip)
    run_id = await stage.trigger("fail 1")
    assert (await stage.ended(run_id, within=0.7)).starts == 2
    await stage.retired(run_id, within=0.2)


@pytest.mark.parametrize("when", ["before", "after"])
async def test_every_second_answer_is_lost(stage: Stage, when: When) -> None:
    hosted = await stage.host()
    for method in ("runs.create", "runs.update", "runs.get", "broker.store", "broker.last"):
        for skip in (0, 1, 3, 5, 7):
            hosted.ports.fail(method, when=when, times=1, skip=skip)
    runs = [await stage.trigger("fail 2") for _ in range(4)]
    for run_id in runs:
        record = await stage.ended(run_id)
        assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "attempt 3", 3)
        assert [call.attempt for call in stage.play.of(run_id)] == [1, 2, 3]
        await stage.retired(run_id)


async def test_a_cancel_of_a_run_whose_claim_is_in_question(stage: Stage) -> None:
    """The record it is recognised by says so, and nobody rings a second time."""
    hosted = await stage.host()
    hosted.ports.fail("runs.create", when="after")
    unread = hosted.ports.fail("runs.get", when="hang", times=None)
    run_id = await stage.trigger("wait gate")
    await stage.when(unread.reached.is_set)
    await stage.client.run("m", "job", run_id).cancel()
    unread.release()
    assert (await stage.ended(run_id)).status is RunStatus.CANCELLED
    assert not stage.play.of(run_id)
    await stage.retired(run_id)


async def test_a_host_that_closes_while_a_claim_is_in_question(stage: Stage) -> None:
    """The run goes back, as an interrupted one, instead of starting where nobody stops it."""
    hosted = await stage.host()
    claiming = hosted.ports.fail("runs.create", when="hang")
    run_id = await stage.trigger("wait gate")
    await stage.when(claiming.reached.is_set)
    closing = asyncio.ensure_future(hosted.host.close())
    await stage.world.elapse(0.5)  # longer than the drain time, at which the order to stop is given
    claiming.release()
    await stage.when(closing.done)
    await closing
    record = await stage.reached(run_id, RunStatus.RETRYING)
    assert (record.starts, record.interruptions) == (1, 1)
    assert not stage.play.of(run_id)
    stage.play.gates.setdefault("gate", asyncio.Event()).set()
    await stage.host()
    assert (await stage.ended(run_id)).result == "attempt 1"


async def test_an_answer_lost_on_the_trigger(stage: Stage) -> None:
    await stage.host()
    failure = stage.client_ports.fail("broker.store", when="after", times=2)
    run_id = await stage.trigger("return")
    record = await stage.ended(run_id)
    assert (record.status, record.starts, failure.hits) == (RunStatus.SUCCEEDED, 1, 2)
    assert len(stage.play.calls) == 1


async def test_records_out_of_reach_at_delivery_use_no_attempt(stage: Stage) -> None:
    hosted = await stage.host()
    failure = hosted.ports.fail("runs.create", times=None)
    run_id = await stage.trigger("return")
    await stage.when(lambda: failure.hits >= 3)
    assert not stage.play.calls
    assert await stage.record(run_id) is None
    failure.release()
    record = await stage.ended(run_id)
    assert (record.status, record.starts, record.attempt) == (RunStatus.SUCCEEDED, 1, 1)
    assert len(stage.play.calls) == 1


async def test_a_claim_whose_answer_stays_unknown_starts_nothing_before_it_is_known(stage: Stage) -> None:
    hosted = await stage.host()
    hosted.ports.fail("runs.create", when="after")
    reads = hosted.ports.fail("runs.get", times=None)
    run_id = await stage.trigger("return")
    await stage.when(lambda: reads.hits >= 3)
    assert not stage.play.calls
    reads.release()
    record = await stage.ended(run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert len(stage.play.calls) == 1


async def test_a_claim_in_question_for_longer_than_the_ack_wait_is_neither_run_twice_nor_lost(stage: Stage) -> None:
    """Nothing runs yet that could be stopped; once the record can be read again the handler starts, and counts."""
    first = await stage.host()
    first.ports.fail("runs.create", when="after")
    failures = [first.ports.fail(method, times=None) for method in ("runs.get", "delivery.renew")]
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: failures[0].hits >= 1)
    await stage.host()
    await stage.world.elapse(4.0)
    assert not stage.play.calls
    for failure in failures:
        failure.release()
    await stage.when(lambda: stage.play.calls)
    stage.play.gates["it"].set()
    record = await stage.ended(run_id)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 1, "attempt 1")
    assert len(stage.play.calls) == 1
    await stage.retired(run_id)


async def test_records_out_of_reach_at_completion(stage: Stage) -> None:
    """Held, renewed and not reaped by the host beside it, for longer than lost_after; then saved, not run again."""
    first = await stage.host()
    run_id = await stage.trigger("wait it", "once")
    following = await stage.trigger("return", "once")
    await stage.when(lambda: stage.play.of(run_id))
    second = await stage.host()
    with capture_logs() as said:
        failure = first.ports.fail("runs.update", times=None)
        stage.play.gates["it"].set()
        await stage.when(lambda: stage.play.of(run_id)[0].how)
        await stage.world.elapse(5.0)
        assert failure.hits > 3
        assert first.held == 1
        assert not stage.play.of(following), "the slot is held"
        record = await stage.record(run_id, "once")
        assert record is not None
        assert record.status is RunStatus.RUNNING
        failure.release()
        record = await stage.ended(run_id, "once")
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 1, "attempt 1")
    assert len(stage.play.of(run_id)) == 1
    assert (await stage.ended(following, "once")).status is RunStatus.SUCCEEDED
    errors = [entry for entry in said if entry["event"] == "run_not_saved" and entry["log_level"] == "error"]
    assert len(errors) == 1
    assert not [entry for entry in said if entry["event"] == "run_reaped"]
    assert second.ports.calls["runs.scan"] > 3, "the reaper looked"


async def test_a_save_that_arrives_late_is_recognised_as_its_own(memory_stage: Stage) -> None:
    """Its answer was lost, the record still said RUNNING, so it was sent again; then the first one arrived."""
    stage = memory_stage
    hosted = await stage.host()
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: stage.play.of(run_id))
    hosted.ports.fail("runs.update", when="before", error=AnswerUnknown("on its way"))
    again = hosted.ports.fail("runs.update", when="hang")
    stage.play.gates["it"].set()
    await stage.when(lambda: again.hits)
    run = RunKey("m", "job", run_id)
    stored = await stage.client_ports.runs.get(run)
    assert stored is not None
    late = advance(stored.record, Event.SUCCEED, finished_at=stage.client_ports.broker.now())
    await stage.client_ports.runs.update(late, stored.revision)
    with capture_logs() as said:
        again.release()
        await stage.world.elapse(0.3)  # no redelivery is waited for
        await stage.retired(run_id, within=0.1)
    assert not [entry for entry in said if entry["event"] == "run_lost_to_another_host"]
    assert len(stage.play.of(run_id)) == 1


async def test_a_retry_that_cannot_be_published_is_published_later(stage: Stage) -> None:
    hosted = await stage.host()
    failure = hosted.ports.fail("broker.store", times=None)
    run_id = await stage.trigger("fail 1")
    await stage.when(lambda: failure.hits >= 3)
    record = await stage.record(run_id)
    assert record is not None
    assert record.status is RunStatus.RETRYING
    failure.release()
    record = await stage.ended(run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 2)


async def test_renewals_that_stay_without_answer_stop_the_handler(stage: Stage) -> None:
    first = await stage.host()
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: stage.play.of(run_id))
    await stage.host()
    first.ports.fail("delivery.renew", times=None)
    await stage.when(lambda: len(stage.play.of(run_id)) == 2)
    assert stage.play.of(run_id)[0].how == "CancelledError"
    assert stage.play.live == 1
    stage.play.gates["it"].set()
    record = await stage.ended(run_id)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 2, "attempt 2")


async def test_heartbeats_that_fail_stop_nothing(stage: Stage) -> None:
    first = await stage.host()
    run_id = await stage.trigger("wait it")
    await stage.when(lambda: stage.play.of(run_id))
    await stage.host()
    failure = first.ports.fail("runs.update", when="before", times=None)
    await stage.when(lambda: failure.hits >= 5)
    await stage.world.elapse(4.0)  # longer than ack wait and lost_after
    assert stage.play.live == len(stage.play.calls) == 1
    failure.release()
    stage.play.gates["it"].set()
    assert (await stage.ended(run_id)).starts == 1


async def test_a_save_that_hangs_is_no_success(stage: Stage) -> None:
    first = await stage.host()
    failure = first.ports.fail("runs.update", when="after", times=1, error=AnswerUnknown("lost"))
    run_id = await stage.trigger("return")
    record = await stage.ended(run_id)
    assert (record.status, record.starts, failure.hits) == (RunStatus.SUCCEEDED, 1, 1)
    await stage.retired(run_id)
    assert len(stage.play.calls) == 1


@pytest.mark.parametrize(
    "when,error", [("after", PayloadInvalidError("a newer version")), ("before", BrokerUnavailable("away"))]
)
async def test_nothing_is_sent_for_a_delivery_after_a_claim_that_may_stand(
    stage: Stage, when: When, error: Exception
) -> None:
    """The record can't be read after a claim whose answer was lost, or that lost: a nak would be the owner's."""
    hosted = await stage.host()
    lost = AnswerUnknown("lost") if when == "after" else WrongRevision("somebody else wrote")
    hosted.ports.fail("runs.create", when=when, error=lost)
    unread = hosted.ports.fail("runs.get", error=error)
    with capture_logs() as logs:
        run_id = await stage.trigger("return")
        await stage.when(lambda: [entry for entry in logs if entry["event"] == "run_undecided"])
    assert unread.hits == 1
    record = await stage.ended(run_id)
    assert hosted.ports.calls["delivery.nak"] == 0
    assert record.status is RunStatus.SUCCEEDED
    assert len(stage.play.calls) == 1


@pytest.mark.parametrize("method", ["runs.update", "broker.store"])
async def test_health_tells_that_a_run_cannot_be_stored(memory_stage: Stage, method: str) -> None:
    """The stream of jobs, or the bucket of records, may be full while what the host says of itself has room."""
    hosted = await memory_stage.host()
    failure = hosted.ports.fail(method, times=None, error=StorageFull("maximum bytes exceeded"), skip=0)
    run_id = await memory_stage.trigger("fail 1")
    await memory_stage.when(lambda: not hosted.host.health().ok, within=5)
    health = hosted.host.health()
    assert not health.ready
    assert health.live
    assert any("maximum bytes exceeded" in problem for problem in health.problems)
    await memory_stage.world.elapse(5)
    assert not hosted.host.health().ok
    failure.release()
    assert (await memory_stage.ended(run_id)).starts == 2
    await memory_stage.when(lambda: hosted.host.health().ok, within=5)


@pytest.mark.parametrize("method", ["broker.ensure_project", "catalog.say", "broker.consume", "catalog.hosts"])
async def test_a_start_that_failed_can_be_repeated(memory_stage: Stage, method: str) -> None:
    stage = memory_stage
    module, done = Module("m"), list[str]()

    @module.job(timeout="1m")
    async def job(ctx: JobContext) -> None:
        done.append(ctx.run_id)

    ports = FailingBackend(await stage.world.connect())
    host = JobHost([module], backend=ports, settings=SETTINGS, clock=stage.clock)
    ports.fail(method, error=BrokerUnavailable("away"))
    with pytest.raises(BrokerUnavailable):
        await host.start()
    assert not host.health().ready
    await host.start()
    assert host.health().ok
    run_id = await stage.trigger("", "job")
    await stage.when(lambda: done == [run_id])
    await host.close()
