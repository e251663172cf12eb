"""What every test may ask for; folders add their own."""

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import RealServer


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """The server that all tests of this worker share: use a project of your own, and leave it running."""
    server = RealServer(tmp_path_factory.mktemp("nats"))
    server.start()
    yield server
    server.remove()


@pytest.fixture
def nats_url(nats_server: RealServer) -> str:
    return nats_server.url


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RealServer]:
    """A server of the test's own, to kill, freeze and restart."""
    server = RealServer(tmp_path / "nats")
    server.start()
    yield server
    server.remove()


@pytest.fixture
def project() -> str:
    """A project name that no other test has."""
    return f"t-{secrets.token_hex(6)}"
