from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.client_world import World
from tests.support.process_bench import Bench, hosted


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A client of a project whose job `billing.send` is described and hosted."""
    made = World()
    await made.describe()
    async with made.client:
        yield made


@pytest.fixture
async def bench(nats_url: str, project: str) -> AsyncIterator[Bench]:
    """A host with isolated jobs."""
    async with hosted(nats_url, project) as made:
        yield made
