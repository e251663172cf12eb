"""Host processes on a real server; every test of this folder is marked `faults`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.rig import Rig
from tests.faults.schedule_rig import ScheduleRig
from tests.support.servers import RealServer

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.faults)


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


@pytest.fixture
async def schedules(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScheduleRig]:
    """Hosts whose jobs have schedules."""
    made = ScheduleRig(rig, monkeypatch)
    yield made
    await made.close()
