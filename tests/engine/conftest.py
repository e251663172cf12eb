from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.client_world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A client of a project whose job `billing.send` is described and hosted."""
    made = World()
    await made.describe()
    async with made.client:
        yield made
