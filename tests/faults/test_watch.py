"""A watch over a broker that goes and comes back."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._nats import open_backend
from jetjobs._ports import Backend
from jetjobs.client import JobClient
from jetjobs.config import connect_options
from jetjobs.errors import BrokerError, WrongRevision
from jetjobs.sync import JobClient as BlockingClient
from tests.support.links import until_it
from tests.support.servers import RealServer

pytestmark = [pytest.mark.faults, pytest.mark.integration]


async def test_a_watch_goes_on_where_it_was_after_the_broker_was_killed(own_server: RealServer, project: str):
    backend = await open_backend(connect_options(own_server.url), project, name="host")
    await backend.broker.ensure_project()
    record = RunRecord("r1", "billing", "send", RunStatus.RUNNING, created_at=datetime.now(UTC))
    seen: asyncio.Queue[RunRecord | None] = asyncio.Queue()
    begun = threading.Event()

    async def look(client: JobClient) -> None:
        async for each in client.runs.watch(heartbeat="1h"):
            await seen.put(each)

    def blocking() -> list[RunStatus]:
        with BlockingClient(own_server.url, project=project) as client:
            watch = client.runs.watch(existing=True)
            statuses = [next(watch).status]
            begun.set()
            return [*statuses, next(watch).status]

    async with JobClient(own_server.url, project=project) as client, asyncio.timeout(110), asyncio.TaskGroup() as group:
        group.create_task(look(client))
        assert await seen.get() is None
        revision = await backend.runs.create(record)
        first = await seen.get()
        blocked = asyncio.ensure_future(asyncio.to_thread(blocking))
        assert await asyncio.to_thread(begun.wait, 45)
        await asyncio.to_thread(own_server.kill9)
        await asyncio.to_thread(own_server.start)
        ended = record.but(status=RunStatus.FAILED)
        await until_it(lambda: _written(backend, ended, revision), 60)
        second = await seen.get()
        await client.close()  # ends the watch, and with it the group
        assert await blocked == [RunStatus.RUNNING, RunStatus.FAILED]
    assert first is not None
    assert second is not None
    assert (first.status, second.status) == (RunStatus.RUNNING, RunStatus.FAILED)
    await backend.close()


async def _written(backend: Backend, record: RunRecord, revision: int) -> bool:
    """Whether the record got there: the connection comes back in its own time."""
    try:
        await backend.runs.update(record, revision)
    except WrongRevision:
        return True  # an earlier try did it, and its answer was lost
    except BrokerError:
        return False
    return True
