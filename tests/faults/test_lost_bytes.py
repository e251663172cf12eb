"""Requests and answers lost on the wire between a real host, or client, and the broker."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs._core.models import RunStatus
from jetjobs.client import JobClient
from tests.faults.rig import ACK_WAIT, Rig
from tests.support.proxy import Proxy

WRITES = ["create", "save", "retry", "ack"]


def pattern(rig: Rig, write: str) -> tuple[bytes, int]:
    """What the write looks like on the wire, and how many of the kind come before it."""
    project = rig.project.encode()
    return {
        "create": (b"PUB $KV.jetjobs_%b_runs.basic.fails_until." % project, 0),
        "save": (b"PUB $KV.jetjobs_%b_runs.basic.fails_until." % project, 1),
        "retry": (b"PUB jetjobs.%b.schedule.basic.fails_until." % project, 0),
        "ack": (b"PUB $JS.ACK.JETJOBS_%b." % project, 0),
    }[write]


@pytest.mark.parametrize("lost", ["answer", "request"])
@pytest.mark.parametrize("write", WRITES)
async def test_bytes_lost_between_host_and_broker(rig: Rig, write: str, lost: str) -> None:
    async with Proxy(int(rig.url.rpartition(":")[2])) as proxy:
        await rig.host(server=proxy.url)
        await rig.ping()
        await rig.retired("ping")
        (proxy.lose_answer if lost == "answer" else proxy.lose_request)(*pattern(rig, write))
        run_id = await rig.trigger("fails_until", 2)
        record = await rig.ended("fails_until", run_id)
        assert proxy.lost.is_set()
        assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "attempt 2", 2)
        await rig.retired("fails_until", 4 * ACK_WAIT)
        assert [line.attempt for line in rig.journal.starts(run_id)] == [1, 2]
        await rig.ping()


@pytest.mark.parametrize("lost", ["answer", "request"])
async def test_a_trigger_lost_on_its_way(rig: Rig, lost: str) -> None:
    await rig.host()
    async with Proxy(int(rig.url.rpartition(":")[2])) as proxy:
        options = {"servers": proxy.url, "reconnect_time_wait": 0.1}
        async with JobClient(options, project=rig.project) as client:
            job = client.get_job("basic", "echo")
            await (await job.trigger("first")).wait(30)
            subject = b"PUB jetjobs.%b.trigger.basic.echo.run." % rig.project.encode()
            (proxy.lose_answer if lost == "answer" else proxy.lose_request)(subject)
            run = await job.trigger("second")
            assert proxy.lost.is_set()
            record = await run.wait(30)
            assert (record.status, record.result, record.starts) == (RunStatus.SUCCEEDED, "second", 1)
    assert len(rig.journal.starts(job="echo")) == 2


async def test_a_line_that_is_cut_all_the_time(rig: Rig) -> None:
    """Every cut loses whatever is on its way; a second host has a good line."""
    async with Proxy(int(rig.url.rpartition(":")[2])) as proxy:
        await rig.host(server=proxy.url)
        await rig.host()
        runs = await rig.trigger_all("four", [0.05] * 60)

        async def cut() -> None:
            while True:
                await asyncio.sleep(0.4)
                proxy.cut()

        cutting = asyncio.ensure_future(cut())
        try:
            records = await rig.all_ended("four", runs)
        finally:
            cutting.cancel()
        assert {record.status for record in records} == {RunStatus.SUCCEEDED}
        assert {record.starts for record in records} == {1}
        await rig.retired("four")
    assert sorted(line.run for line in rig.journal.starts(job="four")) == sorted(runs)
    assert rig.journal.most_live("four") <= 4
