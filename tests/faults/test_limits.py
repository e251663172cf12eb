"""A job's limit holds over all hosts, counted by the handlers."""

from __future__ import annotations

import random

from jetjobs._core.models import RunStatus
from tests.faults.rig import Rig


async def test_never_more_than_the_limit_over_three_hosts(rig: Rig) -> None:
    for host in [rig.spawn() for _ in range(3)]:
        await host.ready()
    dice = random.Random(4)
    runs = await rig.trigger_all("four", [dice.choice([0.0, 0.01, 0.05, 0.15]) for _ in range(300)])
    records = await rig.all_ended("four", runs)
    await rig.retired("four")
    assert {record.status for record in records} == {RunStatus.SUCCEEDED}
    starts = rig.journal.starts(job="four")
    assert sorted(line.run for line in starts) == sorted(runs), "each run started once"
    assert rig.journal.most_live("four") == 4, "never more, and the limit is used"
    assert len({line.pid for line in starts}) == 3, "all three hosts took part"
