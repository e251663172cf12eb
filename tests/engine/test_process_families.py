"""Handlers in child processes that trigger children, and the rest of their context, on a real server."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from jetjobs import JobContext
from jetjobs._core.models import RunStatus
from jetjobs._core.plain import MAX_DEPTH
from jetjobs._core.run_ids import run_id_for_child
from tests.support.process_bench import Bench, hosted, written
from tests.support.process_families import family
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc"),
]


@pytest.fixture
async def bench(nats_url: str, project: str) -> AsyncIterator[Bench]:
    async with hosted(nats_url, project, family) as made:
        yield made


async def test_a_repeated_attempt_makes_the_same_children(bench: Bench) -> None:
    record = await bench.run("family.split", [1, 2])
    assert (record.status, record.attempt) == (RunStatus.SUCCEEDED, 2), record.error
    key = record.run_key
    ids = [run_id_for_child(key, "family", "part", named) for named in (1, 2, 3, "eight")]
    assert record.result == [["family", "part", run_id, f"JobRun('family.part/{run_id}')"] for run_id in ids]
    for run_id, number in zip(ids, (1, 2, 7, 8), strict=True):
        child = await bench.client.run("family", "part", run_id).wait(10)
        assert (child.result, child.parent_run_id) == ({"of": number, "value": number * number}, record.run_id)
        assert child.trigger.kind == "child"


async def test_a_hook_s_children_and_the_handler_s_are_counted_together(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a thread: two of one job without a key are two runs, whoever of the attempt asked for them."""

    async def before(ctx: JobContext) -> None:
        if ctx.job == "asks":
            await ctx.trigger_child("family.part", 10)

    async def after(ctx: JobContext, error: BaseException | None) -> None:
        if ctx.job == "asks":
            await ctx.trigger_child("family.part", 12)

    monkeypatch.setattr(family, "_before", [before])
    monkeypatch.setattr(family, "_after", [after])
    record = await bench.run("family.asks", 11)
    assert record.status is RunStatus.SUCCEEDED, record.error
    ids = [run_id_for_child(record.run_key, "family", "part", number) for number in (1, 2, 3)]
    assert record.result == ids[1]
    for run_id, number in zip(ids, (10, 11, 12), strict=True):
        child = await bench.client.run("family", "part", run_id).wait(10)
        assert child.result == {"of": number, "value": number * number}


async def test_a_run_can_be_followed_whatever_its_result_s_size(bench: Bench) -> None:
    size = 3_000_000
    record = await bench.run("family.follows", size)
    assert record.status is RunStatus.SUCCEEDED, record.error
    assert record.result == {"record": record.run_id, "cancelled": "CANCELLED", "then": "CANCELLED", "size": size}


async def test_a_child_s_result_as_deep_as_allowed_is_told_to_its_parent(bench: Bench) -> None:
    record = await bench.run("family.fetches", MAX_DEPTH)
    assert record.status is RunStatus.SUCCEEDED, record.error
    assert str(record.result) == "[" * MAX_DEPTH + "'here'" + "]" * MAX_DEPTH


async def test_errors_are_those_of_a_thread(bench: Bench) -> None:
    record = await bench.run("family.errs")
    assert record.status is RunStatus.SUCCEEDED, record.error
    said: list[str] = record.result
    names = [
        "UnknownJobError",
        "InvalidNameError",
        "PayloadInvalidError",
        "PayloadError",
        "InvalidNameError",
        "ConfigError",
        "TimeoutError",
        "ConfigError",
        "RunFailed",
        "ClientError",
        "BlockingCallError",
    ]
    assert [each.partition(" ")[0] for each in said] == names
    assert "{'close_names': ['family.part'" in said[0]
    assert "has not ended within 0.1 s" in said[6]
    assert said[8].endswith("has failed: ValueError: this part fails {} FAILED")
    assert "write ctx.trigger_child_blocking(…)" in said[9]


async def test_a_handler_that_waits_for_its_child_can_be_interrupted(bench: Bench, tmp_path: Path) -> None:
    run = await bench.trigger("family.waits", str(tmp_path / "pid"))
    await written(tmp_path / "pid")
    await run.cancel()
    record = await run.wait(45)
    assert record.status is RunStatus.CANCELLED
    assert record.error is None
    endless = run_id_for_child(record.run_key, "family", "endless", "one")
    await bench.client.run("family", "endless", endless).cancel()


async def test_nothing_is_asked_once_the_handler_has_returned(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "said"
    await bench.run("family.keeps", str(path))
    await eventually(lambda: path.exists() and path.read_text())
    assert path.read_text().startswith("ClientError the handler whose context this is has returned")


async def test_the_context_is_complete(bench: Bench) -> None:
    with capture_logs() as logs:
        record = await bench.run("family.shows", {"n": 1})
    assert record.status is RunStatus.SUCCEEDED, record.error
    shown = record.result
    assert set(shown["names"]) >= {name for name in dir(JobContext) if not name.startswith("_")}
    about = f"<JobContext family.shows/{record.run_id} attempt 1>"
    assert (shown["repr"], shown["kind"], shown["run_id"]) == (about, "manual", record.run_id)
    assert (shown["module"], shown["job"], shown["attempt"], shown["max_attempts"]) == ("family", "shows", 1, 3)
    assert (shown["payload"], shown["state"], shown["last_checkpoint"]) == ({"n": 1}, None, None)
    assert (shown["cancelled"], shown["cancel_reason"]) == (False, None)
    own = [(entry["event"], entry.get("more")) for entry in logs if entry.get("run_id") == record.run_id]
    assert own == [("said", None), ("to the log only", 2)]
    assert [line.message for line in record.logs] == ["said"]
