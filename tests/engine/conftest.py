from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from jetjobs.testing import ManualClock, MemoryCluster
from tests.support.client_world import World
from tests.support.process_bench import Bench, hosted
from tests.support.upkeep import Upkeep


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A client of a project whose job `billing.send` is described and hosted."""
    made = World()
    await made.describe()
    async with made.client:
        yield made


@pytest.fixture
def cluster() -> MemoryCluster:
    """A broker in memory, under a clock that stands still."""
    return MemoryCluster(ManualClock())


@pytest.fixture
async def upkeep(cluster: MemoryCluster) -> Upkeep:
    """The pruner of one host, over ports that can fail."""
    return Upkeep(cluster)


@pytest.fixture
async def bench(nats_url: str, project: str) -> AsyncIterator[Bench]:
    """A host with isolated jobs."""
    async with hosted(nats_url, project) as made:
        yield made
