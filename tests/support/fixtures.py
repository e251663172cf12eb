"""Fixtures that several folders ask for; each takes those it needs into its conftest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.faults.rig import Rig
from tests.faults.schedule_rig import ScheduleRig
from tests.support.commands import APP, Terminal
from tests.support.doors import GUARDED, Doors
from tests.support.events import Orders
from tests.support.field import Field, field_of
from tests.support.servers import RealServer


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    """Hosts in this process, on the server all tests share."""
    async with field_of(nats_url, project) as made:
        yield made


@pytest.fixture
def orders(field: Field) -> Orders:
    """Another service, whose events are heard."""
    return Orders(field)


@pytest.fixture
async def rig(tmp_path: Path, nats_url: str, project: str) -> AsyncIterator[Rig]:
    """Host processes on the server all tests share."""
    made = Rig(tmp_path, nats_url, project)
    yield made
    await made.close()


@pytest.fixture
async def own_rig(tmp_path: Path, own_server: RealServer, project: str) -> AsyncIterator[Rig]:
    """Host processes on a server that the test may kill."""
    made = Rig(tmp_path, own_server.url, project)
    yield made
    await made.close()


@pytest.fixture
async def schedules(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScheduleRig]:
    """Host processes whose jobs have schedules, on the shared server."""
    made = ScheduleRig(rig, monkeypatch)
    yield made
    await made.close()


@pytest.fixture
async def own_schedules(own_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScheduleRig]:
    """The same on a server that the test may kill."""
    made = ScheduleRig(own_rig, monkeypatch)
    yield made
    await made.close()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with users of few rights, and an account without JetStream."""
    with RealServer(tmp_path_factory.mktemp("guarded"), extra_conf=GUARDED) as server:
        yield server


@pytest.fixture
def doors(tmp_path: Path, project: str) -> Doors:
    """Host, client and command line, to be turned away."""
    (tmp_path / "app.py").write_text(APP)
    return Doors(Terminal(tmp_path, project=project), project)
