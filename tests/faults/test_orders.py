"""What people order for a job in use holds over three host processes, counted by the handlers."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import Journal, Line, Rig, eventually
from tests.support.servers import RealServer

FOUR = ("basic", "four")


def most_live(journal: Journal, since: float, until: float) -> int:
    """How many handlers of the job were live at once between two instants."""
    over = {line.start: line.at for line in journal.ends(job="four")}
    spans = [(line.at, over.get(line.start, float("inf"))) for line in journal.starts(job="four")]
    instants = [since, *(start for start, _ in spans if since <= start <= until)]
    return max(sum(start <= at < end for start, end in spans) for at in instants)


def live(journal: Journal) -> int:
    return len(journal.starts(job="four")) - len(journal.ends(job="four"))


async def three_hosts(rig: Rig) -> None:
    for host in [rig.spawn() for _ in range(3)]:
        await host.ready()


async def more_starts(rig: Rig, count: int) -> Sequence[Line]:
    before = len(rig.journal.starts(job="four"))
    return await eventually(
        lambda: len(lines := rig.journal.starts(job="four")) >= before + count and lines, what=f"{count} more starts"
    )


@pytest.mark.long
async def test_a_limit_changes_under_load(rig: Rig) -> None:
    await three_hosts(rig)
    client = await rig.client()
    await client.jobs.override(*FOUR, max_concurrency=1, actor="ops")
    await eventually(lambda: limit_at_broker(rig, 1), what="a limit of 1")
    runs = await rig.trigger_all("four", [0.12] * 140)
    began = time.monotonic()
    await more_starts(rig, 6)
    assert most_live(rig.journal, began, time.monotonic()) == 1

    await client.jobs.override(*FOUR, max_concurrency=4, actor="ops")
    await eventually(lambda: live(rig.journal) == 4, what="four at once")
    raised = time.monotonic()
    await more_starts(rig, 16)
    assert most_live(rig.journal, raised, time.monotonic()) == 4

    await client.jobs.override(*FOUR, max_concurrency=2, actor="ops")
    await eventually(lambda: limit_at_broker(rig, 2), what="a limit of 2")
    lowered = time.monotonic()
    await eventually(lambda: most_live(rig.journal, time.monotonic(), time.monotonic()) <= 2, what="two at once")
    settled = time.monotonic()
    assert settled - lowered < 10
    await more_starts(rig, 8)
    assert most_live(rig.journal, settled, time.monotonic()) == 2

    restarted = await rig.host()  # it declares 4, and finds 2
    runs += await rig.trigger_all("four", [0.12] * 20)  # the first ones may be over by now
    begun = time.monotonic()
    await more_starts(rig, 6)
    assert most_live(rig.journal, begun, time.monotonic()) <= 2
    assert not restarted.events("service_pass_failed")

    assert (await client.jobs.override(*FOUR, max_concurrency=None)).limit == 4
    await eventually(lambda: limit_at_broker(rig, 4), what="the declared limit")
    records = await rig.all_ended("four", runs)
    assert {record.status for record in records} == {RunStatus.SUCCEEDED}
    assert sorted(line.run for line in rig.journal.starts(job="four")) == sorted(runs), "each run started once"


async def limit_at_broker(rig: Rig, limit: int) -> bool:
    return (await rig.consumer("four")).config.max_ack_pending == limit


async def test_a_pause_holds_under_load_and_over_restarts_of_hosts_broker_and_consumer(
    own_rig: Rig, own_server: RealServer
) -> None:
    rig = own_rig
    await three_hosts(rig)
    client = await rig.client()
    runs = await rig.trigger_all("four", [0.3] * 60)
    await more_starts(rig, 8)
    assert (await client.jobs.pause(*FOUR, actor="ops")).paused
    asked = time.monotonic()
    await eventually(lambda: live(rig.journal) == 0, what="the running ones ending")
    quiet = len(rig.journal.starts(job="four"))
    assert quiet < 60
    assert rig.journal.starts(job="four")[-1].at - asked < 5, "at once, and not with the next look"

    late = await client.get_job(*FOUR).trigger(0.1)
    assert late.paused
    assert await late.status() is RunStatus.QUEUED
    runs.append(late.run_id)
    await rig.ping()

    for host in rig.hosts:
        host.sigterm()
        assert await host.exit_code() == 0
    await rig.host()
    await rig.ping()
    own_server.kill9()
    own_server.start()
    await rig.ping(within=30)
    await rig.jetstream(lambda js: js.delete_consumer(f"JETJOBS_{rig.project}", "basic=_four"))
    await eventually(lambda: limit_at_broker_again(rig), what="the consumer, made again")
    await rig.ping()
    await rig.host()
    await rig.ping()
    assert len(rig.journal.starts(job="four")) == quiet, "nothing started meanwhile"
    found = await client.jobs.get(*FOUR)
    assert found.control is not None
    assert (found.paused, found.control.switched_by) == (True, "ops")

    resumed = time.monotonic()
    assert not (await client.jobs.resume(*FOUR)).paused
    first = await rig.journal.started(job="four", times=quiet + 1)
    assert first.at - resumed < 4, "at once, and not with the next heartbeat of a pull"
    records = await rig.all_ended("four", runs)
    assert {record.status for record in records} == {RunStatus.SUCCEEDED}
    assert sorted(line.run for line in rig.journal.starts(job="four")) == sorted(runs), "each run started once"


async def limit_at_broker_again(rig: Rig) -> bool:
    from nats.js.errors import NotFoundError

    try:
        return await limit_at_broker(rig, 4)
    except NotFoundError:
        return False


async def test_a_host_that_is_asked_to_drain_ends_as_at_sigterm(rig: Rig) -> None:
    going, staying = await rig.host(DRAIN="10s"), await rig.host(DRAIN="10s")
    client = await rig.client()
    host_id = next(line.host for line in rig.journal.lines("process") if line.pid == going.pid)
    runs = await rig.trigger_all("four", [1.0] * 4)
    await eventually(lambda: live(rig.journal) == 4, what="four at once")
    answer = await client.hosts.drain(host_id, actor="ops")
    assert (answer.closes, answer.again) == (True, False)
    assert answer.running == sum(line.pid == going.pid for line in rig.journal.starts(job="four"))
    assert await going.exit_code() == 0
    records = await rig.all_ended("four", runs)
    assert [(record.status, record.interruptions) for record in records] == [(RunStatus.SUCCEEDED, 0)] * 4
    assert [entry["actor"] for entry in going.events("host_drain_asked")] == ["ops"]
    assert [host.pid for host in await client.hosts.list()] == [staying.pid]
    await rig.ping()
