"""Many at the same moment: neighbours of B106 and B110. Each run starts once, whoever asked for it how often."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetjobs import JobClient, JobContext, JobRun, Module, RunStatus, TriggerRequest
from jetjobs.client import CancelOutcome
from tests.support.field import Field

OPEN_FILES = Path("/proc/self/fd")


class Shop:
    """A module whose starts are counted."""

    def __init__(self) -> None:
        self.starts: Counter[str] = Counter()
        self.module = Module("shop")
        self.quick = self.module.expose_job("quick", self._quick, timeout="60s", max_concurrency=50)
        self.module.expose_job("fan", self._fan, timeout="60s")
        self.module.expose_job("slow", self._slow, timeout="60s")

    async def _quick(self, ctx: JobContext, number: int = 0) -> int:
        self.starts[ctx.run_id] += 1
        return number

    async def _fan(self, ctx: JobContext, number: int) -> None:
        self.starts[ctx.run_id] += 1
        await asyncio.gather(*(ctx.trigger_child(self.quick, each, key=str(each)) for each in range(number)))

    async def _slow(self, ctx: JobContext) -> None:
        self.starts[ctx.run_id] += 1
        await asyncio.sleep(1)


@pytest.fixture
async def shop(field: Field) -> Shop:
    made = Shop()
    # As patient as a host usually is: here it is the machine that is short of time.
    await field.host(made.module, settings=[("ack_wait", 30.0), ("heartbeat_every", 5.0), ("lost_after", 120.0)])
    return made


def open_files() -> int:
    return sum(1 for _ in OPEN_FILES.iterdir())


async def asked(field: Field, *requests: TriggerRequest) -> list[JobRun[object]]:
    made = await field.client.trigger_many(requests)
    return [run for run in made if isinstance(run, JobRun)]


async def test_b110_delayed_runs_that_fall_due_in_one_moment(field: Field, shop: Shop):
    at = time.time() + 2
    runs = await asked(field, *(TriggerRequest("shop.quick", n, at=at) for n in range(400)))
    records = await asyncio.gather(*(run.wait(30) for run in runs))
    assert [record.status for record in records] == [RunStatus.SUCCEEDED] * 400
    assert shop.starts == Counter(run.run_id for run in runs)
    assert all(record.started_at is not None and record.started_at.timestamp() >= at for record in records)


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="counts open files in /proc")
async def test_b113_a_thousand_that_wait_for_one_run(field: Field, shop: Shop):
    """They share the client's connection."""
    (run,) = await asked(field, TriggerRequest("shop.slow"))
    before = open_files()
    waiting = [asyncio.create_task(run.wait(30)) for _ in range(1000)]
    await run.status()  # a round trip later they all wait
    assert open_files() <= before + 5, "a waiter has no connection of its own"
    assert {record.status for record in await asyncio.gather(*waiting)} == {RunStatus.SUCCEEDED}
    assert shop.starts == {run.run_id: 1}


async def test_b106_many_clients_with_few_keys(field: Field, shop: Shop):
    async def one(number: int) -> str:
        async with JobClient(field.url, project=field.project) as client:
            run = await client.get_job("shop.quick").trigger(idempotency_key=f"k{number % 10}")
            await run.wait(30)
            return run.run_id

    ids = await asyncio.gather(*(one(number) for number in range(60)))
    assert shop.starts == Counter(set(ids))
    assert len(set(ids)) == 10


async def test_b110_a_run_with_many_children(field: Field, shop: Shop):
    parent = await field.client.get_job("shop.fan").trigger(300)
    assert (await parent.wait(30)).status is RunStatus.SUCCEEDED
    await field.retired("shop.quick", 30)
    assert len(shop.starts) == 301
    assert set(shop.starts.values()) == {1}


async def test_b105_many_queued_are_cancelled_at_once(field: Field, shop: Shop):
    runs = await asked(field, *(TriggerRequest("shop.slow") for _ in range(300)))
    changes = await field.client.runs.cancel([run.run_id for run in runs], timeout=60)
    told = Counter(change.outcome.name for change in changes)
    assert told[CancelOutcome.CANCELLED.name] >= 290
    await field.retired("shop.slow", 30)
    assert len(shop.starts) <= 300 - told[CancelOutcome.CANCELLED.name]


async def test_b106_an_iterable_that_breaks_while_many_are_triggered(field: Field, shop: Shop):
    """The caller's own error comes out as it is, when what was sent has been seen to: each of those runs, once."""
    given: list[int] = []

    def requests() -> Iterator[TriggerRequest]:
        for number in range(2500):
            given.append(number)
            yield TriggerRequest("shop.quick", number)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await field.client.trigger_many(requests())
    assert len(given) == 2500
    await field.retired("shop.quick", 30)
    assert 0 < len(shop.starts) <= len(given)
    assert set(shop.starts.values()) == {1}
