"""A host that was given an open client has no second way to the broker: it says so when its loop is blocked."""

from __future__ import annotations

import time
from typing import Any

import nats
import pytest
from structlog.testing import capture_logs

from jetjobs import JobClient, JobContext, JobHost, Module
from tests.engine.host.stage import SETTINGS
from tests.support.links import until

pytestmark = pytest.mark.integration


async def block(url: str, connection: Any, project: str) -> list[Any]:
    """What a host says while a handler blocks its loop for longer than the ack wait."""
    module = Module("m")

    @module.job(max_attempts=3)
    async def blocks(ctx: JobContext[Any]) -> str:
        time.sleep(1.3)  # noqa: ASYNC251
        return f"attempt {ctx.attempt}"

    with capture_logs() as said:
        async with (
            JobHost([module], nats=connection, project=project, settings=SETTINGS),
            JobClient(url, project=project) as client,
        ):
            run = await client.get_job(blocks).trigger()
            record = await run.wait(10)
            await until(lambda: [entry for entry in said if entry["event"] == "loop_runs_again"])
    assert record.ok
    return said


async def test_without_a_second_connection_it_is_said(nats_url: str, project: str) -> None:
    client = await nats.connect(nats_url)
    said = await block(nats_url, client, project)
    await client.close()
    warned = [entry for entry in said if entry["event"] == "blocked_runs_not_kept"]
    assert warned
    assert warned[0]["jobs"] == ["m.blocks"]
    assert "open client" in warned[0]["error"]


async def test_with_connect_options_it_is_kept(nats_url: str, project: str) -> None:
    said = await block(nats_url, nats_url, project)
    events = [entry["event"] for entry in said]
    assert events.count("loop_blocked") == 1
    assert "nats disconnected" not in events, "nobody else could take what the broker gives"
    assert not {"blocked_runs_not_kept", "run_fenced", "run_lost_to_another_host"} & set(events)
