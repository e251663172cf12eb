"""Brokers that know no schedules, and streams that were made without: never a host whose schedules are silently off."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import nats
import pytest
from structlog.testing import capture_logs

from jetjobs import Every, JobContext, JobHost
from jetjobs._core import names
from jetjobs._nats.provision import ProvisionSettings, wanted_streams
from jetjobs.errors import ServerTooOld, StreamMismatch
from tests.support.doors import Doors, shop, streams_of
from tests.support.impostors import OldServer

pytestmark = pytest.mark.integration


async def test_b27_too_old(doors: Doors):
    """No schedules before 2.14; both versions are named."""
    with OldServer("2.9.10") as url:
        error = await doors.all_refuse({"servers": url}, ServerTooOld, "2.9.10", "2.14")
    assert isinstance(error, ServerTooOld)
    assert (error.found, error.needed) == ("2.9.10", "2.14")


async def made(url: str, project: str, **changes: Any) -> None:
    wanted = wanted_streams(project, ProvisionSettings())[0]
    config = {name: value for name, value in {**wanted.config, **changes}.items() if value is not None}
    client = await nats.connect(url)
    answer = await client.request(f"$JS.API.STREAM.CREATE.{wanted.name}", json.dumps(config).encode())
    await client.close()
    assert "error" not in json.loads(answer.data)


async def test_b27_a_stream_without_schedules_is_brought_up_to_date(nats_url: str, project: str):
    """Fixed, and said so; never runs with schedules silently off."""
    await made(nats_url, project, allow_msg_schedules=None, allow_msg_ttl=None)
    module, ran = shop(), asyncio.Event()

    @module.job(timeout="5s", triggers=[Every("1s")])
    async def look(ctx: JobContext) -> None:
        ran.set()

    with capture_logs() as logs:
        async with JobHost([module], project=project, nats=nats_url), asyncio.timeout(45):
            await ran.wait()
            client = await nats.connect(nats_url)
            info = json.loads((await client.request(f"$JS.API.STREAM.INFO.{names.stream(project)}")).data)
            await client.close()
    assert info["config"]["allow_msg_schedules"] is True
    told = next(line for line in logs if line["event"] == "stream adapted")
    assert "allow_msg_schedules" in told["changed"]


async def test_b27_a_stream_of_another_kind_is_named_and_left_alone(doors: Doors, nats_url: str, project: str):
    """A difference the broker never changes."""
    await made(nats_url, project, retention="limits")
    words = (names.stream(project), "retention", "'limits'", "'workqueue'")
    await doors.host_refuses({"servers": nats_url}, StreamMismatch, *words)
    await doors.command_refuses("run app", {"servers": nats_url}, *words)
    assert await streams_of(nats_url, project) == {names.stream(project)}


async def test_b27_a_stream_with_discard_new_is_explained(doors: Doors, nats_url: str, project: str):
    """The broker refuses schedules on such a stream: its reason and the stream are told."""
    await made(nats_url, project, allow_msg_schedules=None, discard="new", max_msgs=5)
    await doors.host_refuses({"servers": nats_url}, StreamMismatch, names.stream(project), "allow_msg_schedules")
    assert await streams_of(nats_url, project) == {names.stream(project)}
