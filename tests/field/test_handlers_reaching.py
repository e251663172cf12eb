"""Neighbours of B53 to B71: handlers that reach for their host's loop, outputs and bookkeeping, on real hosts."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from jetjobs._core import wire
from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig, eventually
from tests.support.servers import RealServer

LEFT = {"exit": "SystemExit", "group": "SystemExit", "interrupt": "KeyboardInterrupt"}


async def test_b57_leaving_in_a_task_of_the_handlers_own(rig: Rig) -> None:
    """asyncio raises it through the loop, too; with it would go every other run of the host."""
    host = await rig.host("hostile", "basic")
    beside = await rig.trigger("hold", 2)
    await rig.journal.started(beside)
    for how, name in LEFT.items():
        run_id = await rig.trigger("hostile.leaves_in_a_task", how)
        record = await rig.ended("hostile.leaves_in_a_task", run_id)
        assert (record.status, record.starts) == (RunStatus.FAILED, 1), how
        assert record.error is not None
        assert record.error.type == name
    run_id = await rig.trigger("hostile.leaves_in_a_task", "callback")
    assert (await rig.ended("hostile.leaves_in_a_task", run_id)).status is RunStatus.SUCCEEDED
    await rig.retired("hostile.leaves_in_a_task")
    said = host.events("handler_left_the_loop")
    assert len(said) == 4
    assert "in _leave" in said[0]["at"]
    assert (await rig.ended("hold", beside)).status is RunStatus.SUCCEEDED
    await rig.ping()
    host.sigterm()
    assert await host.exit_code() == 0


@pytest.mark.faults
@pytest.mark.parametrize("job", ["hostile.cancels_everything", "hostile.stops_the_loop"])
async def test_b71_a_handler_that_ends_its_hosts_loop(rig: Rig, job: str) -> None:
    """The host can't go on, says so by its exit, and the next one counts what was started."""
    host = await rig.host("hostile", "basic")
    run_id = await rig.trigger(job)
    for attempt in (1, 2, 3):
        await rig.journal.started(run_id, times=attempt)
        assert await host.exit_code() == 1
        host = await rig.host("hostile", "basic")
    record = await rig.ended(job, run_id)
    assert (record.status, record.starts) == (RunStatus.FAILED, 3)
    assert record.error is not None
    assert record.error.type == "Lost"
    assert len(rig.journal.starts(run_id)) == 3
    await rig.retired(job)
    await rig.ping()


@pytest.mark.parametrize("job", ["hostile.raises", "hostile.raises_in_thread"])
async def test_b59_more_errors_that_are_hard_to_write_down(rig: Rig, job: str) -> None:
    host = await rig.host("hostile", "basic")
    names = {"nameless": "", "long name": "N", "lines in its name": "Two", "notes that are none": "BadNotes",
             "untrue": "Untrue", "circle": "ValueError", "group of exits": "BaseExceptionGroup",
             "mute argument": "SystemExit"}  # fmt: skip
    for how, name in names.items():
        record = await rig.ended(job, await rig.trigger(job, how))
        assert record.status is RunStatus.FAILED, how
        assert record.error is not None
        assert record.error.type.startswith(name)
        assert record.error.message
        assert len(wire.pack_record(record)) < 512 * 1024
    await rig.retired(job)
    await rig.ping()
    assert host.process.poll() is None


async def test_b59_what_cannot_be_told_harms_only_who_tells_it(rig: Rig) -> None:
    """Logs, progress and checkpoints ride on the heartbeat, which all runs of the host share."""
    await rig.host("hostile", "basic")
    beside = await rig.trigger("tells")
    job = "hostile.tells_badly"
    ends = {"log": RunStatus.SUCCEEDED, "message": RunStatus.SUCCEEDED, "progress": RunStatus.SUCCEEDED,
            "changed": RunStatus.SUCCEEDED, "checkpoint": RunStatus.FAILED, "result": RunStatus.FAILED}  # fmt: skip
    runs = {how: await rig.trigger(job, how) for how in ends}
    for how, status in ends.items():
        assert (await rig.ended(job, runs[how])).status is status, how
    record = await rig.ended("tells", beside)
    assert [line.message for line in record.logs] == ["hello", "hello"]
    await rig.retired(job)
    await rig.ping()


async def test_b63_a_thread_that_no_one_can_wait_for(rig: Rig) -> None:
    """Not a daemon, so Python's own end would wait for it ten minutes."""
    host = await rig.host("hostile", "basic")
    job = "hostile.leaves_a_stubborn_thread"
    assert (await rig.ended(job, await rig.trigger(job))).status is RunStatus.SUCCEEDED
    await rig.ping()
    host.sigterm()
    assert await host.exit_code() == 0


async def test_b61_a_handler_that_takes_folder_and_environment_away(rig: Rig, tmp_path: Path) -> None:
    host = await rig.host("hostile", "basic")
    (gone := tmp_path / "gone").mkdir()
    job = "hostile.moves_away"
    assert (await rig.ended(job, await rig.trigger(job, str(gone)))).status is RunStatus.SUCCEEDED
    await rig.ping()
    host.sigterm()
    assert await host.exit_code() == 0


async def test_b69_delays_that_are_none(rig: Rig) -> None:
    """The attempt fails and says why; nothing waits for ever."""
    await rig.host("hostile", "basic")
    for how in ("negative", "nan", "never", "words"):
        for kind in ("snooze", "retry"):
            record = await rig.ended("hostile.again", await rig.trigger("hostile.again", f"{kind} {how}"))
            assert record.status is RunStatus.FAILED
            assert record.error is not None
            assert "the delay of" in record.error.message
    await rig.retired("hostile.again")


@pytest.mark.faults
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no file that is always full")
@pytest.mark.parametrize("kind", ["a full disk", "a pipe nobody reads"])
async def test_b71_a_log_that_nobody_can_write(own_rig: Rig, own_server: RealServer, kind: str) -> None:
    """Handlers that fail, time out and never end are logged on the way to their records; a lost broker, too."""
    rig = own_rig
    read, write = os.pipe()
    os.close(read)
    if kind == "a full disk":
        os.close(write)
        write = os.open("/dev/full", os.O_WRONLY)
    rig.log_to = write
    host = rig.spawn()
    os.close(write)
    await eventually(lambda: rig.journal.lines("lifespan opens"), what="the start")
    expected = {"fails_until": RunStatus.SUCCEEDED, "never_ends": RunStatus.TIMED_OUT, "swallows": RunStatus.TIMED_OUT}
    for job, status in expected.items():
        record = await rig.ended(job, await rig.trigger_at_last(job, 2 if job == "fails_until" else None))
        assert record.status is status
    await asyncio.to_thread(own_server.restart)
    await rig.ping(30)
    host.sigterm()
    assert await host.exit_code() == 0


@pytest.mark.faults
@pytest.mark.parametrize("how", ["fork", "multiprocessing"])
async def test_b61_a_child_that_outlives_its_host(rig: Rig, how: str) -> None:
    """It has the host's open files: the broker must not take it for the host, and give it what others could start."""
    settings = {"ACK_WAIT": "12s", "HEARTBEAT_EVERY": "1s", "LOST_AFTER": "4s"}
    first = await rig.host("hostile", "basic", **settings)
    await rig.ended("hostile.leaves_a_child", await rig.trigger("hostile.leaves_a_child", how))
    (line,) = rig.journal.lines("child")
    try:
        first.kill9()
        os.kill(line.child, 0)
        await rig.host("hostile", "basic", **settings)
        for _ in range(8):
            await rig.ping()
    finally:
        os.kill(line.child, signal.SIGKILL)


@pytest.mark.parametrize("job", ["hostile.maps_in_a_pool", "hostile.maps_in_a_pool_apart"])
async def test_b61_a_pool_of_forked_children(rig: Rig, job: str) -> None:
    """It ends its workers by SIGTERM, and waits for them: they may not be as deaf to it as a host."""
    host = await rig.host("hostile", "basic")
    for _ in range(3):
        assert (await rig.ended(job, await rig.trigger(job, [-1, 2, -3]))).result == [1, 2, 3]
    for _ in range(10):
        await rig.ping()
    assert {line.pid for line in rig.journal.starts(job="ping")} == {host.pid}
    host.sigterm()
    assert await host.exit_code() == 0


async def test_b55_a_handler_that_takes_the_hosts_signals(rig: Rig) -> None:
    """A host that can't hear could only be killed."""
    host = await rig.host("hostile", "basic")
    job = "hostile.takes_the_signals"
    assert (await rig.ended(job, await rig.trigger(job))).status is RunStatus.SUCCEEDED
    await eventually(lambda: len(host.events("signal_taken_back")) == 2, 5, "the host's hearing again")
    host.sigterm()
    assert await host.exit_code() == 0
