"""Isolated handlers that are stopped, die, or outlast their host."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._engine import children as children_of_hosts
from jetjobs._engine.children import Child
from jetjobs._engine.processes import ProcessExecution
from tests.support.process_bench import GRACE, Bench, children, descriptors, hosted, processes, written
from tests.support.processes import gone_within
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


async def stopped(bench: Bench, run: Any, order: str) -> RunRecord:
    """What is stored of a run that is stopped so; its timeout comes by itself."""
    if order == "cancel":
        await run.cancel()
    elif order == "shutdown":
        await bench.host.close()
    record = await run.wait(45)
    wanted = {"timeout": RunStatus.TIMED_OUT, "cancel": RunStatus.CANCELLED, "shutdown": RunStatus.FAILED}
    assert record.status is wanted[order]
    return record


async def test_a_timeout_in_c_code_kills(bench: Bench, tmp_path: Path) -> None:
    await bench.run("pid")  # a warm child: the timeout covers no start
    run = await bench.trigger("counts_in_time", str(tmp_path / "pid"))
    pid = await written(tmp_path / "pid")
    record = await run.wait(45)
    assert record.status is RunStatus.TIMED_OUT
    assert record.error is not None
    assert record.error.message == "timed out after 0.4 s"
    assert [line.message for line in record.logs] == ["counting"]
    assert pid not in children()
    assert record.started_at is not None
    assert record.finished_at is not None
    took = (record.finished_at - record.started_at).total_seconds()
    assert 0.4 + 2 * GRACE <= took < 20


@pytest.mark.parametrize("order", ["timeout", "cancel", "shutdown"])
async def test_an_order_is_heard_at_once(bench: Bench, tmp_path: Path, order: str) -> None:
    await bench.run("pid")  # a warm child: the timeout covers no start
    run = await bench.trigger("looks_in_time" if order == "timeout" else "looks", str(tmp_path / "pid"))
    pid = await written(tmp_path / "pid")
    record = await stopped(bench, run, order)
    assert record.logs[-1].fields == {"reason": order}
    if order != "shutdown":
        assert (await bench.run("pid")).result == pid, "it went by itself: its process is as good as new"


async def test_sigterm_lets_a_handler_clean_up(bench: Bench, tmp_path: Path) -> None:
    run = await bench.trigger("cleans", str(tmp_path / "pid"))
    pid = await written(tmp_path / "pid")
    await run.cancel()
    assert (await run.wait(45)).status is RunStatus.CANCELLED
    assert (tmp_path / "pid.cleaned").exists()
    assert pid not in children()


async def test_a_sigterm_nobody_ordered_stops_nothing(bench: Bench, tmp_path: Path) -> None:
    """A service manager sends it to all processes of a service; the host drains first."""
    run = await bench.trigger("looks", str(tmp_path / "pid"))
    pid = await written(tmp_path / "pid")
    os.kill(pid, signal.SIGTERM)
    os.kill(pid, signal.SIGINT)
    with pytest.raises(TimeoutError):
        await run.wait(0.5)
    await run.cancel()
    assert (await run.wait(45)).status is RunStatus.CANCELLED


@pytest.mark.parametrize("handler", ["counts", "ignores"])
@pytest.mark.parametrize("order", ["timeout", "cancel", "shutdown"])
async def test_whatever_it_does_it_is_killed(bench: Bench, tmp_path: Path, handler: str, order: str) -> None:
    """In a loop in C code, or deaf to SIGTERM and to its interrupt. No zombie, and nothing left open in the host."""
    await bench.run("pid")  # a warm child: the timeout covers no start
    before = descriptors()
    run = await bench.trigger(f"{handler}_in_time" if order == "timeout" else handler, str(tmp_path / "pid"))
    pid = await written(tmp_path / "pid")
    await stopped(bench, run, order)
    assert pid not in children(), "a zombie would still be one"
    assert descriptors() < before, "the link of the child that was warm is closed"


async def test_what_it_started_is_killed_with_it(bench: Bench, tmp_path: Path) -> None:
    run = await bench.trigger("starts_a_program", str(tmp_path / "pid"))
    await written(tmp_path / "pid")
    program = await written(tmp_path / "pid.program")
    await run.cancel()
    assert (await run.wait(45)).status is RunStatus.CANCELLED
    assert gone_within(program, 1)


async def test_of_many_idle_children_some_stay(bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children_of_hosts, "KEPT_IDLE", 2)
    runs = [await bench.trigger("looks", str(tmp_path / str(number))) for number in range(4)]
    pids = {await written(tmp_path / str(number)) for number in range(4)}
    assert len(pids) == 4
    for run in runs:
        await run.cancel()
        assert (await run.wait(45)).status is RunStatus.CANCELLED
    await eventually(lambda: len(children()) == 2)
    assert children() < pids


@pytest.mark.parametrize("number,name", [(signal.SIGKILL, "9 (SIGKILL)"), (signal.SIGSEGV, "11 (SIGSEGV)")])
async def test_a_crash_is_a_failed_attempt(bench: Bench, number: int, name: str) -> None:
    record = await bench.run("crashes", int(number))
    assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "second", 2)
    error = record.attempts[0].error
    assert error is not None
    assert error.message == f"child process died: signal {name}"
    assert "about to crash" in [line.message for line in record.logs]


async def test_a_fork_in_the_handler_ends_no_run(bench: Bench) -> None:
    record = await bench.run("forks")
    assert record.status is RunStatus.SUCCEEDED
    assert record.result != 0


async def test_a_process_that_holds_the_link_hides_no_death(bench: Bench) -> None:
    record = await bench.run("leaves_a_holder")
    assert record.status is RunStatus.FAILED
    assert record.started_at is not None
    assert record.finished_at is not None
    assert (record.finished_at - record.started_at).total_seconds() < 20


async def test_nonsense_on_the_link_ends_the_child(bench: Bench) -> None:
    record = await bench.run("scribbles")
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.type == "PayloadInvalidError"
    assert not children()


@pytest.mark.parametrize("job", ["looks", "ignores"])
async def test_shutdown_kills_for_certain(nats_url: str, project: str, job: str, tmp_path: Path) -> None:
    before = processes()
    async with hosted(nats_url, project) as bench:
        run = await bench.trigger(job, str(tmp_path / "pid"))
        pid = await written(tmp_path / "pid")
        await bench.host.close()
        assert gone_within(pid, 0.1)
        await eventually(lambda: processes() == before)
        record = await run.record()
        assert record.status is RunStatus.FAILED
        assert record.error is not None
        assert record.error.type == "HostShutdown"


async def test_the_guard_is_told_no_more_of_a_dead_child(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thawed host may renew the run before it sees what its guard has killed: that is no end of the handler's own."""
    heard = threading.Event()
    receive = Child.receive

    def late(child: Child) -> list[Any] | None:
        frame = receive(child)
        if frame is None:
            heard.wait(30)
        return frame

    monkeypatch.setattr(Child, "receive", late)
    run = await bench.trigger("looks", str(tmp_path / "pid"))
    pid = await written(tmp_path / "pid")
    assert bench.host._hosting is not None
    (held,) = bench.host._hosting.engine.held
    execution = held.execution
    assert isinstance(execution, ProcessExecution)
    assert execution.allowance() is not None
    os.kill(pid, signal.SIGKILL)
    assert gone_within(pid, 20)
    try:
        await eventually(lambda: execution.allowance() is None, 5, "its silence about the child")
    finally:
        heard.set()
    assert (await run.wait(45)).status is RunStatus.FAILED
