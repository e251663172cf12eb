"""Hosts and callers on machines whose clock is off by hours: the broker's clock counts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from jetjobs import Backoff, JobClient, JobContext, JobHost, Module
from jetjobs._clock import SystemClock
from jetjobs._core.models import RunStatus
from jetjobs._nats import open_backend
from jetjobs.config import HostSettings

pytestmark = pytest.mark.integration

SETTINGS = HostSettings(ack_wait=3, heartbeat_every=0.5, lost_after=2, upkeep_every=1, drain=2)


@asynccontextmanager
async def skewed_client(url: str, project: str, offset: timedelta) -> AsyncGenerator[JobClient]:
    """A client on a machine whose clock is off by so much."""
    backend = await open_backend(url, project, name="skewed", clock=SystemClock(offset))
    try:
        async with JobClient(backend=backend) as client:
            yield client
    finally:
        await backend.close()


def clocked() -> Module:
    module = Module("clocked")

    @module.job(max_concurrency=4, timeout="30s")
    async def hold(ctx: JobContext, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @module.job(max_concurrency=4, timeout="30s", max_attempts=2, backoff=Backoff(1))
    async def fails_once(ctx: JobContext) -> int:
        if ctx.attempt == 1:
            raise ValueError("once")
        return ctx.attempt

    return module


def near_now(*instants: datetime | None) -> bool:
    return all(at is not None and abs(datetime.now(UTC) - at) < timedelta(seconds=30) for at in instants)


@pytest.mark.parametrize("hours", [-5, 3])
async def test_b24_a_host_whose_clock_is_off_by_hours(nats_url: str, project: str, hours: int) -> None:
    """Deadlines, ages and retries are judged in broker time, so nothing is reaped, MISSED or late."""
    skewed = JobHost(
        [clocked()], project=project, nats=nats_url, settings=SETTINGS, clock=SystemClock(timedelta(hours=hours))
    )
    reaping = JobHost([Module("other")], project=project, nats=nats_url, settings=SETTINGS)
    async with skewed, reaping, JobClient(nats_url, project=project) as client:
        hold = client.get_job("clocked", "hold")
        long_one = await hold.trigger(5)
        quick = await hold.trigger(0, start_within="20s", expires_in="40s")
        retried = await client.get_job("clocked", "fails_once").trigger(expires_in="40s")
        for run in (quick, retried, long_one):
            record = await run.wait(timeout=45)
            assert (record.status, record.interruptions) == (RunStatus.SUCCEEDED, 0)
            assert near_now(record.created_at, record.started_at, record.finished_at)
            assert record.started_at is not None
            assert record.finished_at is not None
            assert record.finished_at >= record.started_at
        assert len((await long_one.record()).attempts) <= 1
        hosts = await client.hosts.list()
        assert len(hosts) == 2
        assert near_now(*(host.seen_at for host in hosts), *(host.started_at for host in hosts))


@pytest.mark.parametrize("hours", [-5, 3])
async def test_b24_a_client_whose_clock_is_off_by_hours(nats_url: str, project: str, hours: int) -> None:
    """A delay is counted from the broker's now, and a start deadline too."""
    async with (
        JobHost([clocked()], project=project, nats=nats_url),
        skewed_client(nats_url, project, timedelta(hours=hours)) as client,
    ):
        hold = client.get_job("clocked", "hold")
        begun = time.monotonic()
        delayed = await hold.trigger(0, delay=2)
        within = await hold.trigger(0, start_within="20s")
        assert (await within.wait(timeout=45)).status is RunStatus.SUCCEEDED
        assert (await delayed.wait(timeout=45)).status is RunStatus.SUCCEEDED
        assert 1.5 < time.monotonic() - begun < 20
        waiting = await hold.trigger(0, delay="1h")
        await waiting.reschedule(datetime.now(UTC) + timedelta(seconds=1.5))
        assert (await waiting.wait(timeout=45)).status is RunStatus.SUCCEEDED
