"""A host that dies between a child's trigger and its parent's end."""

from __future__ import annotations

from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig, eventually


async def test_a_host_killed_after_its_run_s_children_makes_no_second_ones(rig: Rig) -> None:
    first = await rig.host("families")
    run_id = await rig.trigger("parent", 5)
    await eventually(lambda: rig.journal.lines("children", run_id), what="the children's triggers")
    first.kill9()
    await rig.host("families")
    record = await rig.ended("parent", run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 2)
    before, after = rig.journal.lines("children", run_id)
    assert (before.attempt, after.attempt) == (1, 2)
    assert before.ids == after.ids == record.result
    children = await rig.all_ended("child", record.result)
    assert [(child.status, child.parent_run_id) for child in children] == [(RunStatus.SUCCEEDED, run_id)] * 5
    await rig.retired("child")
    # One that was running when its host died is started again; none has a second run.
    assert {line.run for line in rig.journal.starts(job="child")} == set(record.result)
    assert all(line.parent == run_id for line in rig.journal.starts(job="child"))
