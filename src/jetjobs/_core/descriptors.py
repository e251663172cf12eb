"""What hosts publish: how a job is declared, and that a host lives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from jetjobs._core.models import NOTHING, JobAddress


@dataclass(frozen=True, slots=True)
class JobDescriptor:
    """What hosts publish about a job, so that others can find, list and call it.

    Attributes:
        module, job: Its names.
        description: What it says about itself.
        max_concurrency, max_attempts, timeout: As declared; see `JobPolicy`.
        payload_schema: JSON schema of the payload's type, where it has one.
        payload_schema_digest: Tells two schemas apart.
        takes_payload: Whether its handler has a second parameter.
        triggers: The triggers declared in code, as plain data.
        retention: How long its finished runs are kept, where the job says so.
        redact: Paths that no display shows.
        now_called: The job's present name, where this is an old one that is still served.
        version: Release of the host that described it last.
        host_id: That host.
        updated_at: When it did.
        digest: Tells two declarations apart.
        extra: Fields of newer versions.
    """

    module: str
    job: str
    description: str = ""
    max_concurrency: int = 1
    max_attempts: int = 1
    timeout: timedelta | None = None
    payload_schema: Mapping[str, Any] | None = None
    payload_schema_digest: str | None = None
    takes_payload: bool = True
    triggers: tuple[Mapping[str, Any], ...] = ()
    retention: Mapping[str, Any] | None = None
    redact: tuple[str, ...] = ()
    now_called: str | None = None
    version: str | None = None
    host_id: str | None = None
    updated_at: datetime | None = None
    digest: str = ""
    extra: Mapping[str, Any] = NOTHING

    @property
    def address(self) -> JobAddress:
        """The job described."""
        return JobAddress(self.module, self.job)


@dataclass(frozen=True, slots=True)
class HostPresence:
    """What a live host says about itself; gone 35 s after it stopped saying so.

    Attributes:
        started_at, seen_at: When it started, and when it last said so.
        version: Release of its code, as `JobHost(version=…)` said.
        jobs: Names of the jobs it runs, as `module.job`.
        running: How many runs it held just then.
        descriptors: By job, the digest of how this host declares it.
        draining: It closes, and takes nothing new.
        retention: How long it keeps finished runs of jobs that don't say.
    """

    host_id: str
    hostname: str
    pid: int
    started_at: datetime
    seen_at: datetime
    version: str | None = None
    jobs: tuple[str, ...] = ()
    running: int = 0
    descriptors: Mapping[str, str] = field(default_factory=dict[str, str])
    draining: bool = False
    retention: Mapping[str, Any] | None = None


def takers(hosts: Iterable[HostPresence]) -> Counter[JobAddress]:
    """How many hosts take runs of each job: those that have it and don't drain.

    >>> from datetime import UTC
    >>> now = datetime(2030, 1, 1, tzinfo=UTC)
    >>> hosts = [HostPresence(name, "box", 1, now, now, jobs=("a.b",), draining=name == "h1") for name in ("h1", "h2")]
    >>> takers(hosts)[JobAddress("a", "b")], takers(hosts)[JobAddress("a", "c")]
    (1, 0)
    """
    parted = (job.rpartition(".") for host in hosts if not host.draining for job in host.jobs)
    return Counter(JobAddress(module, job) for module, _, job in parted)
