from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jetjobs._ports import Backend
from tests.support.worlds import NATS, MemoryWorld, NatsWorld, World


@pytest.fixture(params=["memory", NATS])
async def world(request: pytest.FixtureRequest, project: str) -> AsyncIterator[World]:
    if request.param == "memory":
        made: World = MemoryWorld(project)
    else:
        made = NatsWorld(project, request.getfixturevalue("nats_url"))
    yield made
    await made.close()


@pytest.fixture
async def backend(world: World) -> Backend:
    """Ports over a first connection, to a project that is ready."""
    made = await world.connect()
    await made.broker.ensure_project()
    return made
