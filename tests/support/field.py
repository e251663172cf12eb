"""One project under test: hosts in this process, a client, and what the broker itself says of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import nats
from nats.aio.client import Client
from nats.js.api import ConsumerInfo

from jetjobs import JobHost, Module
from jetjobs._core import names
from jetjobs._core.models import JobAddress, RunRecord
from jetjobs.client import JobClient
from jetjobs.config import HostSettings
from jetjobs.errors import RunNotFound
from tests.support.links import until_it
from tests.support.raw_socket import RawPublisher

QUICK: dict[str, Any] = {
    "ack_wait": 2.0,
    "heartbeat_every": 0.5,
    "lost_after": 5.0,
    "upkeep_every": 1.0,
    "drain": 1.0,
    "interrupt_grace": 0.5,
}


class Field:
    """Made by `field`. Hosts and client share the server, and nothing else."""

    def __init__(self, url: str, project: str, stack: AsyncExitStack) -> None:
        self.url = url
        self.project = project
        self._stack = stack
        self.client: JobClient
        self.raw: RawPublisher
        self.nats: Client

    async def open(self) -> None:
        self.client = await self._stack.enter_async_context(JobClient(self.url, project=self.project))
        self.raw = await self._stack.enter_async_context(RawPublisher(int(self.url.rpartition(":")[2])))
        self.nats = await nats.connect(self.url)
        self._stack.push_async_callback(self.nats.close)

    async def host(self, *modules: Module, settings: Iterable[tuple[str, Any]] = (), **options: Any) -> JobHost:
        """A host that serves until the test ends."""
        host = JobHost(
            modules,
            project=self.project,
            nats=self.url,
            settings=HostSettings(**{**QUICK, **dict(settings)}),
            **options,
        )
        return await self._stack.enter_async_context(host)

    async def ping(self, module: str) -> None:
        """Its host serves: the job `ping` says pong."""
        assert await (await self.client.get_job(f"{module}.ping").trigger()).result(timeout=45) == "pong"

    def subject(self, job: str, tail: str) -> str:
        """Where a job's triggers go, spelled as somebody outside would."""
        module, _, name = job.rpartition(".")
        return f"jetjobs.{self.project}.trigger.{module.replace('.', '=2E')}.{name}.{tail}"

    async def ended(self, job: str, run_id: str, within: float = 45.0) -> RunRecord:
        """A run's terminal record; waits for runs that aren't there yet, too."""
        module, _, name = job.rpartition(".")
        async with asyncio.timeout(within):
            while True:
                try:
                    return await self.client.run(module, name, run_id).wait(within)
                except RunNotFound:  # a raw publish tells nobody when its message is stored
                    await asyncio.sleep(0.05)

    async def consumer(self, job: str) -> ConsumerInfo:
        module, _, name = job.rpartition(".")
        return await self.nats.jetstream().consumer_info(
            names.stream(self.project), names.consumer(JobAddress(module, name))
        )

    async def retired(self, job: str, within: float = 45.0) -> ConsumerInfo:
        """Return once every message of the job has gone: none waits, none is in flight."""

        async def free() -> bool:
            info = await self.consumer(job)
            return info.num_ack_pending == 0 and info.num_pending == 0

        await until_it(free, within)
        return await self.consumer(job)

    async def messages(self) -> dict[str, int]:
        """Subjects of the jobs stream that hold messages."""
        info = await self.nats.jetstream().stream_info(names.stream(self.project), subjects_filter=">")
        return info.state.subjects or {}

    async def record_sizes(self) -> dict[str, int]:
        """Stored bytes of every record, by its key."""
        stream = names.bucket_stream(names.runs_bucket(self.project))
        jetstream = self.nats.jetstream()
        info = await jetstream.stream_info(stream, subjects_filter=">")
        subjects = info.state.subjects or {}
        found = {subject: await jetstream.get_last_msg(stream, subject) for subject in subjects}
        return {subject: len(message.data or b"") for subject, message in found.items()}


@asynccontextmanager
async def field_of(url: str, project: str) -> AsyncGenerator[Field]:
    """A project to test on a server."""
    async with AsyncExitStack() as stack:
        made = Field(url, project, stack)
        await made.open()
        yield made
