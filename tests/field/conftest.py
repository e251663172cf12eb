"""What the field cases share: host processes and their journal, and one project asked directly."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.rig import Rig
from tests.support.servers import RealServer


@pytest.fixture
async def rig(tmp_path: Path, nats_url: str, project: str) -> AsyncIterator[Rig]:
    """Hosts on the server all tests share."""
    made = Rig(tmp_path, nats_url, project)
    yield made
    await made.close()


@pytest.fixture
async def own_rig(tmp_path: Path, own_server: RealServer, project: str) -> AsyncIterator[Rig]:
    """Hosts on a server that the test may kill."""
    made = Rig(tmp_path, own_server.url, project)
    yield made
    await made.close()
