"""Consumers and streams that somebody removes, long runs, idle gaps: B67, B69, B73, B75."""

from __future__ import annotations

import asyncio
import time

import pytest

from jetjobs._core.models import RunStatus
from tests.faults.field import api, cpu_share, show, streams_of
from tests.faults.rig import ACK_WAIT, Rig, eventually

pytestmark = pytest.mark.faults
RECREATED_WITHIN = 30.0
# The defaults' proportions: the broker is silent for a third, a run is fenced at two thirds.
LONGER = {"ACK_WAIT": "9s", "HEARTBEAT_EVERY": "2s", "LOST_AFTER": "20s"}


async def consumer_config(rig: Rig, job: str) -> dict[str, object] | None:
    """What the broker keeps of a job's consumer, without what it counts."""
    answer = await api(rig.url, f"CONSUMER.INFO.JETJOBS_{rig.project}.basic=_{job}")
    return answer.get("config")


async def delete_consumer(rig: Rig, job: str) -> None:
    answer = await api(rig.url, f"CONSUMER.DELETE.JETJOBS_{rig.project}.basic=_{job}")
    assert answer["success"]


async def test_b73_a_consumer_deleted_while_idle_comes_back_as_it_was(rig: Rig) -> None:
    """Within ten seconds, with the same settings; what was triggered in the gap runs."""
    await rig.host()
    before = await consumer_config(rig, "ping")
    assert before is not None
    await delete_consumer(rig, "ping")
    gap = await rig.trigger("ping")
    await rig.journal.started(gap, within=RECREATED_WITHIN)
    assert await consumer_config(rig, "ping") == before
    await rig.retired("ping")
    await rig.ping()


@pytest.mark.parametrize("hosts", [1, 2])
async def test_b73_consumers_deleted_under_runs_repeat_nothing(rig: Rig, hosts: int) -> None:
    """Back within ten seconds although the run goes on, which ends once and well; the gap's trigger runs."""
    for _ in range(hosts):
        await rig.host(**LONGER)
    # Every slot of one job is at work, the other has slots left.
    runs = {job: await rig.trigger(job, 12) for job in ("gate", "hold")}
    await asyncio.gather(*(_deleted_under_a_run(rig, job, run_id) for job, run_id in runs.items()))
    assert all(not host.events("run_fenced") for host in rig.hosts)


async def _deleted_under_a_run(rig: Rig, job: str, run_id: str) -> None:
    before = await consumer_config(rig, job)
    assert before is not None
    await rig.journal.started(run_id)
    await delete_consumer(rig, job)
    gap = await rig.trigger(job, 0)

    async def there() -> bool:
        return await consumer_config(rig, job) == before

    await eventually(there, RECREATED_WITHIN, "the consumer's return")
    assert not rig.journal.ends(run_id)
    record = await rig.ended(job, run_id)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert (await rig.ended(job, gap)).status is RunStatus.SUCCEEDED
    assert len(rig.journal.starts(run_id)) == len(rig.journal.starts(gap)) == 1
    assert rig.journal.most_live(job) <= (1 if job == "gate" else 8)
    await rig.retired(job)


async def test_b73_the_jobs_stream_deleted_while_idle(rig: Rig) -> None:
    """Made again by whoever misses it; said so; no busy loop; the next trigger runs."""
    hosts = [await rig.host(), await rig.host()]
    await rig.ping()
    await api(rig.url, f"STREAM.DELETE.JETJOBS_{rig.project}")
    await asyncio.gather(*(settle_down(host.pid) for host in hosts))
    run_id = await rig.trigger_at_last("ping")
    await rig.journal.started(run_id, within=RECREATED_WITHIN)
    assert any("jobs stream has gone" in host.log for host in hosts)
    await rig.ping()
    assert all(host.process.poll() is None for host in hosts)


async def test_b73_the_jobs_stream_deleted_under_runs(rig: Rig) -> None:
    """The runs' messages are gone with it, their records are not: each ends well, once, and the next ones run."""
    host = await rig.host(**LONGER)
    runs = {job: await rig.trigger(job, 8) for job in ("gate", "hold")}
    for run_id in runs.values():
        await rig.journal.started(run_id)
    await api(rig.url, f"STREAM.DELETE.JETJOBS_{rig.project}")
    for job, run_id in runs.items():
        record = await rig.ended(job, run_id)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    await rig.journal.started(await rig.trigger_at_last("ping"), within=RECREATED_WITHIN)
    for job, run_id in runs.items():
        assert (await rig.ended(job, await rig.trigger(job, 0), RECREATED_WITHIN)).status is RunStatus.SUCCEEDED
        assert len(rig.journal.starts(run_id)) == 1
    assert host.events("run_fenced") == []


async def test_b73_everything_of_the_project_deleted_while_idle(rig: Rig) -> None:
    """The stream and every bucket, as `nats stream rm` in a loop would: hosts bring all of it back."""
    host = await rig.host()
    await rig.ping()
    before = await streams_of(rig.url, rig.project)
    for stream in sorted(before):
        await api(rig.url, f"STREAM.DELETE.{stream}")
    await settle_down(host.pid)
    run_id = await rig.trigger_at_last("ping", allow_unknown=True)
    record = await rig.ended("ping", run_id, RECREATED_WITHIN)
    assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert await streams_of(rig.url, rig.project) == before
    await rig.journal.started(await rig.trigger_at_last("ping"), within=RECREATED_WITHIN)  # callers know the job again
    assert host.process.poll() is None


async def test_b73_the_records_bucket_deleted_while_idle(rig: Rig) -> None:
    """Without its records no run can be claimed: the bucket comes back, or every trigger would wait for ever."""
    host = await rig.host()
    await rig.ping()
    await api(rig.url, f"STREAM.DELETE.KV_jetjobs_{rig.project}_runs")
    run_id = await rig.trigger("ping")
    record = await rig.ended("ping", run_id, RECREATED_WITHIN)
    assert (record.status, len(rig.journal.starts(run_id))) == (RunStatus.SUCCEEDED, 1)
    assert host.process.poll() is None


async def settle_down(pid: int) -> None:
    assert await cpu_share(pid, 3) < 0.5


async def test_b67_a_run_longer_than_the_ack_wait_is_delivered_once(rig: Rig) -> None:
    """2.5 ack waits, three hosts, every delivery renewed."""
    await delivered_once(rig, 2.5 * ACK_WAIT)


@pytest.mark.soak
@pytest.mark.timeout(200)
async def test_b67_a_run_of_75_seconds_is_delivered_once(rig: Rig) -> None:
    await delivered_once(rig, 75, ACK_WAIT="30s", HEARTBEAT_EVERY="10s", LOST_AFTER="5m", UPKEEP_EVERY="10m")


async def delivered_once(rig: Rig, seconds: float, **settings: str) -> None:
    for _ in range(3):
        await rig.host(**settings)
    runs = await rig.trigger_all("block_thread", [seconds] * 2)
    for run_id in runs:
        await rig.journal.started(run_id)
    redelivered = 0
    while len(rig.journal.ends(job="block_thread")) < 2:
        redelivered = max(redelivered, (await rig.consumer("block_thread")).num_redelivered)
        await asyncio.sleep(0.2)
    for record in await rig.all_ended("block_thread", runs):
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
    assert redelivered == 0
    assert sorted(line.run for line in rig.journal.starts(job="block_thread")) == sorted(runs)
    await rig.retired("block_thread")


@pytest.mark.parametrize(
    "how,after",
    [
        ("retry in two", 2),
        pytest.param("retry in a minute", 60, marks=[pytest.mark.soak, pytest.mark.timeout(150)]),
    ],
)
async def test_b69_a_retry_that_waits_holds_no_slot(rig: Rig, how: str, after: float) -> None:
    """The job's limit is 1 and the first run waits for its retry; the second starts at once."""
    await rig.host(**LONGER)
    first = await rig.trigger("one_at_a_time", how)
    failed = await rig.journal.ended(first)
    begun = time.monotonic()
    second = await rig.trigger("one_at_a_time", "second")
    assert (await rig.journal.started(second)).at - begun < 4.5, "no redelivery had to free the slot"
    await rig.ended("one_at_a_time", second)
    waiting = await rig.record("one_at_a_time", first)
    assert (waiting.status, waiting.attempt, waiting.finished_at) == (RunStatus.RETRYING, 1, None)
    assert waiting.retry_at is not None
    assert waiting.started_at is not None
    assert after - 0.1 <= (waiting.retry_at - waiting.started_at).total_seconds() < after + 5
    await rig.retired("one_at_a_time")
    again = await rig.journal.started(first, times=2, within=after + 30)
    assert after - 0.1 <= again.at - failed.at < after + 20


async def test_b75_triggers_after_idle_gaps_start_at_once(rig: Rig) -> None:
    """No orphaned pull swallows the next message, whatever the gap."""
    await rig.host(**LONGER)
    lags = await lags_after(rig, [5.6] + [1.1] * 5)
    show(f"publish to start, s: worst {max(lags):.3f}, median {sorted(lags)[len(lags) // 2]:.4f}")
    assert max(lags) < 4


@pytest.mark.soak
@pytest.mark.timeout(400)
async def test_b75_triggers_after_idle_gaps_start_at_once_for_minutes(rig: Rig) -> None:
    """As reported: every 7 s for three minutes (pulls expire meanwhile), then every 1.1 s."""
    await rig.host(**LONGER)
    assert max(await lags_after(rig, [7.0] * 26 + [1.1] * 60)) < 4


async def lags_after(rig: Rig, gaps: list[float]) -> list[float]:
    """From the call of `trigger` to the handler's first line, for one trigger after each gap."""
    await rig.ping()
    lags: list[float] = []
    for gap in gaps:
        await asyncio.sleep(gap)  # the idleness that is tested
        begun = time.monotonic()
        run_id = await rig.trigger("ping")
        lags.append((await rig.journal.started(run_id)).at - begun)
    return lags
