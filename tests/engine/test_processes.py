"""Handlers in child processes, on a real server."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs import ConfigError, HostSettings, JobContext, JobHost, Module
from jetjobs._core.models import RunStatus
from jetjobs._core.plain import MAX_DEPTH
from jetjobs._engine.isolation import find_target
from jetjobs.client import JobClient
from jetjobs.testing import FailingBackend
from tests.support import process_jobs
from tests.support.process_bench import GRACE, MODULES, SETTINGS, Bench, children, descriptors, hosted, written
from tests.support.worlds import NatsWorld

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


async def test_a_payload_a_result_and_what_was_said_between(bench: Bench) -> None:
    with capture_logs() as said:
        record = await bench.run("talk", {"number": 7})
    assert record.status is RunStatus.SUCCEEDED, record.error
    assert record.result == {"number": 7, "note": "none", "run": record.run_id, "kind": "manual"}
    (line,) = record.logs
    assert (line.message, line.level, line.fields["number"]) == ("begun", "info", 7)
    assert record.progress is not None
    assert (record.progress.done, record.progress.total, record.progress.message) == (3, 10, "going")
    assert record.checkpoint_body is not None
    assert record.checkpoint_body.value == {"at": 7}
    own = [entry for entry in said if entry.get("run_id") == record.run_id]
    assert [(entry["event"], entry["log_level"]) for entry in own] == [("begun", "info"), ("said", "warning")]


async def test_it_runs_elsewhere_and_a_warm_child_is_used_again(bench: Bench) -> None:
    pids = {(await bench.run("pid")).result for _ in range(3)}
    assert len(pids) == 1
    assert os.getpid() not in pids
    assert children() >= pids


async def test_runs_at_once_have_a_child_each(bench: Bench, tmp_path: Path) -> None:
    runs = [await bench.trigger("looks", str(tmp_path / str(number))) for number in range(3)]
    pids = {await written(tmp_path / str(number)) for number in range(3)}
    assert len(pids) == 3
    for run in runs:
        await run.cancel()
        assert (await run.wait(45)).status is RunStatus.CANCELLED


async def test_a_warm_child_that_died_costs_no_attempt(bench: Bench) -> None:
    pid = (await bench.run("pid")).result
    assert isinstance(pid, int)
    os.kill(pid, signal.SIGKILL)
    record = await bench.run("pid")
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert record.result != pid


async def test_a_large_payload_and_result(bench: Bench) -> None:
    data = os.urandom(3_000_000)
    record = await bench.run("echo", data)
    assert record.status is RunStatus.SUCCEEDED, record.error
    run = bench.client.run("apart", "echo", record.run_id)
    assert await run.result(10) == data


async def test_a_value_as_deep_as_allowed_is_told_and_returned(bench: Bench) -> None:
    deepest: Any = "here"
    for _ in range(MAX_DEPTH):
        deepest = [deepest]
    with capture_logs() as said:
        record = await bench.run("tells", deepest)
    assert record.status is RunStatus.SUCCEEDED, record.error
    assert record.result == deepest
    assert record.checkpoint_body is not None
    assert record.checkpoint_body.value == deepest
    escaped = r"caf\udce9"
    assert [(line.message, line.fields) for line in record.logs] == [
        ("said", {"value": deepest}),
        (escaped, {escaped: escaped}),
    ]
    own = [entry for entry in said if entry.get("run_id") == record.run_id]
    assert [entry["event"] for entry in own] == ["said", "said", escaped, escaped]
    assert own[1]["value"] == deepest
    assert own[3]["large"] == str(2**70)


async def test_a_large_payload_is_fetched_once(nats_url: str, project: str) -> None:
    world = NatsWorld(project, nats_url)
    ports = FailingBackend(await world.connect())
    data = os.urandom(1_000_000)
    async with JobHost(MODULES, backend=ports, settings=SETTINGS), JobClient(nats_url, project=project) as client:
        run = await client.get_job("apart", "echo").trigger(data)
        assert await run.result(20) == data
    assert ports.calls["payloads.get"] == 1
    await world.close()


async def test_a_checkpoint_reaches_the_next_attempt_past_a_death(bench: Bench) -> None:
    record = await bench.run("resumes")
    assert (record.status, record.result) == (RunStatus.SUCCEEDED, [1, 2])
    error = record.attempts[0].error
    assert error is not None
    assert (error.type, error.message) == ("ProcessDied", "child process died: exit code 3")


@pytest.mark.parametrize(
    "how,status,starts,said",
    [
        ("skip", "SKIPPED", 1, "nothing to do"),
        ("discard", "FAILED", 1, "Discard: never"),
        ("snooze", "SUCCEEDED", 2, "attempt 1"),
        ("later", "SUCCEEDED", 2, "attempt 2"),
        ("odd", "SUCCEEDED", 3, "attempt 3"),
        ("value", "FAILED", 1, "ValueError: not again"),
        ("exit", "FAILED", 1, "SystemExit: 3"),
        ("unstorable", "FAILED", 1, "PayloadError: result not serialisable"),
    ],
)
async def test_outcomes(bench: Bench, how: str, status: str, starts: int, said: str) -> None:
    record = await bench.run("ends", how)
    error = "" if record.error is None else f"{record.error.type}: {record.error.message}"
    assert (record.status.value, record.starts) == (status, starts), error
    assert said in (error, record.skip_reason, record.result) or error.startswith(said)
    if how == "value":
        assert record.error is not None
        assert "process_jobs.py" in record.error.traceback


async def test_a_validator_that_breaks_in_the_child_refuses_the_payload(bench: Bench) -> None:
    """As one that breaks in the host does: no other attempt could do better."""
    await bench.run("pid")
    record = await bench.run("fits_there", {"host": os.getpid()})
    assert (record.status, record.starts) == (RunStatus.FAILED, 1)
    assert record.error is not None
    assert record.error.type == "PayloadInvalidError"
    assert record.error.message == (
        "the payload type of apart.fits_there raised ZeroDivisionError while it validated: no such file here"
    )
    assert not record.error.traceback


async def test_a_child_has_no_socket_of_the_broker(bench: Bench) -> None:
    found: Any = (await bench.run("descriptors")).result
    assert len([each for each in found if each.startswith("socket:")]) == 1, found
    assert len([each for each in found if each.startswith("pipe:")]) <= 3, found  # the lifeline, and our own outputs


async def test_fifty_runs_leak_no_descriptor(bench: Bench) -> None:
    await bench.run("pid")
    before = descriptors()
    for _ in range(40):
        await bench.run("pid")
    for _ in range(10):
        await bench.run("crashes", int(signal.SIGKILL))
    await bench.run("pid")
    assert descriptors() <= before
    assert len(children()) == 1


async def test_nor_does_a_child_that_is_used_again(bench: Bench) -> None:
    """Whatever its runs come to; the pid says that it is one child."""
    pid = (await bench.run("pid")).result
    first: Any = (await bench.run("descriptors")).result
    for how in ("skip", "discard", "snooze", "later", "value", "unstorable") * 3:
        await bench.run("ends", how)
    await bench.run("echo", bytes(200_000))
    assert (await bench.run("descriptors")).result == first
    assert (await bench.run("pid")).result == pid


async def test_state_stays_in_the_host(bench: Bench) -> None:
    record = await bench.run("stateful.asks_state")
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert "ctx.state of stateful.asks_state is in the host" in record.error.message


async def test_exposed_and_class_style_jobs(nats_url: str, project: str) -> None:
    async with hosted(nats_url, project, process_jobs.tasks, process_jobs.Classy()) as bench:
        assert (await bench.run("tasks.exposed", 4)).result == 5
        assert (await bench.run("classy.double", 4)).result == 8


BROKEN_LATER = """
from jetjobs import JobContext, Module
later = Module("later")

@later.job(isolation="process", timeout="60s")
def fine(ctx: JobContext) -> str:
    return "fine"
"""


async def test_an_import_that_fails_is_a_failed_attempt_and_tried_anew(
    nats_url: str, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "broken_later.py"
    file.write_text(BROKEN_LATER)
    module = importlib.import_module("broken_later").later
    async with hosted(nats_url, project, module) as bench:
        file.write_text(f"raise OSError('half deployed')\n{BROKEN_LATER}")
        record = await bench.run("later.fine")
        assert record.status is RunStatus.FAILED
        assert record.error is not None
        assert (record.error.type, record.error.message) == ("OSError", "half deployed")
        file.write_text(BROKEN_LATER)
        assert (await bench.run("later.fine")).result == "fine"


async def test_hooks_run_in_the_host(nats_url: str, project: str, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[object] = []

    async def before(ctx: JobContext) -> None:
        heard.append(os.getpid())

    def after(ctx: JobContext, error: BaseException | None) -> None:
        heard.append(None if error is None else f"{type(error).__name__} {error}")

    monkeypatch.setattr(process_jobs.jobs, "_before", [before])
    monkeypatch.setattr(process_jobs.jobs, "_after", [after])
    async with hosted(nats_url, project) as bench:
        for how in ("fine", "skip", "value"):
            await bench.run("ends", how)
    here = os.getpid()
    assert heard == [here, None, here, "Skip nothing to do", here, "FailedInChild ValueError: not again"]


async def test_never_more_children_than_thread_slots(nats_url: str, project: str, tmp_path: Path) -> None:
    settings = HostSettings(ack_wait=3, heartbeat_every=0.5, lost_after=10, interrupt_grace=GRACE, threads=1)
    async with hosted(nats_url, project, settings=settings) as bench:
        first = await bench.trigger("looks", str(tmp_path / "1"))
        await written(tmp_path / "1")
        second = await bench.trigger("looks", str(tmp_path / "2"))
        await asyncio.sleep(0.5)  # time enough for a second child
        assert not (tmp_path / "2").exists()
        await first.cancel()
        await written(tmp_path / "2")
        await second.cancel()
        await second.wait(45)


def test_what_no_child_could_find_is_refused() -> None:
    module = Module("local")

    @module.job(isolation="process")
    def nested(ctx: JobContext) -> None: ...

    with pytest.raises(ConfigError, match="defined inside a function"):
        find_target(module, nested)
    module.expose_job("hidden", process_jobs.plain, isolation="process")
    with pytest.raises(ConfigError, match=r"no imported file holds this Module .* write `local = Module"):
        find_target(module, module.jobs["hidden"])


async def test_a_host_refuses_it_before_it_connects(project: str) -> None:
    module = Module("local")
    module.expose_job("hidden", process_jobs.plain, isolation="process")
    host = JobHost([module], project=project, nats="nats://127.0.0.1:1")
    with pytest.raises(ConfigError, match='isolation="process" runs the handler in another process'):
        await host.start()
