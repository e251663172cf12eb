"""Consumers that an operator edits by hand, under runs: neighbours of B73 and B80. Every run ends, done once."""

from __future__ import annotations

from typing import Any

import pytest
from nats.js import JetStreamContext

from jetjobs._core.models import RunStatus
from tests.faults.field import api
from tests.faults.rig import ACK_WAIT, Rig, eventually

pytestmark = pytest.mark.faults

NEVER = {"UPKEEP_EVERY": "1h"}


async def edit(rig: Rig, job: str, **changes: Any) -> None:
    """As `nats consumer edit` does."""
    stream = f"JETJOBS_{rig.project}"
    config = (await api(rig.url, f"CONSUMER.INFO.{stream}.basic=_{job}"))["config"]
    order = {"stream_name": stream, "config": {**config, **changes}, "action": "update"}
    assert "error" not in await api(rig.url, f"CONSUMER.CREATE.{stream}.basic=_{job}", order)


async def config_of(rig: Rig, job: str) -> dict[str, Any]:
    return (await api(rig.url, f"CONSUMER.INFO.JETJOBS_{rig.project}.basic=_{job}"))["config"]


async def test_b80_one_delivery_only_and_a_host_that_dies(rig: Rig) -> None:
    """The other host puts the limit right before it costs anything: the run has all its attempts."""
    hosts = [await rig.host(), await rig.host()]
    run_id = await rig.trigger("hold3", 3)
    pid = (await rig.journal.started(run_id)).pid
    await edit(rig, "hold3", max_deliver=1)
    first, second = sorted(hosts, key=lambda host: host.pid != pid)
    first.kill9()
    record = await rig.ended("hold3", run_id)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 2, "attempt 2")
    assert (await config_of(rig, "hold3"))["max_deliver"] == -1
    assert second.events("consumer put right")
    await rig.retired("hold3")


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
async def test_b80_what_nobody_will_deliver_again_is_ended(rig: Rig, *, busy: bool) -> None:
    """The broker has given the message up, which no edit undoes: no RUNNING for ever, also with attempts left."""
    first = await rig.host(**NEVER)
    run_id = await rig.trigger("hold3", 60)
    await rig.journal.started(run_id)
    await edit(rig, "hold3", max_deliver=1)
    first.kill9()
    await given_up(rig, run_id)
    await rig.host()
    if busy:  # others are in flight, and the acks have passed it by
        await rig.ended("hold3", await rig.trigger("hold3", 0.1))
        beside = await rig.trigger("hold3", 60)
        await rig.journal.started(beside)
    record = await rig.ended("hold3", run_id, 6 * ACK_WAIT + 10)
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert record.error is not None
    assert (record.error.type, record.error.message.startswith("lost: ")) == ("Lost", True)
    assert len(rig.journal.starts(run_id)) == 1
    assert (await rig.ended("hold3", await rig.trigger("hold3", 0.1))).status is RunStatus.SUCCEEDED


async def given_up(rig: Rig, run_id: str) -> None:
    """Return once the broker has nothing more of the job's in flight, though the run's message is still there."""
    stream = f"JETJOBS_{rig.project}"

    async def pull(jetstream: JetStreamContext) -> None:
        subscription = await jetstream.pull_subscribe_bind("basic=_hold3", stream)
        with pytest.raises(TimeoutError):
            await subscription.fetch(1, 0.3)

    async def nothing() -> bool:
        await rig.jetstream(pull)
        return (await rig.consumer("hold3")).num_ack_pending == 0

    await eventually(nothing, 3 * ACK_WAIT, "the broker's giving up")
    found = await api(rig.url, f"STREAM.INFO.{stream}", {"subjects_filter": f"*.*.*.*.*.run.{run_id}"})
    assert found["state"]["subjects"]


async def test_b73_a_trigger_given_up_before_its_run_comes_with_a_new_consumer(rig: Rig) -> None:
    """As the troubleshooting page has it."""
    run_id = await rig.trigger_first("hold3", 0.1)
    await edit(rig, "hold3", max_deliver=1)

    async def take(jetstream: JetStreamContext) -> None:
        subscription = await jetstream.pull_subscribe_bind("basic=_hold3", f"JETJOBS_{rig.project}")
        assert await subscription.fetch(1, 2)

    await rig.jetstream(take)  # and dies
    await given_up(rig, run_id)
    await rig.host()
    await rig.ended("hold3", await rig.trigger("hold3", 0.1))
    assert not rig.journal.starts(run_id)
    assert (await api(rig.url, f"CONSUMER.DELETE.JETJOBS_{rig.project}.basic=_hold3"))["success"]
    record = await rig.ended("hold3", run_id, 15)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)


@pytest.mark.parametrize(
    "changes",
    [{"headers_only": True}, {"max_batch": 1, "max_expires": 1_000_000_000}, {"backoff": [1_000_000_000]}],
    ids="-".join,
)
async def test_b73_other_edits_are_put_right_while_hosts_serve(rig: Rig, changes: dict[str, Any]) -> None:
    """No handler gets a payload that isn't its own, and no host goes deaf."""
    await rig.host(UPKEEP_EVERY="300ms")
    await rig.ended("echo", await rig.trigger("echo", "before"))
    await edit(rig, "echo", **changes)

    async def right() -> bool:
        return not set(changes) & set(await config_of(rig, "echo"))

    await eventually(right, 10, "the consumer's being put right")
    records = [await rig.ended("echo", await rig.trigger("echo", n)) for n in range(5)]
    assert [(record.status, record.result) for record in records] == [(RunStatus.SUCCEEDED, n) for n in range(5)]
    await rig.retired("echo")
