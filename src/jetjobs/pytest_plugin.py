"""Fixtures for tests on a real broker. pytest loads this with jetjobs installed; it costs nothing until one is used.

Nothing but pytest is imported here. No other plugin is needed: the fixtures are plain ones.
"""
# ruff: noqa: PLC0415 - what a fixture needs is imported when a test asks for it

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from jetjobs import HostSettings, JobHost, Module, SyncJobClient
    from jetjobs.embedded import EmbeddedServer


class StartHost(Protocol):
    """What the fixture `jetjobs_host` gives."""

    def __call__(self, *modules: Module, settings: HostSettings | None = None) -> JobHost:
        """A host that serves these modules in a thread of its own until the test ends."""
        ...


@pytest.fixture(scope="session")
def jetjobs_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A nats-server on a free loopback port, one for all tests of this process; `.url` is where clients connect."""
    from jetjobs.embedded import EmbeddedServer
    from jetjobs.errors import ServerStartError

    server = EmbeddedServer(tmp_path_factory.mktemp("jetjobs-broker"))
    try:
        server.start_blocking()
    except ServerStartError as error:
        pytest.fail(f"the fixture jetjobs_broker needs a nats-server: {error}", pytrace=False)
    yield server
    server.stop_blocking()


@pytest.fixture
def jetjobs_project() -> str:
    """Name of a project no other test has: tests share the broker and see nothing of each other."""
    return f"test-{secrets.token_hex(6)}"


@pytest.fixture
def jetjobs_client(jetjobs_broker: EmbeddedServer, jetjobs_project: str) -> Iterator[SyncJobClient]:
    """A blocking client of the test's project. A coroutine makes a `JobClient(jetjobs_broker.url, …)` instead."""
    from jetjobs import SyncJobClient

    with SyncJobClient(jetjobs_broker.url, project=jetjobs_project) as client:
        yield client


@pytest.fixture
def jetjobs_host(jetjobs_broker: EmbeddedServer, jetjobs_project: str) -> Iterator[StartHost]:
    """Starts hosts of the test's project: `jetjobs_host(billing)`. They are closed when the test ends."""
    from jetjobs.testing import host_in_thread

    with ExitStack() as hosts:

        def start(*modules: Module, settings: HostSettings | None = None) -> JobHost:
            host = host_in_thread(modules, project=jetjobs_project, nats=jetjobs_broker.url, settings=settings)
            return hosts.enter_context(host)

        yield start


__all__ = ["StartHost", "jetjobs_broker", "jetjobs_client", "jetjobs_host", "jetjobs_project"]
