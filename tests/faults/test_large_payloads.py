"""Claim-checked payloads and results where hosts and brokers die."""

from __future__ import annotations

import hashlib

import pytest

from jetjobs import RunStatus
from jetjobs._core.bodies import ClaimCheck
from tests.faults.rig import Rig
from tests.support.servers import RealServer


@pytest.mark.parametrize("size", [17_000, 3_000_000])
async def test_the_next_attempt_gets_the_whole_payload_after_a_kill(rig: Rig, size: int):
    """B38, B80: the host dies with the payload in its memory; the other one fetches it again."""
    first = await rig.host("large")
    body = bytes(range(256)) * (size // 256)
    run = await rig.trigger("large.double", body)
    await rig.journal.started(run)
    second = await rig.host("large")
    first.kill9()
    record = await rig.ended("large.double", run)
    assert (record.status, record.attempt) == (RunStatus.SUCCEEDED, 2)
    digest = hashlib.sha256(body).hexdigest()
    assert [(line.digest, line.size) for line in rig.journal.starts(run)] == [(digest, len(body))] * 2
    assert rig.journal.starts(run)[1].pid == second.pid
    client = await rig.client()
    handle = client.run("large", "double", run)
    assert await handle.result(timeout=45) == body * 2
    assert isinstance((await client.runs.get(run)).result, ClaimCheck)
    await rig.retired("large.double")


async def test_payload_and_result_survive_the_broker(own_rig: Rig, own_server: RealServer):
    """Both lie on disk: a broker killed while the payload waits, and restarted after the end, has them still."""
    host = await own_rig.host("large")
    body = b"x" * 2_000_000
    run = await own_rig.trigger("large.double", body)
    await own_rig.journal.started(run)
    host.kill9()
    own_server.kill9()
    own_server.start()
    await own_rig.host("large")
    assert (await own_rig.ended("large.double", run)).status is RunStatus.SUCCEEDED
    own_server.restart()
    client = await own_rig.client()
    assert await client.run("large", "double", run).result(timeout=45) == body * 2
