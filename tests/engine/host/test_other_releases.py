"""Triggers whose payload is made for another release's model: what starts nothing goes its way all the same."""

from __future__ import annotations

from datetime import timedelta

from jetjobs import HostSettings
from jetjobs._core import codec, headers, names
from jetjobs._core.bodies import Body
from jetjobs._core.messages import Message
from jetjobs._core.models import Owner, RunKey, RunRecord, RunStatus
from tests.engine.host.stage import Stage
from tests.support.worlds import ACK_WAIT

THEIRS = Body(codec.encode(7))
RUN = RunKey("m", "job", "x")
HOUR = timedelta(hours=1)


async def stored(stage: Stage, **limits: timedelta) -> Message:
    """The run's trigger, for a handler that takes a number."""
    broker = stage.client_ports.broker
    given = {name: broker.now() + span for name, span in limits.items()}
    message = headers.trigger_message(broker.project, RUN, THEIRS, payload_schema="theirs", **given)  # type: ignore[arg-type]
    await broker.store(message, expected=0)
    found = await broker.last(message.subject)
    assert found is not None
    return found


async def test_one_that_expires_before_its_start_deadline_is_missed_then(memory_stage: Stage) -> None:
    stage = memory_stage
    await stored(stage, start_deadline=HOUR, expires_at=timedelta(seconds=3.33))
    await stage.host()
    record = await stage.ended("x")
    assert record.status is RunStatus.MISSED
    assert "expired" in str(record.skip_reason)
    await stage.retired("x")


async def test_a_retry_that_was_saved_and_never_published_is_published(memory_stage: Stage) -> None:
    """By whoever is handed the message of the host that died there, whether it could run it or not."""
    stage = memory_stage
    message = await stored(stage)
    now = stage.client_ports.broker.now()
    owner = Owner(message.sequence, message.stored_at, 1, "dead")
    record = RunRecord(
        "x", "m", "job", RunStatus.RETRYING, starts=1, turn=2, owner=owner, claim="c", max_attempts=3,
        payload_body=THEIRS, created_at=now, started_at=now, retry_at=now + HOUR, expires_at=now + 9 * HOUR,
    )  # fmt: skip
    await stage.client_ports.runs.create(record)
    await stage.host()
    await stage.world.elapse(3)
    broker = stage.client_ports.broker
    found = await broker.last(names.run_schedules(broker.project, RUN))
    assert found is not None
    assert found.subject == names.retry_subject(broker.project, RUN, 2)
    assert await broker.last(names.trigger_subject(broker.project, RUN)) is None


async def test_one_whose_run_has_ended_is_retired(memory_stage: Stage) -> None:
    stage = memory_stage
    await stored(stage)
    now = stage.client_ports.broker.now()
    ended = RunRecord("x", "m", "job", RunStatus.CANCELLED, created_at=now, finished_at=now)
    await stage.client_ports.runs.create(ended)
    await stage.host()
    await stage.retired("x", within=2)
    assert await stage.record("x") == ended


async def test_a_last_attempt_whose_host_died_is_lost_without_a_reaper(memory_stage: Stage) -> None:
    stage = memory_stage
    message = await stored(stage)
    now = stage.client_ports.broker.now()
    record = RunRecord(
        "x", "m", "job", RunStatus.RUNNING, starts=1, owner=Owner(message.sequence, message.stored_at, 0, "dead"),
        claim="c", payload_body=THEIRS, created_at=now, started_at=now, heartbeat_at=now, expires_at=now + 9 * HOUR,
    )  # fmt: skip
    await stage.client_ports.runs.create(record)
    await stage.host(settings=HostSettings(ack_wait=ACK_WAIT, heartbeat_every=0.3, lost_after="1h"))
    ended = await stage.ended("x")
    assert ended.error is not None
    assert (ended.status, ended.error.type) == (RunStatus.FAILED, "Lost")
    await stage.retired("x")
