"""A user whose messages may be smaller than the server says: NATS keeps that to itself and hangs up on a larger one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetjobs import JobClient, JobContext, JobHost, Module
from jetjobs.config import HostSettings
from tests.support.field import QUICK
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration

LIMIT = 100_000


@pytest.fixture
def target(tmp_path: Path) -> Iterator[dict[str, Any]]:
    pytest.importorskip("nkeys", reason="credentials files need the extra `nkeys`")
    from tests.support.jwts import Operator

    operator = Operator(tmp_path)
    with RealServer(tmp_path / "nats", extra_conf=operator.conf) as server:
        credentials = operator.credentials(expires_in=3600, payload=LIMIT)
        yield {"servers": server.url, "user_credentials": str(credentials), "reconnect_time_wait": 0.1}


def sizes() -> Module:
    module = Module("sizes")

    @module.job(timeout="60s")
    async def echo(ctx: JobContext, payload: bytes) -> bytes:
        return payload

    @module.job(timeout="60s")
    async def say(ctx: JobContext, payload: int) -> str:
        for _ in range(payload // 10_000):
            ctx.log("x" * 10_000)
        return "said"

    return module


async def test_records_and_bodies_that_exceed_it_arrive_all_the_same(target: dict[str, Any], project: str):
    """Otherwise each try would end the connection, and the host's other runs would suffer for ever."""
    settings = HostSettings(**QUICK)
    async with (
        JobHost([sizes()], project=project, nats=target, settings=settings),
        JobClient(target, project=project) as client,
    ):
        said = await client.get_job("sizes.say").trigger(300_000)
        assert await said.result(timeout=30) == "said"
        body = b"y" * 1_200_000
        echoed = await client.get_job("sizes.echo").trigger(body)
        assert await echoed.result(timeout=30) == body
