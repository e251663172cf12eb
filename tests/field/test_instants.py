"""Runs asked for at an instant: each starts once, however often hosts and broker restart before and after."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.models import RunStatus
from jetjobs.errors import ConfigError
from tests.faults.rig import HostProcess, Rig
from tests.support.servers import RealServer

pytestmark = pytest.mark.faults


async def _restarted(rig: Rig, host: HostProcess, times: int, every: float) -> HostProcess:
    for _ in range(times):
        host.sigterm()
        assert await host.exit_code() == 0
        host = await rig.host()
        await asyncio.sleep(every)
    return host


async def _once(rig: Rig, runs: list[str]) -> None:
    """Each of them ran once, and nothing of it is left that could start it again."""
    await rig.retired("ping")
    for run in runs:
        assert len(rig.journal.starts(run)) == 1
        record = await rig.record("ping", run)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    state = await rig.jetstream(lambda js: js.stream_info(names.stream(rig.project)))
    assert state.state.messages == 0


async def _past_and_soon(rig: Rig) -> list[str]:
    """A run asked for an hour ago, which starts at once, and one in three seconds, which doesn't."""
    now = datetime.now(UTC)
    past = await rig.trigger_first("ping", at=now - timedelta(hours=1))
    soon = await rig.trigger("ping", at=now + timedelta(seconds=3))
    host = await rig.host()
    await rig.journal.started(past)
    await rig.ended("ping", past)  # killed in it, it would be lost: it has one attempt
    host.kill9()
    host = await rig.host()
    await rig.journal.started(soon)
    assert 3 <= time.time() - now.timestamp() < 30
    await _once(rig, [past, soon])
    return [past, soon]


async def test_b21_a_run_at_an_instant_is_no_other_after_restarts(rig: Rig):
    runs = await _past_and_soon(rig)
    await _restarted(rig, rig.hosts[-1], 3, 0)
    await _once(rig, runs)


@pytest.mark.soak
@pytest.mark.timeout(400)
async def test_b21_a_run_at_an_instant_is_no_other_after_minutes_of_restarts(own_rig: Rig, own_server: RealServer):
    """The broker, too, is killed: after it saved what is scheduled, and what fired since is not saved."""
    waits = datetime.now(UTC) + timedelta(seconds=170)
    runs = await _past_and_soon(own_rig)
    late = await own_rig.trigger("ping", at=waits)
    host = await _restarted(own_rig, own_rig.hosts[-1], 3, 35)
    await _once_but(own_rig, runs, late)
    await own_rig.journal.started(late, within=120)
    await _once(own_rig, [*runs, late])
    assert any(own_server.store.rglob("sched.db"))
    await asyncio.to_thread(own_server.kill9)
    await asyncio.to_thread(own_server.start)
    await own_rig.ping(within=30)
    await _restarted(own_rig, host, 1, 3)
    await _once(own_rig, [*runs, late])


async def _once_but(rig: Rig, runs: list[str], waiting: str) -> None:
    assert not rig.journal.starts(waiting)
    assert [len(rig.journal.starts(run)) for run in runs] == [1] * len(runs)


async def test_b21_an_instant_without_a_zone_is_refused(rig: Rig):
    with pytest.raises(ConfigError, match="has no zone"):
        await rig.trigger_first("ping", at=datetime(2030, 1, 1))  # noqa: DTZ001
