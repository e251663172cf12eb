from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.engine.host.scene import Scene
from tests.engine.host.stage import Stage
from tests.support.worlds import MemoryWorld, NatsWorld, World


@pytest.fixture(params=["memory", pytest.param("nats", marks=pytest.mark.integration)])
async def stage(request: pytest.FixtureRequest, project: str) -> AsyncIterator[Stage]:
    """Hosts in memory under a clock that stands still, and the same on a real server."""
    if request.param == "memory":
        world: World = MemoryWorld(project)
    else:
        world = NatsWorld(project, request.getfixturevalue("nats_url"))
    async with staged(world) as made:
        yield made


@pytest.fixture
async def memory_stage(project: str) -> AsyncIterator[Stage]:
    """Hosts in memory only, where a connection can be cut and an hour passes at once."""
    async with staged(MemoryWorld(project)) as made:
        yield made


@asynccontextmanager
async def staged(world: World) -> AsyncGenerator[Stage]:
    made = Stage(world)
    await made.open()
    yield made
    await made.close()
    await world.close()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    made = Scene()
    yield made
    await made.close()
