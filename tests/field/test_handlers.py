"""Handlers that block, fork, exit, lie and never come back: B53, B55, B57, B59, B61, B63.

Their run ends as documented, and the host goes on. Starts are counted in the journal the handlers write.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from jetjobs._core import wire
from jetjobs._core.models import RunStatus
from tests.faults.rig import HostProcess, Rig, eventually

EXITS = [
    "SystemExit 3",
    "SystemExit text",
    "KeyboardInterrupt",
    "exit()",
    "GeneratorExit",
    "StopIteration",
    "CancelledError",
]
HOSTILE = {
    "two arguments": "TwoArguments",
    "no text": "NoText",
    "wrong text": "WrongText",
    "no repr": "NoRepr",
    "arguments without repr": "ValueError",
    "huge": "ValueError",
    "notes": "ValueError",
    "deep": "RecursionError",
    "surrogate": "ValueError",
    "group": "ExceptionGroup",
    "chain": "ValueError",
}


async def alive(rig: Rig, host: HostProcess) -> None:
    await rig.ping()
    assert host.process.poll() is None


# ------------------------------------------------------------ a blocked loop

# A quarter of the ack wait passes before a loop counts as blocked.
PATIENT = {"ACK_WAIT": "8s", "HEARTBEAT_EVERY": "1s", "LOST_AFTER": "4s", "UPKEEP_EVERY": "1s"}


async def test_b53_a_handler_that_blocks_the_loop_starts_once_and_stops_nobody_else(rig: Rig) -> None:
    """Blocked for longer than the ack wait and the reaper's limit; the second host's jobs don't notice."""
    await blocked_for(rig, 14, PATIENT)


@pytest.mark.soak
@pytest.mark.timeout(200)
async def test_b53_a_handler_that_blocks_the_loop_for_90_seconds(rig: Rig) -> None:
    await blocked_for(rig, 90, {"ACK_WAIT": "30s", "HEARTBEAT_EVERY": "9s", "LOST_AFTER": "20s", "UPKEEP_EVERY": "5s"})


async def blocked_for(rig: Rig, seconds: float, settings: Mapping[str, str]) -> None:
    hosts = [await rig.host(**settings), await rig.host(**settings)]
    run_id = await rig.trigger("block_loop", seconds)
    pid = (await rig.journal.started(run_id)).pid
    blocked, other = sorted(hosts, key=lambda host: host.pid != pid)
    await eventually(lambda: blocked.events("blocked_host_hung_up"), what="the end of its connection")
    for _ in range(5):
        await rig.ping()
    assert {line.pid for line in rig.journal.starts(job="ping")} == {other.pid}
    assert not rig.journal.ends(run_id), "it blocks its loop still"
    record = await rig.ended("block_loop", run_id, seconds + 45)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 1, "blocked")
    await rig.retired("block_loop")
    assert len(rig.journal.starts(run_id)) == 1
    assert not any(host.events("run_reaped") for host in hosts)
    (said,) = blocked.events("loop_blocked")
    assert said["jobs"] == ["basic.block_loop"]
    assert "in block_loop" in said["at"]
    await eventually(lambda: blocked.events("loop_runs_again"))
    other.sigterm()
    assert await other.exit_code() == 0
    await alive(rig, blocked)


# ------------------------------------------------- deaf, leaving, lying, forking


async def test_b55_a_handler_that_swallows_its_cancellation(rig: Rig) -> None:
    host = await rig.host()
    run_id = await rig.trigger("swallows")
    start = await rig.journal.started(run_id)
    record = await rig.ended("swallows", run_id)
    assert record.status is RunStatus.TIMED_OUT
    assert record.finished_at is not None
    assert record.started_at is not None
    assert (record.finished_at - record.started_at).total_seconds() < 10  # timeout and grace are 1 s together
    following = await rig.trigger("swallows")
    await rig.ping()
    assert (await rig.consumer("swallows")).num_ack_pending == 1, "the slot is the code's, and that still runs"
    assert not rig.journal.starts(following)
    host.sigterm()
    assert await host.exit_code() == 0
    assert not rig.journal.ends(run_id)
    assert start.pid == host.pid


@pytest.mark.parametrize("job", ["exits", "exits_in_thread"])
async def test_b57_leaving_is_a_failure_like_any_other(rig: Rig, job: str) -> None:
    host = await rig.host()
    for how in EXITS:
        run_id = await rig.trigger(job, how)
        record = await rig.ended(job, run_id)
        assert record.status is RunStatus.FAILED, how
        assert record.error is not None
        expected = {"exit()": "SystemExit"}.get(how, how.split()[0])
        if (job, how) == ("exits", "StopIteration"):
            expected = "RuntimeError"  # what Python makes of it in a coroutine
        assert record.error.type == expected
        assert len(rig.journal.starts(run_id)) == 1
    await rig.retired(job)
    await alive(rig, host)
    host.sigterm()
    assert await host.exit_code() == 0


@pytest.mark.parametrize("job", ["hostile", "hostile_in_thread"])
async def test_b59_hostile_and_huge_exceptions(rig: Rig, job: str) -> None:
    """Read here, where none of the classes can be imported."""
    host = await rig.host()
    for how, name in HOSTILE.items():
        record = await rig.ended(job, await rig.trigger(job, how))
        assert record.status is RunStatus.FAILED, how
        assert record.error is not None
        assert record.error.type == name
        assert record.error.message
        assert len(record.error.message) < 64 * 1024
        assert len(wire.pack_record(record)) < 512 * 1024
    await rig.retired(job)
    await alive(rig, host)


@pytest.mark.parametrize("how", ["both return", "child raises", "child exits"])
@pytest.mark.parametrize("job", ["forks", "forks_in_thread"])
async def test_b61_a_fork_inside_a_handler(rig: Rig, job: str, how: str) -> None:
    host = await rig.host()
    run_id = await rig.trigger(job, how)
    record = await rig.ended(job, run_id)
    assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "parent", 1)
    assert [line.what for line in rig.journal.lines("child", run_id)] == ["child"]
    await rig.retired(job)
    for _ in range(10):
        assert (await rig.ended("ping", await rig.trigger("ping"))).status is RunStatus.SUCCEEDED
    assert {line.pid for line in rig.journal.starts(job="ping")} == {host.pid}
    assert not rig.journal.lines("exit")


async def test_b63_threads_that_never_end(rig: Rig) -> None:
    host = await rig.host(THREADS="6")
    runs = [await rig.trigger("never_ends") for _ in range(60)]
    await rig.journal.started(job="never_ends", times=6)
    await eventually(lambda: host.events("host_is_full"), what="the word that the pool is full")
    started = {line.run for line in rig.journal.starts(job="never_ends")}
    for run_id in started:
        assert (await rig.ended("never_ends", run_id)).status is RunStatus.TIMED_OUT
    await alive(rig, host)
    host.ask_health()
    health = await rig.journal.health()
    assert (health.threads_busy, health.threads_limit) == (6, 6)
    assert len(rig.journal.starts(job="never_ends")) == 6
    assert started < set(runs)
    assert len(host.events("host_is_full")) < 4, "said now and then, not for each delivery"
    host.sigterm()
    assert await host.exit_code() == 0
