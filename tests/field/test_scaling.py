"""Many hosts at once, many jobs in one, a deep queue: B106, B108, B110."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from jetjobs import JobClient
from jetjobs._core import names
from jetjobs.client import TriggerRequest
from jetjobs.errors import JetJobsError
from tests.faults.crowd import Crowd
from tests.faults.field import api, cpu_share, monitor, resident_mb, show, streams_of
from tests.faults.rig import Line, eventually
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.faults


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A server of the test's own, and its monitoring port."""
    port = free_port()
    with RealServer(tmp_path / "nats", extra_args=("-m", str(port))) as server:
        yield server.url, port


async def client_of(url: str, project: str) -> JobClient:
    client = JobClient(url, project=project)
    await client.connect()
    return client


# --------------------------------------------------------- replicas at once


async def many_hosts(watched: tuple[str, int], folder: Path, project: str, hosts: int) -> None:
    """Ten processes of so many hosts each."""
    url, _ = watched
    crowd = Crowd(folder, url, project, processes=10, hosts=hosts, jobs=5, every="5s")
    try:
        await crowd.start()
        assert crowd.errors == []
        took = [line.took for line in crowd.journal.lines("up")]
        show(f"{crowd.size} hosts ready after {max(took):.1f} s")
        assert max(took) < 60
        await made_once(url, project, crowd)
        client = await client_of(url, project)
        runs = [await client.get_job("many", f"job{n % 5}").trigger() for n in range(100)]
        for run in runs:
            await run.wait(timeout=45)
        assert len(await client.hosts.list()) == crowd.size
        await client.close()
        starts = crowd.journal.starts()
        asked = Counter(line.run for line in starts if "due" not in line.more)
        assert asked == Counter(run.run_id for run in runs)
        await eventually(lambda: {line.job for line in ticks(crowd)} == {f"job{n}" for n in range(5)}, what="ticks")
        late = [line.now - line.due for line in ticks(crowd)]
        show(f"{len(late)} ticks, the latest {max(late):.2f} s after its instant")
        assert len({(line.job, line.due) for line in ticks(crowd)}) == len(ticks(crowd))
        assert max(late) < 15
    finally:
        crowd.close()


def ticks(crowd: Crowd) -> list[Line]:
    return [line for line in crowd.journal.starts() if "due" in line.more]


async def made_once(url: str, project: str, crowd: Crowd) -> None:
    """Streams, consumers, descriptions and schedules: all there, and each written by one host only."""
    assert len(await streams_of(url, project)) == 6
    info = await api(url, f"STREAM.INFO.{names.stream(project)}", {"subjects_filter": f"jetjobs.{project}.schedule.>"})
    assert info["state"]["consumer_count"] == 5
    assert len(info["state"]["subjects"]) == 5
    described = await api(url, f"STREAM.INFO.{names.bucket_stream(names.jobs_bucket(project))}")
    assert (described["state"]["messages"], described["state"]["last_seq"]) == (5, 5)
    log = crowd.log_path.read_text()
    assert log.count("schedule_published") == 5
    assert "declared_differently" not in log


@pytest.mark.long
@pytest.mark.timeout(200)
async def test_b106_fifty_hosts_start_at_once_on_an_empty_broker(
    watched: tuple[str, int], tmp_path: Path, project: str
) -> None:
    """Scaled: none fails, and everything is there once, written once."""
    await many_hosts(watched, tmp_path / "crowd", project, 5)


@pytest.mark.soak
@pytest.mark.timeout(200)
async def test_b106_a_hundred_hosts_start_at_once(watched: tuple[str, int], tmp_path: Path, project: str) -> None:
    await many_hosts(watched, tmp_path / "crowd", project, 10)


# ------------------------------------------------------------ jobs in a host


async def many_jobs(watched: tuple[str, int], folder: Path, project: str, jobs: int) -> None:
    url, port = watched
    crowd = Crowd(folder, url, project, jobs=jobs)
    try:
        await crowd.start()
        assert crowd.errors == []
        ready = crowd.journal.lines("up")[0].took
        await asyncio.sleep(2)  # let the start's own work end
        cpu = await cpu_share(crowd.pids[0], 5)
        memory = resident_mb(crowd.pids[0])
        connections = (await monitor(port, "connz?limit=100"))["connections"]
        show(f"{jobs} jobs: ready in {ready:.1f} s, idle {cpu:.1%} of a core, {memory:.0f} MB")
        assert [each["name"].startswith("jetjobs host") for each in connections] == [True]
        assert cpu < 0.4
        assert ready < 60
        assert memory < 200
        info = await api(url, f"STREAM.INFO.{names.stream(project)}")
        assert info["state"]["consumer_count"] == jobs
        client = await client_of(url, project)
        made = await client.trigger_many([TriggerRequest(("many", f"job{n}")) for n in range(jobs)])
        assert not [run for run in made if isinstance(run, JetJobsError)]
        await eventually(lambda: len(crowd.journal.ends()) == jobs, 60, "every job's run")
        assert {line.job for line in crowd.journal.starts()} == {f"job{n}" for n in range(jobs)}
        await client.close()
    finally:
        crowd.close()


async def test_b108_three_hundred_jobs_in_one_host(watched: tuple[str, int], tmp_path: Path, project: str) -> None:
    """B108, scaled: one connection, cheap while idle, and every job runs."""
    await many_jobs(watched, tmp_path / "crowd", project, 300)


@pytest.mark.soak
async def test_b108_a_thousand_jobs_in_one_host(watched: tuple[str, int], tmp_path: Path, project: str) -> None:
    """B108."""
    await many_jobs(watched, tmp_path / "crowd", project, 1000)


@pytest.mark.soak
@pytest.mark.timeout(300)
async def test_b108_a_thousand_schedules_on_one_host(tmp_path: Path, project: str) -> None:
    """B108, with schedules: ready soon on a fresh and on a warm broker, each fires in every minute, idle is cheap."""
    server = RealServer(tmp_path / "nats")
    server.start()
    fresh = Crowd(tmp_path / "fresh", server.url, project, jobs=1000, every="60s")
    warm = Crowd(tmp_path / "warm", server.url, project, jobs=1000, every="60s")
    try:
        await fresh.start()
        took = fresh.journal.lines("up")[0].took
        fresh.close()
        await warm.start()
        took_warm = warm.journal.lines("up")[0].took
        assert fresh.errors == warm.errors == []
        pid = warm.pids[0]
        await eventually(lambda: len(warm.journal.ends()) >= 1000, 90, "a run of each job")
        minute = await asyncio.gather(cpu_share(pid, 60), cpu_share(server.pid, 60))
        last = max(line.now for line in warm.journal.starts())
        await asyncio.sleep(max(0.0, last + 10 - time.time()))  # all have fired, none is due for half a minute
        idle = await asyncio.gather(cpu_share(pid, 20), cpu_share(server.pid, 20))
        await eventually(lambda: len(warm.journal.ends()) >= 3000, 90, "the third run of each job")
        memory = resident_mb(pid)
    finally:
        fresh.close()
        warm.close()
        server.remove()
    due: dict[str, list[float]] = {}
    for line in warm.journal.starts():
        due.setdefault(line.job, []).append(line.due)
    late = sorted(line.now - line.due for line in warm.journal.starts())
    show(f"ready in {took:.1f} s fresh, {took_warm:.1f} s warm; {memory:.0f} MB")
    show(f"idle {idle[0]:.1%} of a core, broker {idle[1]:.1%}; over a minute {minute[0]:.1%}, broker {minute[1]:.1%}")
    show(f"starts late by {late[len(late) // 2]:.2f} s (p50), {late[-1]:.2f} s (most)")
    assert len(due) == 1000
    assert all(later - sooner == 60 for each in due.values() for sooner, later in pairwise(each))
    assert late[-1] < 60
    assert took < 60
    assert took_warm < 60
    assert idle[0] < 0.15
    assert memory < 200


# ---------------------------------------------------------------- a deep queue


def starts_in(journal: Path) -> tuple[float, list[tuple[str, float]]]:
    """When the host began to start, and run and instant of each start; line by line: there may be a million."""
    found: list[tuple[str, float]] = []
    began = 0.0
    with journal.open() as lines:
        for line in lines:
            if '"start", "pid"' in line:
                entry = json.loads(line)
                found.append((entry["run"], entry["at"]))
            elif '"up", "pid"' in line:
                entry = json.loads(line)
                began = entry["at"] - entry["took"]
    return began, found


async def deep_queue(url: str, folder: Path, project: str, count: int) -> None:
    before = Crowd(folder / "before", url, project, limit=100)
    await before.start()
    before.close()
    client = await client_of(url, project)
    for start in range(0, count, 10_000):
        batch = [TriggerRequest(("many", "job0")) for _ in range(start, min(start + 10_000, count))]
        made = await client.trigger_many(batch)
        assert not [run for run in made if isinstance(run, JetJobsError)]
    crowd = Crowd(folder / "crowd", url, project, limit=100)
    consumer = f"CONSUMER.INFO.{names.stream(project)}.many=_job0"
    most = 0.0
    try:
        await crowd.start()

        async def drained() -> bool:
            nonlocal most
            most = max(most, resident_mb(crowd.pids[0]))
            state = await api(url, consumer)
            return state["num_pending"] == state["num_ack_pending"] == 0

        await eventually(drained, 30 + count / 200, "the queue's end")
        began, starts = starts_in(crowd.journal.path)
    finally:
        crowd.close()
    await client.close()
    assert len(starts) == len({run for run, _ in starts}) == count
    state = (await api(url, f"STREAM.INFO.{names.stream(project)}"))["state"]
    assert state["messages"] == 0
    records = (await api(url, f"STREAM.INFO.{names.bucket_stream(names.runs_bucket(project))}"))["state"]
    assert records["messages"] == count
    tenth = count // 10
    first_tenth, last_tenth = starts[tenth][1] - starts[0][1], starts[-1][1] - starts[-tenth][1]
    show(f"{count} queued: {count / (starts[-1][1] - starts[0][1]):.0f} runs/s, {most:.0f} MB at most")
    show(f"the last tenth at {first_tenth / last_tenth:.0%} of the first one's rate")
    show(f"the first start after {starts[0][1] - began:.2f} s")
    assert starts[0][1] - began < 20
    assert most < 300
    assert last_tenth < 3 * first_tenth + 5


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_b110_twenty_thousand_queued_runs(nats_url: str, tmp_path: Path, project: str) -> None:
    """B110, scaled: the first starts soon, memory stays flat, none is lost, none runs twice."""
    await deep_queue(nats_url, tmp_path, project, 20_000)


@pytest.mark.soak
@pytest.mark.timeout(3600)
async def test_b110_a_million_queued_runs(nats_url: str, tmp_path: Path, project: str) -> None:
    """B110."""
    await deep_queue(nats_url, tmp_path, project, 1_000_000)
