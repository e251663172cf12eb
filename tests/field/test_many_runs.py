"""B113: lists over many records: what a page costs is counted, not timed; and all of 50,000, by processor time."""

from __future__ import annotations

import asyncio
import os
import sys
import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from jetjobs._core import codec
from jetjobs._core.bodies import Body
from jetjobs._core.models import RunError, RunRecord, RunStatus
from jetjobs._nats import open_backend
from jetjobs._ports import Backend
from jetjobs.client import JobClient
from jetjobs.config import connect_options
from jetjobs.sync import JobClient as BlockingClient
from tests.support.servers import RealServer

_BATCH = 500


async def fill(url: str, project: str, number: int) -> list[str]:
    """Finished runs, written twice each as a host does, made a tenth of a second apart; their ids, newest first."""
    backend = await open_backend(connect_options(url), project, name="filler")
    await backend.broker.ensure_project()
    now = datetime.now(UTC)
    for start in range(0, number, _BATCH):
        several = range(start, min(start + _BATCH, number))
        await asyncio.gather(*(_run(backend, n, now - timedelta(seconds=(number - n) / 10)) for n in several))
    await backend.close()
    return [f"r{n:06}" for n in reversed(range(number))]


async def _run(backend: Backend, n: int, at: datetime) -> None:
    bad = n % 100 == 0
    record = RunRecord(
        f"r{n:06}",
        "billing",
        f"job{n % 5}",
        RunStatus.RUNNING,
        starts=1,
        created_at=at,
        started_at=at,
        payload_body=Body(codec.encode({"n": n, "email": "someone@example.com"})),
    )
    revision = await backend.runs.create(record)
    ended = record.but(
        status=RunStatus.FAILED if bad else RunStatus.SUCCEEDED,
        finished_at=at,
        error=RunError("ValueError", f"no invoice {n}") if bad else None,
    )
    await backend.runs.update(ended, revision)


class Counted:
    """The requests for pages that a client's connection sends."""

    def __init__(self, client: JobClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pages = 0
        link = cast("Any", client.runs._scope().backend.runs)._link
        post: Callable[..., bool] = link.connection.post

        def counting(subject: str, *args: Any, **kwargs: Any) -> bool:
            self.pages += subject.startswith("$JS.API.DIRECT.GET.KV_")
            return post(subject, *args, **kwargs)

        monkeypatch.setattr(link.connection, "post", counting)

    def take(self) -> int:
        pages, self.pages = self.pages, 0
        return pages


async def test_b113_a_page_of_recent_runs_reads_the_end_only(
    nats_url: str, project: str, monkeypatch: pytest.MonkeyPatch
):
    # Made as they were written, unlike the others: what is to come is older than the page by more than clocks differ.
    ids = await fill(nats_url, project, 2000)
    async with JobClient(nats_url, project=project) as client:
        backend = client.runs._scope().backend
        fresh: list[str] = []
        await asyncio.sleep(1.1)  # the broker stamps what it stores: time has to pass for records to lie apart
        for n in range(30):
            await _run(backend, 100_000 + n, datetime.now(UTC))
            fresh.insert(0, f"r{100_000 + n:06}")
        counted = Counted(client, monkeypatch)
        assert [record.run_id for record in await client.runs.list(limit=20)] == fresh[:20]
        few = counted.take()
        assert few <= 6, "the newest, one stretch, and what was written meanwhile"
        assert [record.run_id for record in await client.runs.list(limit=5000)] == [*fresh, *ids]
        assert counted.take() > 2 * few
        assert [record.run_id async for record in client.runs.iter(status="failed", job="job0")][1:] == ids[99::100]
        since = await client.runs.list(since=datetime.now(UTC) - timedelta(seconds=1))
        assert counted.take() > 0
        assert {record.run_id for record in since} <= set(fresh)


async def test_b113_all_are_listed_iterated_and_deleted_in_order(nats_url: str, project: str):
    ids = await fill(nats_url, project, 2500)
    async with JobClient(nats_url, project=project) as client:
        assert [record.run_id async for record in client.runs.iter()] == ids
        assert [record.run_id for record in await client.runs.list(text="no invoice", limit=5)] == ids[99:599:100]
        assert [record.run_id for record in await client.runs.list(error_type="ValueError", limit=5)] == ids[99:599:100]
        assert await client.runs.list(error_type="KeyError") == []
        foreseen = await client.runs.delete(status="failed", dry_run=True)
        assert [change.run_id for change in foreseen] == ids[99::100]
        changes = await client.runs.delete(job="job1")
        assert len(changes) == 500
        assert all(change.ok for change in changes)
        left = {record.run_id async for record in client.runs.iter() if not record.stub}
        assert left == set(ids) - {change.run_id for change in changes}

    def blocking() -> list[str]:
        with BlockingClient(nats_url, project=project) as client:
            watch = client.runs.watch(existing=True, status="failed")
            assert next(watch).status is RunStatus.FAILED
            changes = client.runs.delete(error_type="ValueError", limit=3)
            assert [change.run_id for change in changes] == ids[99:399:100]
            return [record.run_id for record in client.runs.iter(include_skipped=True)]

    assert await asyncio.to_thread(blocking) == ids


async def test_b113_a_page_of_many_takes_little_memory(nats_url: str, project: str):
    ids = await fill(nats_url, project, 5000)
    async with JobClient(nats_url, project=project) as client:
        tracemalloc.start()
        try:
            assert [record.run_id for record in await client.runs.list(limit=50)] == ids[:50]
            asked: list[dict[str, Any]] = [
                {"status": "failed", "job": "job0"},
                {"text": "nothing like it"},
                {"module": "nobody"},
            ]
            for filters in asked:
                assert len(await client.runs.list(limit=50, **filters)) in {0, 50}
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 15e6


def used_by(server: RealServer) -> float:
    """Seconds of processor time that the server has used."""
    fields = Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.soak
@pytest.mark.timeout(300)
@pytest.mark.skipif(sys.platform != "linux", reason="reads the server's processor time from /proc")
async def test_b113_a_page_of_fifty_thousand(own_server: RealServer, project: str):
    """Processor time is judged: others may use this machine. The server reads ahead while the client looks, so that
    where nobody else is a page takes about as long as the busier of the two.
    """
    ids = await fill(own_server.url, project, 50_000)
    asked: list[dict[str, Any]] = [
        {},
        {"status": "failed"},
        {"job": "job3", "module": "billing"},
        {"error_type": "KeyError"},
        {"text": "nothing like it"},
        {"since": datetime.now(UTC) - timedelta(minutes=10), "until": datetime.now(UTC) - timedelta(minutes=5)},
    ]
    async with JobClient(own_server.url, project=project) as client:
        tracemalloc.start()
        began = time.monotonic()
        assert [record.run_id for record in await client.runs.list(limit=50)] == ids[:50]
        assert time.monotonic() - began < 3
        await client.runs.list(status="failed", job="job0", limit=50)
        assert tracemalloc.get_traced_memory()[1] < 30e6
        tracemalloc.stop()
        for filters in asked:
            mine, its = time.process_time(), used_by(own_server)
            await client.runs.list(**filters, timeout="30s")
            assert time.process_time() - mine < 1, filters
            assert used_by(own_server) - its < 2, filters
        assert [record.run_id async for record in client.runs.iter()] == ids
        changes = await client.runs.delete(module="billing", timeout="60s")
        assert len(changes) == 50_000
        assert all(change.ok for change in changes)
