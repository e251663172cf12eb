"""What every test may ask for; folders add their own."""

import asyncio
import gc
import os
import secrets
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.cluster import RealCluster
from tests.support.servers import RealServer

# 50 examples a property keep all of them within seconds, judged by what they find and never by how busy the
# machine is. In CI the examples are the same each time; elsewhere the seed is new each run, so nights add up.
settings.register_profile(
    "jetjobs",
    max_examples=50,
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("jetjobs")

# A shell that puts its commands into the background has them ignore SIGINT, and so would the programs that tests start
# and interrupt: what is ignored here is ignored in every child.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits longest goes first, after whatever shuffled them; the rest keeps its order."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish() -> None:
    """Keep thousands of collected tests out of every garbage collection: one holds up a host in this process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The server that all tests of this worker share: use a project of your own, and leave it running."""
    with RealServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
def nats_url(nats_server: RealServer) -> str:
    return nats_server.url


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RealServer]:
    """A server of the test's own, to kill, freeze and restart."""
    with RealServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def project() -> str:
    """A project name that no other test has."""
    return f"t-{secrets.token_hex(6)}"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RealCluster]:
    """Three servers of the test's own, with a leader."""
    servers = RealCluster(tmp_path / "cluster")
    try:
        servers.start()
        async with asyncio.timeout(60):
            await servers.ready()
        yield servers
    finally:
        servers.remove()
