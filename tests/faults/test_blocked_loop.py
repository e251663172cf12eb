"""A handler that blocks the event loop: its host can neither renew nor answer, and must not lose the run."""

from __future__ import annotations

from jetjobs._core.models import RunStatus
from tests.faults.rig import ACK_WAIT, Rig, eventually


async def test_a_handler_that_blocks_the_loop_starts_once(rig: Rig) -> None:
    first = await rig.host()
    run_id = await rig.trigger("block_loop", 3.5 * ACK_WAIT)
    start = await rig.journal.started(run_id)
    assert start.pid == first.pid
    second = await rig.host()
    record = await rig.ended("block_loop", run_id, 30)
    assert (record.status, record.starts, record.result) == (RunStatus.SUCCEEDED, 1, "blocked")
    await rig.retired("block_loop")
    assert len(rig.journal.starts(run_id)) == 1
    assert not second.events("run_reaped")
    (said,) = first.events("loop_blocked")
    assert said["jobs"] == ["basic.block_loop"]
    assert "in block_loop" in said["at"]
    await eventually(lambda: first.events("loop_runs_again"))
    for _ in range(5):
        await rig.ping()


async def test_other_jobs_go_on_elsewhere_and_both_hosts_serve_after(rig: Rig) -> None:
    first = await rig.host()
    run_id = await rig.trigger("block_loop", 2 * ACK_WAIT)
    await rig.journal.started(run_id)
    others = [await rig.trigger("hold", 3 * ACK_WAIT) for _ in range(2)]  # wait for the second host
    second = await rig.host()
    for other in others:
        start = await rig.journal.started(other, within=2 * ACK_WAIT + 5)
        assert start.pid in {first.pid, second.pid}
    for record in await rig.all_ended("hold", others):
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert (await rig.ended("block_loop", run_id)).starts == 1
    assert rig.journal.most_live(run=run_id) == 1
