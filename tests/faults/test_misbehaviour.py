"""Handlers that return what can't be stored, shout and leave things behind; more of them with the field cases."""

from __future__ import annotations

import pytest

from jetjobs._core import wire
from jetjobs._core.models import RunStatus
from tests.faults.rig import HostProcess, Rig


async def alive(rig: Rig, host: HostProcess) -> None:
    await rig.ping()
    assert host.process.poll() is None


@pytest.mark.parametrize("job", ["returns_odd", "returns_odd_from_thread"])
async def test_results_that_cannot_be_stored(rig: Rig, job: str) -> None:
    host = await rig.host()
    names = {"object": "object", "file": "TextIOWrapper", "generator": "generator", "lock": "lock",
             "coroutine": "coroutine", "nested": "object", "circle": ""}  # fmt: skip
    if job == "returns_odd":
        names["task"] = "Task"
    for how, name in names.items():
        run_id = await rig.trigger(job, how)
        record = await rig.ended(job, run_id)
        assert record.status is RunStatus.FAILED, how
        assert record.error is not None
        assert "result not serialisable" in record.error.message
        assert name in record.error.message
        assert len(rig.journal.starts(run_id)) == 1, "it is done: another attempt would do it again"
    await alive(rig, host)


async def test_logs_and_results_of_any_size_leave_the_record_small(rig: Rig) -> None:
    await rig.host()
    run_id = await rig.trigger("talks", 2000)
    record = await rig.ended("talks", run_id)
    assert record.status is RunStatus.SUCCEEDED
    assert record.result == "z" * 1_000_000
    client = await rig.client()
    stored = await client._open().backend.runs.get(record.run_key)
    assert stored is not None
    assert len(wire.pack_record(stored.record)) < 512 * 1024
    assert any("cut" in line.message for line in stored.record.logs)


@pytest.mark.parametrize("job", ["hooked.forks", "hooked.forks_in_thread"])
async def test_hooks_after_a_fork_run_in_the_parent_only(rig: Rig, job: str) -> None:
    host = await rig.host("hooked", "basic")
    run_id = await rig.trigger(job)
    assert (await rig.ended(job, run_id)).result == "parent"
    assert [line.pid for line in rig.journal.lines("after", run_id)] == [host.pid]
    await alive(rig, host)


async def test_what_a_plain_handler_binds_does_not_show_in_the_next_run(rig: Rig) -> None:
    await rig.host()
    for value in ("first", "second"):
        assert (await rig.ended("binds", await rig.trigger("binds", value))).result == "nothing"
