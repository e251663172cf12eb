"""Says that this host lives and what it runs, and warns where another live host says otherwise."""

from __future__ import annotations

import os
import secrets
import socket
from datetime import timedelta
from typing import TYPE_CHECKING

from jetjobs._core.descriptors import HostPresence
from jetjobs._core.retention import describe_retention
from jetjobs._engine.tasks import in_batches
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jetjobs._core.descriptors import JobDescriptor
    from jetjobs._engine.engine import Engine

log = get_logger("jetjobs.engine")

SAY_EVERY = 10.0
TTL = timedelta(seconds=35)


class Presence:
    """One host's entry in the catalog, said again every ten seconds and gone by itself after three missed ones."""

    interval = SAY_EVERY

    def __init__(self, engine: Engine, descriptors: Sequence[JobDescriptor]) -> None:
        self._engine = engine
        self._descriptors = tuple(descriptors)
        self._started_at = engine.backend.broker.now()
        self._hostname = socket.gethostname()
        self._retention = describe_retention(engine.settings.retention)
        self._warned: set[str] = set()
        self.problem: str | None = None  # why the broker, connected as it is, doesn't take what this host says

    def _presence(self) -> HostPresence:
        engine = self._engine
        return HostPresence(
            host_id=engine.host_id,
            hostname=self._hostname,
            pid=os.getpid(),
            version=engine.version,
            started_at=self._started_at,
            seen_at=engine.backend.broker.now(),
            jobs=tuple(str(descriptor.address) for descriptor in self._descriptors),
            running=len(engine.held),
            descriptors={str(descriptor.address): descriptor.digest for descriptor in self._descriptors},
            draining=engine.draining,
            retention=self._retention,
        )

    async def one_pass(self) -> None:
        """Say it."""
        backend = self._engine.backend
        try:
            await backend.catalog.say(self._presence(), TTL)
        except BrokerError as error:
            self.problem = None if backend.broker.connected_since is None else str(error)
            raise
        if self.problem is not None:
            # The bucket had gone, perhaps, and with it that of the descriptors.
            await in_batches(backend.catalog.describe(descriptor) for descriptor in self._descriptors)
            self.problem = None

    async def appear(self) -> None:
        """Say it for the first time, and compare with the hosts that live."""
        self._started_at = self._engine.backend.broker.now()
        await self.one_pass()
        await self.compare()

    async def compare(self) -> None:
        """Warn once per job that a live host of the same version declares differently."""
        mine = {str(descriptor.address): descriptor.digest for descriptor in self._descriptors}
        for host in await self._engine.backend.catalog.hosts():
            if host.host_id == self._engine.host_id or host.version != self._engine.version:
                continue
            for job, digest in host.descriptors.items():
                if job in mine and mine[job] != digest and job not in self._warned:
                    self._warned.add(job)
                    log.warning("job_declared_differently", job=job, other_host=host.host_id, version=host.version)

    async def leave(self) -> None:
        """Take the entry away."""
        await self._engine.backend.catalog.leave(self._engine.host_id)


def fresh_host_id() -> str:
    """A new host's name, by which people see on which machine and in which process it runs."""
    machine = socket.gethostname().split(".")[0]
    readable = "".join(c if c.isascii() and c.isalnum() else "-" for c in machine)[:32]
    return f"{readable or 'host'}-{os.getpid()}-{secrets.token_hex(4)}"
