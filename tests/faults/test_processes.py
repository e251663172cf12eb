"""Child processes of hosts that are killed, stopped and frozen: none stays, and no run is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
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
    assert gone_within(line.pid, 2)


async def test_the_run_of_a_killed_host_is_taken_over(rig: Rig) -> None:
    first = await rig.host("isolated")
    run = await rig.trigger("isolated.sleeps", 1.0)
    start = await rig.journal.started(run)
    died = first.kill9()
    await rig.host("isolated")
    record = await rig.ended("isolated.sleeps", run, 6 * ACK_WAIT)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 2, "slept")
    assert rig.journal.most_live(run=run, died={start.pid: died}) == 1


@pytest.mark.parametrize("job,payload", [("isolated.counts", FOREVER), ("isolated.sleeps", 300)])
async def test_a_stopping_host_kills_and_gives_back(rig: Rig, job: str, payload: object) -> None:
    host = await rig.host("isolated", DRAIN="200ms")
    run = await rig.trigger(job, payload)
    line = await rig.journal.started(run)
    host.sigterm()
    assert await host.exit_code(within=6) == 0
    assert gone_within(line.pid, 0.1)
    record = await rig.record(job, run)
    assert (record.status, record.interruptions) == (RunStatus.RETRYING, 1)


async def test_the_second_signal_leaves_no_child(rig: Rig) -> None:
    host = await rig.host("isolated", DRAIN="30s")
    line = await rig.journal.started(await rig.trigger("isolated.sleeps", 300))
    host.process.send_signal(signal.SIGINT)
    await eventually(lambda: host.events("host_draining"), what="the drain")
    host.process.send_signal(signal.SIGINT)
    assert await host.exit_code(within=2) == 130
    assert gone_within(line.pid, 2)


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


async def test_a_fenced_child_is_killed_when_its_host_wakes(rig: Rig) -> None:
    """A host frozen long enough wakes up to a run that is another's: the child is killed, and nothing is recorded."""
    first = await rig.host("isolated")
    run = await rig.trigger("isolated.sleeps", 300)
    start = await rig.journal.started(run)
    first.freeze()
    await rig.host("isolated")
    await rig.journal.started(run, times=2, within=6 * ACK_WAIT)
    first.thaw()
    assert gone_within(start.pid, 3)
    assert (await rig.record("isolated.sleeps", run)).status is RunStatus.RUNNING


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
            record = await run.wait(15)
            spread = await (await client.get_job("shop", "spreads").trigger(4)).wait(20)
    finally:
        process.terminate()
        process.wait(10)
    if guarded:
        assert str(record.result).startswith("hello you from ")
        assert spread.result == [8], spread.error
        assert str(process.pid) not in str(record.result)
    else:
        assert record.error is not None
        assert '`if __name__ == "__main__":`' in record.error.message
