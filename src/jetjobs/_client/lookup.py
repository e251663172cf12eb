"""Whether a job is described and hosted, remembered, so that a trigger costs no question of its own.

A descriptor found stays believed as long as the client is open. Who is alive is asked again after a few seconds,
by one caller for all. A caller without the right to look (or while nobody answers) triggers all the same: the
look-up only spares people mistakes.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from jetjobs._client.calls import Deadline, read
from jetjobs._core.controls import present_name
from jetjobs._core.descriptors import JobDescriptor, takers
from jetjobs._core.models import JobAddress
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import kept_by, read_retention
from jetjobs._core.triggering import close_names
from jetjobs._log import get_logger
from jetjobs._ports import Catalog
from jetjobs.errors import BrokerError, PermissionMissing, UnknownJobError

_BELIEVE_HOSTS = 5.0
_logger = get_logger("jetjobs.client")


class JobLookup:
    """What a client knows of jobs and hosts."""

    def __init__(self, catalog: Catalog, project: str) -> None:
        self._catalog = catalog
        self._project = project
        self._described: dict[JobAddress, JobDescriptor | None] = {}
        self._hosted: frozenset[JobAddress] | None = frozenset()
        self._hosts_until = 0.0
        self._kept = JobRetention()
        self._paused: frozenset[JobAddress] = frozenset()
        self._asking = asyncio.Lock()
        self._warned: set[JobAddress] = set()

    def known_hosted(self, address: JobAddress) -> bool:
        """Whether the job was described and hosted a moment ago: the answer that needs no await."""
        return self.known(address) is True

    def known(self, address: JobAddress) -> bool | None:
        """The same of a job that was described; `None` if that has to be looked up first."""
        if address not in self._described or time.monotonic() >= self._hosts_until:
            return None
        return self._hosted is None or address in self._hosted

    @property
    def knows_any(self) -> bool:
        """Whether a host's description was read: the project was prepared then."""
        return any(self._described.values())

    def is_paused(self, address: JobAddress) -> bool:
        """Whether the job was paused when it was last looked at."""
        if not self._paused:
            return False
        described = self._described.get(address)
        return address in self._paused or (described is not None and present_name(described) in self._paused)

    def note_paused(self, address: JobAddress, *, paused: bool) -> None:
        """Remember what this client itself ordered just now."""
        self._paused = self._paused | {address} if paused else self._paused - {address}

    async def look(self, address: JobAddress, deadline: Deadline, *, allow_unknown: bool) -> bool:
        """Whether a live host takes the job's runs; True when that can't be found out.

        Raises:
            UnknownJobError: no host ever described it, and `allow_unknown` is False.
            BrokerUnavailable: no answer in time.
        """
        if address not in self._described:
            found = await self._descriptor(address, deadline)
            if found is None and not allow_unknown:
                raise await self.unknown(address, deadline)
            if found is not None:
                self._described[address] = found
        hosted = await self._is_hosted(address, deadline)
        if not hosted and address not in self._warned:
            self._warned.add(address)
            _logger.warning("job_without_host", job=str(address), project=self._project)
        return hosted

    async def _descriptor(self, address: JobAddress, deadline: Deadline) -> JobDescriptor | None:
        try:
            return await read(lambda: self._catalog.job(address), deadline, f"looking up job {address}")
        except PermissionMissing:
            return JobDescriptor(*address)

    async def retention(self, address: JobAddress, deadline: Deadline) -> JobRetention:
        """How long a job's runs are kept: as it says, else as the hosts that live do, else the default."""
        found = self._described.get(address)
        if found is None:
            with suppress(BrokerError):
                found = await self._descriptor(address, deadline)
        said = None if found is None else read_retention(found.retention)
        if said is None:
            await self._is_hosted(address, deadline)  # which notes what the hosts say
        return said or self._kept

    async def unknown(self, address: JobAddress, deadline: Deadline) -> UnknownJobError:
        """The error that says so, with the names that come close."""
        known = [found.address for found in await read(self._catalog.jobs, deadline, "listing jobs")]
        if not known:
            return UnknownJobError(
                f"no host ever started in project {self._project!r}, so nobody knows job {str(address)!r}; start "
                "its host once, or pass allow_unknown=True"
            )
        close = close_names(address, known)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else "see client.jobs.list()"
        return UnknownJobError(
            f"no host ever described job {str(address)!r} in project {self._project!r}; {hint}", close
        )

    async def _is_hosted(self, address: JobAddress, deadline: Deadline) -> bool:
        if time.monotonic() >= self._hosts_until:
            async with self._asking:
                if time.monotonic() >= self._hosts_until:
                    self._hosted, self._paused = await asyncio.gather(
                        self._hosted_jobs(deadline), self._paused_jobs(deadline)
                    )
                    self._hosts_until = time.monotonic() + _BELIEVE_HOSTS
        return self._hosted is None or address in self._hosted

    async def _hosted_jobs(self, deadline: Deadline) -> frozenset[JobAddress] | None:
        try:
            hosts = await read(self._catalog.hosts, Deadline(deadline.left / 4, life=deadline.life), "listing hosts")
        except BrokerError:  # no right to look, or nobody answers: no reason not to try to store
            return None
        self._kept = kept_by(hosts)
        return frozenset(takers(hosts))

    async def _paused_jobs(self, deadline: Deadline) -> frozenset[JobAddress]:
        try:
            stored = await read(
                self._catalog.controls, Deadline(deadline.left / 4, life=deadline.life), "looking for paused jobs"
            )
        except BrokerError:
            return frozenset()
        return frozenset(each.control.address for each in stored if each.control.paused)
