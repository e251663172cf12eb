"""Everything at once, by a seeded dice: hosts killed, stopped and started, the broker killed, runs cancelled."""

from __future__ import annotations

import asyncio
import os
import random
import time

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.rig import ACK_WAIT, HostProcess, Rig
from tests.support.servers import RealServer

SECONDS = 12.0


class Chaos:
    def __init__(self, rig: Rig, server: RealServer, dice: random.Random) -> None:
        self.rig = rig
        self.server = server
        self.dice = dice
        self.died: dict[int, float] = {}
        self.live: list[HostProcess] = []
        self.outages = 0

    async def go(self) -> None:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            await asyncio.sleep(self.dice.uniform(0.2, 0.8))
            what = self.dice.choices(["kill", "stop", "outage"], [5, 3, 1])[0]
            if what == "outage":
                await self.outage()
            else:
                await self.replace(what)

    async def replace(self, how: str) -> None:
        host = self.live.pop(self.dice.randrange(len(self.live)))
        if host.process.poll() is not None:
            pass  # it was started during an outage
        elif how == "kill":
            self.died[host.pid] = host.kill9()
        else:
            host.sigterm()
        self.live.append(self.rig.spawn())

    async def outage(self) -> None:
        self.outages += 1
        await asyncio.to_thread(self.server.kill9)
        await asyncio.sleep(self.dice.uniform(0, 1.5 * ACK_WAIT))
        await asyncio.to_thread(self.server.start)


@pytest.mark.long
async def test_chaos(own_rig: Rig, own_server: RealServer) -> None:
    rig, seed = own_rig, int(os.environ.get("CHAOS_SEED", "7"))
    dice = random.Random(seed)
    chaos = Chaos(rig, own_server, dice)
    chaos.live = [await rig.host(), await rig.host(), await rig.host()]
    runs = [await rig.trigger("survives", dice.choice([0.0, 0.05, 0.3, 1.0])) for _ in range(120)]
    await chaos.go()
    for host in [await rig.spawn().ready(), await rig.spawn().ready()]:
        assert host.process.poll() is None
    records = await rig.all_ended("survives", runs, 60)
    await rig.retired("survives")
    journal = rig.journal
    assert {record.status for record in records} == {RunStatus.SUCCEEDED}, f"seed {seed}"
    for record in records:
        starts = journal.starts(record.run_id)
        # A host may die between its claim and the handler's first line, so the record may know of one start more.
        assert len(starts) <= record.starts
        assert record.starts >= 1
        assert journal.most_live(run=record.run_id, died=chaos.died) == 1, f"seed {seed}"
        returned = [line for line in journal.ends(record.run_id) if line.how == "return"]
        assert len(returned) >= 1
        if len(returned) > 1:
            # Finished, and its host died, or was out of reach, before that was saved.
            assert any(line.pid in chaos.died for line in returned) or chaos.outages, f"seed {seed}"
    assert journal.most_live("survives", died=chaos.died) <= 6, f"seed {seed}"
