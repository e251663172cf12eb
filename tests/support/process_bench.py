"""A host with isolated jobs, and what its children leave behind."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from jetjobs import HostSettings, JobHost, Module
from jetjobs._core.models import RunRecord
from jetjobs.client import JobClient
from tests.support import process_jobs
from tests.support.waiting import eventually

GRACE = 0.3


SETTINGS = HostSettings(
    ack_wait=3, heartbeat_every=0.5, lost_after=10, drain=0.2, interrupt_grace=GRACE, completion_error_after=2
)


MODULES = (process_jobs.jobs, process_jobs.stateful, process_jobs.tasks)


class Bench:
    def __init__(self, host: JobHost, client: JobClient) -> None:
        self.host = host
        self.client = client

    async def trigger(self, job: str, payload: Any = None) -> Any:
        module, _, name = job.rpartition(".")
        return await self.client.get_job(module or "apart", name).trigger(payload)

    async def run(self, job: str, payload: Any = None) -> RunRecord:
        return await (await self.trigger(job, payload)).wait(45)


@asynccontextmanager
async def hosted(url: str, project: str, *modules: Module, settings: HostSettings = SETTINGS) -> AsyncGenerator[Bench]:
    """A host, which leaves no child and no zombie when it is closed."""
    before = processes()
    host = JobHost(modules or MODULES, project=project, nats=url, settings=settings)
    async with host, JobClient(url, project=project) as client:
        yield Bench(host, client)
    await eventually(lambda: processes() == before)


def processes(*, but: tuple[str, ...] = ("nats-server",)) -> set[int]:
    """Processes whose parent this is, zombies too."""
    found = {int(pid) for thread in Path("/proc/self/task").iterdir() for pid in _read(thread / "children").split()}
    return {pid for pid in found if not any(word in _read(Path(f"/proc/{pid}/cmdline")) for word in but)}


def _read(file: Path) -> str:
    """Empty for a thread or process that has ended since it was seen."""
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children() -> set[int]:
    """Those in which handlers run."""
    return processes(but=("nats-server", "guard_program"))


def descriptors() -> int:
    """How many this process has open."""
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


async def written(path: Path) -> int:
    """The number in a file, once it is there."""
    return int(await eventually(lambda: path.exists() and path.read_text()))
