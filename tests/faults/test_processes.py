"""Child processes of hosts that are killed, stopped and frozen: none stays, and no run is lost."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jetjobs._core.models import RunStatus
from jetjobs.client import JobClient
from tests.faults.rig import ACK_WAIT, SOURCE, Rig, eventually
from tests.support.processes import gone_within

SCRIPT = Path(__file__).parent / "programs" / "script.py"
FOREVER = 10**12

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child in C code on Linux only")


@linux
@pytest.mark.parametrize(
    "job,payload", [("isolated.counts", FOREVER), ("isolated.sleeps", 300), ("isolated.hello", None)]
)
async def test_a_killed_host_leaves_no_child(rig: Rig, job: str, payload: object) -> None:
    host = await rig.host("isolated")
    run = await rig.trigger(job, payload)
    if payload is None:
        await rig.ended(job, run)
        (line,) = rig.journal.lines("hello")  # idle and warm by now
    else:
        line = await rig.journal.started(run)
    assert line.pid != host.pid
    os.kill(line.pid, 0)
    host.kill9()
    assert gone_within(line.pid, 20)


async def test_the_run_of_a_killed_host_is_taken_over(rig: Rig) -> None:
    first = await rig.host("isolated")
    run = await rig.trigger("isolated.sleeps", 1.0)
    start = await rig.journal.started(run)
    died = first.kill9()
    await rig.host("isolated")
    record = await rig.ended("isolated.sleeps", run)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 2, "slept")
    assert rig.journal.most_live(run=run, died={start.pid: died}) == 1


@pytest.mark.parametrize("job,payload", [("isolated.counts", FOREVER), ("isolated.sleeps", 300)])
async def test_a_stopping_host_kills_and_gives_back(rig: Rig, job: str, payload: object) -> None:
    host = await rig.host("isolated", DRAIN="200ms")
    run = await rig.trigger(job, payload)
    line = await rig.journal.started(run)
    host.sigterm()
    assert await host.exit_code() == 0
    assert gone_within(line.pid, 0.1)
    record = await rig.record(job, run)
    assert (record.status, record.interruptions) == (RunStatus.RETRYING, 1)


async def test_the_second_signal_leaves_no_child(rig: Rig) -> None:
    host = await rig.host("isolated", DRAIN="30s")
    line = await rig.journal.started(await rig.trigger("isolated.sleeps", 300))
    host.process.send_signal(signal.SIGINT)
    await eventually(lambda: host.events("host_draining"), what="the drain")
    host.process.send_signal(signal.SIGINT)
    assert await host.exit_code(within=20) == 130
    assert gone_within(line.pid, 20)


async def test_ctrl_c_lets_the_child_finish(rig: Rig) -> None:
    """A terminal sends it to the whole group: the host drains, and the child hears nothing of it."""
    host = await rig.host("isolated", DRAIN="20s")
    run = await rig.trigger("isolated.sleeps", 1.5)
    line = await rig.journal.started(run)
    os.kill(line.pid, signal.SIGINT)
    host.process.send_signal(signal.SIGINT)
    assert await host.exit_code() == 130
    record = await rig.ended("isolated.sleeps", run)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)


@linux
@pytest.mark.parametrize("job,payload", [("isolated.counts", FOREVER), ("isolated.sleeps", 300)])
async def test_a_frozen_host_s_child_is_gone_before_another_host_starts(rig: Rig, job: str, payload: object) -> None:
    """Also from C code, in which it could look at no clock. Awake again, the host records nothing of it."""
    first = await rig.host("isolated")
    run = await rig.trigger(job, payload)
    start = await rig.journal.started(run)
    first.freeze()
    gone = asyncio.create_task(asyncio.to_thread(_gone_at, start.pid))
    await rig.host("isolated")
    await rig.journal.started(run, times=2)
    assert rig.journal.most_live(run=run, died={start.pid: await gone}) == 1
    first.thaw()
    await eventually(lambda: first.events("run_fenced"), what="the fence")
    record = await rig.record(job, run)
    assert (record.status, record.starts) == (RunStatus.RUNNING, 2)


async def test_a_host_that_was_frozen_takes_its_run_up_again(rig: Rig) -> None:
    """Nobody else was there: the killed start is a lost one, and no failure of the handler's."""
    host = await rig.host("isolated")
    run = await rig.trigger("isolated.sleeps", ACK_WAIT)
    start = await rig.journal.started(run)
    host.freeze()
    assert await asyncio.to_thread(gone_within, start.pid, 30)
    host.thaw()
    record = await rig.ended("isolated.sleeps", run)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 2, "slept")
    assert record.attempts[0].outcome == "LOST"


@linux
async def test_a_host_without_its_guard_gets_another(rig: Rig) -> None:
    host = await rig.host("isolated")
    run = await rig.trigger("isolated.sleeps", 3 * ACK_WAIT)
    await rig.journal.started(run)
    (guard,) = _guards(host.pid)
    os.kill(guard, signal.SIGKILL)
    await eventually(lambda: host.events("guard_lost") and _guards(host.pid) not in ([], [guard]), what="another guard")
    record = await rig.ended("isolated.sleeps", run)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    (guard,) = _guards(host.pid)
    host.kill9()
    assert gone_within(guard, 20)


def _gone_at(pid: int) -> float:
    assert gone_within(pid, 30)
    return time.monotonic()


def _guards(host: int) -> list[int]:
    tasks = Path(f"/proc/{host}/task").iterdir()
    found = [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
    return [pid for pid in found if "guard_program" in Path(f"/proc/{pid}/cmdline").read_text()]


@pytest.mark.parametrize("guarded", [True, False])
async def test_a_service_in_one_file(nats_url: str, project: str, tmp_path: Path, *, guarded: bool) -> None:
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "PROJECT": project, "SERVER": nats_url}
    if not guarded:
        env["UNGUARDED"] = "1"
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: ASYNC220 - as the rig does
            [sys.executable, str(SCRIPT)], env=env, stdout=out, stderr=out, cwd=tmp_path
        )
    try:
        await eventually(lambda: "host_started" in log.read_text(), what="the start")
        async with JobClient(nats_url, project=project) as client:
            run = await client.get_job("shop", "hello").trigger("you")
            record = await run.wait(45)
            spread = await (await client.get_job("shop", "spreads").trigger(4)).wait(45)
    finally:
        process.terminate()
        process.wait(30)
    if guarded:
        assert str(record.result).startswith("hello you from ")
        assert spread.result == [8], spread.error
        assert str(process.pid) not in str(record.result)
    else:
        assert record.error is not None
        assert '`if __name__ == "__main__":`' in record.error.message
