"""One key, one run: for many calls at once, for batches whose answers are lost, after somebody removed things."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jetjobs import (
    ChangeOutcome,
    JobClient,
    JobContext,
    JobHost,
    JobRun,
    Module,
    RunStatus,
    TriggerError,
    TriggerRequest,
)
from jetjobs._core import names
from jetjobs.errors import DuplicateRun
from jetjobs.sync import JobClient as BlockingClient
from tests.support.field import Field, field_of
from tests.support.links import until_it
from tests.support.proxy import Proxy
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


class Counting:
    """Jobs whose handlers write their payloads into a file."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.fails = False
        self.module = Module("shop")
        self.module.expose_job("pay", self._pay, max_concurrency=50, timeout="30s")

    async def _pay(self, _ctx: JobContext[Any], payload: str) -> str:
        with self.journal.open("a") as out:
            out.write(f"{payload}\n")
        if self.fails:
            raise ValueError("no money")
        return payload

    @property
    def starts(self) -> Counter[str]:
        """How often each payload was worked on."""
        return Counter(self.journal.read_text().splitlines() if self.journal.exists() else [])


@pytest.fixture
def counting(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "journal")


def accepted(answers: Sequence[JobRun[Any] | TriggerError]) -> list[JobRun[Any]]:
    """The runs; none was refused."""
    runs = [answer for answer in answers if not isinstance(answer, TriggerError)]
    assert len(runs) == len(answers)
    return runs


async def prepare(field: Field, counting: Counting) -> None:
    """The job is known; nobody runs it yet."""
    host = JobHost([counting.module], project=field.project, nats=field.url)
    await host.prepare()
    await host.close()


async def test_b31_one_key_in_many_calls_at_once(field: Field, counting: Counting):
    """In one batch, in tasks, in threads with clients of their own."""
    await field.host(counting.module)
    job = field.client.get_job("shop.pay")
    asked = [TriggerRequest("shop.pay", "batch", idempotency_key="a")] * 300
    batch = accepted(await field.client.trigger_many(asked))
    tasks = await asyncio.gather(*(job.trigger("tasks", idempotency_key="b") for _ in range(200)))
    blocking: list[Any] = []

    def call() -> None:
        with BlockingClient(field.url, project=field.project) as client:
            blocking.append(client.get_job("shop.pay").trigger("threads", idempotency_key="c"))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    for runs in (batch, tasks, blocking):
        assert len({run.run_id for run in runs}) == 1
        assert [run.duplicate for run in runs].count(False) == 1
    await asyncio.gather(*(run.wait(45) for run in (batch[0], tasks[0])))
    await field.retired("shop.pay")
    assert counting.starts == Counter(["batch", "tasks", "threads"])


def call_at_once(clients: list[BlockingClient], key: str) -> list[tuple[bool, bool]]:
    """What each of them is told of the same key with payloads of their own: duplicate, and another payload."""
    ready, told = threading.Barrier(len(clients)), list[tuple[bool, bool]]()

    def call(client: BlockingClient, who: int) -> None:
        ready.wait()
        way: Any = "raise" if who % 2 else "return"
        try:
            run = client.get_job("shop.pay").trigger(f"{key} {who}", idempotency_key=key, on_duplicate=way)
            told.append((run.duplicate, run.payload_differs))
        except DuplicateRun:
            told.append((True, True))

    threads = [threading.Thread(target=call, args=(client, who)) for who, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def call_in_rounds(field: Field, rounds: int) -> list[list[tuple[bool, bool]]]:
    with ExitStack() as stack:
        clients = [stack.enter_context(BlockingClient(field.url, project=field.project)) for _ in range(8)]
        return [call_at_once(clients, f"k{number}") for number in range(rounds)]


async def test_b35_of_callers_whose_runs_end_at_once_one_is_the_first(field: Field, counting: Counting):
    """A trigger may be stored, run and gone between another caller's look and its store: that one is told, too."""
    await field.host(counting.module)
    for told in await asyncio.to_thread(call_in_rounds, field, 30):
        assert sorted(told) == [(False, False)] + [(True, True)] * 7
    await field.retired("shop.pay")
    assert Counter(name.split()[0] for name in counting.starts.elements()) == Counter(f"k{n}" for n in range(30))


async def test_b31_a_failed_run_is_retried_by_many_callers_once(field: Field, counting: Counting):
    await field.host(counting.module)
    job = field.client.get_job("shop.pay")
    counting.fails = True
    first = await job.trigger("x", idempotency_key="k")
    assert (await first.wait(45)).status is RunStatus.FAILED
    counting.fails = False
    again = await asyncio.gather(
        *(job.trigger("x", idempotency_key="k", on_duplicate="retry_failed") for _ in range(50))
    )
    assert len({run.run_id for run in again} - {first.run_id}) == 1
    assert [run.duplicate for run in again].count(False) == 1
    assert await again[0].result(timeout=45) == "x"
    later = await job.trigger("x", idempotency_key="k", on_duplicate="retry_failed")
    assert (later.run_id, later.duplicate) == (again[0].run_id, True)
    await field.retired("shop.pay")
    assert counting.starts == Counter({"x": 2})


async def last_sequence(field: Field) -> int:
    return (await field.nats.jetstream().stream_info(names.stream(field.project))).state.last_seq


async def stored(field: Field, more_than: int) -> bool:
    return await last_sequence(field) > more_than


async def quiet(field: Field) -> bool:
    """Nothing is stored any more."""
    before = await last_sequence(field)
    for _ in range(20):
        await field.nats.flush()
    return before == await last_sequence(field)


@pytest.mark.parametrize("keyed", [True, False], ids=["keys", "no-keys"])
async def test_b33_a_batch_whose_answers_are_lost(
    nats_server: RealServer, project: str, counting: Counting, *, keyed: bool
):
    """All that was stored is found again by the same call; each run starts once, though the messages are sent twice."""
    async with field_of(nats_server.url, project) as field, Proxy(nats_server.port) as proxy:
        await field.host(counting.module)
        target = {"servers": proxy.url, "reconnect_time_wait": 0.1}
        async with JobClient(target, project=project, timeout=10) as client:
            await (await client.get_job("shop.pay").trigger("warm up")).wait(10)
            asked = [TriggerRequest("shop.pay", f"{n}", idempotency_key=f"k{n}" if keyed else None) for n in range(400)]
            if not keyed:  # with keys the call reads before it writes
                proxy.to_client.drop()
            calling = asyncio.create_task(client.trigger_many(asked))
            await until_it(lambda: stored(field, 20 if keyed else 300))
            proxy.to_client.drop()
            await until_it(lambda: quiet(field))
            assert not calling.done()
            proxy.heal()
            proxy.cut()
            runs = accepted(await calling)
            assert len({run.run_id for run in runs}) == 400
            for run in runs:
                await run.wait(45)
            await field.retired("shop.pay")
    assert {name: count for name, count in counting.starts.items() if name != "warm up"} == {
        f"{n}": 1 for n in range(400)
    }


async def test_b29_a_key_outlives_the_deletion_of_its_run(field: Field, counting: Counting):
    """Its record shrinks to what the promise needs."""
    await field.host(counting.module)
    job = field.client.get_job("shop.pay")
    first = await job.trigger("x", idempotency_key="k")
    await first.wait(45)
    await field.retired("shop.pay")
    (change,) = await field.client.runs.delete([first.run_id])
    assert change.outcome is ChangeOutcome.SHRUNK
    again = await job.trigger("x", idempotency_key="k")
    assert (again.run_id, again.duplicate, again.payload_differs) == (first.run_id, True, False)
    assert (await job.trigger("y", idempotency_key="k")).payload_differs
    assert (await again.wait(45)).status is RunStatus.SUCCEEDED
    assert counting.starts == Counter(["x"])


async def test_b29_a_key_whose_trigger_an_operator_purged_is_free(field: Field, counting: Counting):
    """Nothing of it is kept: it is no duplicate that never runs."""
    await prepare(field, counting)
    job = field.client.get_job("shop.pay")
    first = await job.trigger("x", idempotency_key="k")
    assert (await job.trigger("x", idempotency_key="k")).duplicate
    await field.nats.jetstream().purge_stream(names.stream(field.project))
    again = await job.trigger("x", idempotency_key="k")
    assert (again.run_id, again.duplicate) == (first.run_id, False)
    await field.host(counting.module)
    assert await again.result(timeout=45) == "x"
    await field.retired("shop.pay")
    assert counting.starts == Counter(["x"])


async def test_b31_a_cancelled_run_keeps_its_key(field: Field, counting: Counting):
    """Whoever asks again is told that it was cancelled, and may ask for a new one."""
    await prepare(field, counting)
    job = field.client.get_job("shop.pay")
    first = await job.trigger("x", idempotency_key="k")
    await first.cancel()
    again = await job.trigger("x", idempotency_key="k")
    assert (again.run_id, again.duplicate, await again.status()) == (first.run_id, True, RunStatus.CANCELLED)
    anew = await job.trigger("x", idempotency_key="k", on_duplicate="retry_failed")
    assert (anew.duplicate, anew.run_id == first.run_id) == (False, False)
    await field.host(counting.module)
    assert await anew.result(timeout=45) == "x"
    await field.retired("shop.pay")
    assert counting.starts == Counter(["x"])
