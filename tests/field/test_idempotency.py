"""One idempotency key is one run: from many processes, at every stage of the run, after a broker restart.

The broker's window for message ids plays no part: its length, its end and a restart change nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jetjobs import Backoff, JobClient, JobContext, JobHost, Module, RunStatus
from jetjobs._core import names
from jetjobs.client import JobRun
from jetjobs.config import HostSettings
from jetjobs.errors import BrokerUnavailable, DuplicateRun, TriggerUnconfirmed
from tests.support.field import QUICK, Field, field_of
from tests.support.links import until
from tests.support.proxy import Proxy
from tests.support.servers import RealServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "trigger_once.py"


class Shop:
    """A module whose handlers wait for the test and write each start into a journal file."""

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self.module = Module("shop.eu")
        self.goes_on = asyncio.Event()
        self.module.expose_job("pay", self._pay, max_concurrency=8, timeout="60s")
        self.module.expose_job("ship", self._pay, max_concurrency=8, timeout="60s")
        backoff = Backoff("1s", factor=1, jitter=0)
        self.module.expose_job("shaky", self._shaky, max_attempts=2, backoff=backoff, timeout="60s")

    async def _pay(self, ctx: JobContext, payload: Any) -> Any:
        self._note(ctx)
        await self.goes_on.wait()
        return payload

    async def _shaky(self, ctx: JobContext, payload: Any) -> Any:
        self._note(ctx)
        if ctx.attempt == 1:
            raise ValueError("once")
        return payload

    def _note(self, ctx: JobContext) -> None:
        with self.journal.open("a") as out:
            out.write(f"{ctx.job} {ctx.run_id} {ctx.attempt}\n")

    @property
    def starts(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path / "journal")


async def until_status(run: JobRun[Any], status: RunStatus) -> None:
    async def reached() -> bool:
        return await run.status() is status

    await eventually(reached, what=f"status {status}")


class Caller:
    """A process that triggers when it is told to."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, field: Field, payload: str) -> Caller:
        args = [sys.executable, str(PROGRAM), field.url, field.project, "shop.eu", "pay", "k", payload]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        pipe = asyncio.subprocess.PIPE
        return cls(await asyncio.create_subprocess_exec(*args, stdin=pipe, stdout=pipe, env=env))

    async def ready(self) -> None:
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n"

    def call(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")

    async def said(self) -> dict[str, Any]:
        """What came of its call, its run's result included."""
        return json.loads((await self._process.communicate())[0])

    async def end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def callers(field: Field, payloads: list[str]) -> AsyncGenerator[list[Caller]]:
    """One for each payload, ready to call."""
    started = [await Caller.start(field, payload) for payload in payloads]
    try:
        async with asyncio.timeout(90):
            for each in started:
                await each.ready()
            yield started
    finally:
        for each in started:
            await each.end()


async def test_b31_one_key_from_processes_before_in_and_after_its_run(field: Field, shop: Shop):
    await field.host(shop.module)
    async with callers(field, ['{"n": 1}', '{"n": 1}', '{"n": 2}']) as (first, while_it_runs, after_it):
        first.call()
        await until(lambda: shop.starts)
        while_it_runs.call()
        shop.goes_on.set()
        said = [await first.said(), await while_it_runs.said()]
        after_it.call()
        said.append(await after_it.said())
    assert len({each["run_id"] for each in said}) == 1
    assert [each["duplicate"] for each in said] == [False, True, True]
    assert [each["payload_differs"] for each in said] == [False, False, True]
    assert all(each["result"] == {"n": 1} for each in said)
    await field.retired("shop.eu.pay")
    assert len(shop.starts) == 1


@pytest.mark.faults
@pytest.mark.long
async def test_b31_b33_one_key_from_twenty_processes_at_once(field: Field, shop: Shop):
    """One run, one start; every process gets its result."""
    await field.host(shop.module)
    shop.goes_on.set()
    async with callers(field, ['{"n": 1}'] * 20) as started:
        for each in started:
            each.call()
        said = [await each.said() for each in started]
    assert len({each["run_id"] for each in said}) == 1
    assert [each["duplicate"] for each in said].count(False) == 1
    assert not any(each["payload_differs"] for each in said)
    assert all(each["result"] == {"n": 1} for each in said)
    assert len(shop.starts) == 1


async def test_b29_b31_b35_the_same_key_at_every_stage_of_its_run(field: Field, shop: Shop):
    """Queued, running, finished; the run's payload stays the first one, and another one is told."""
    host = JobHost(shop.module, project=field.project, nats=field.url, settings=HostSettings(**QUICK))
    await host.prepare()
    job = field.client.get_job("shop.eu.pay")
    first = await job.trigger({"n": 1}, idempotency_key="k")

    async def again(payload: Any) -> JobRun[Any]:
        found = await job.trigger(payload, idempotency_key="k")
        assert (found.run_id, found.duplicate) == (first.run_id, True)
        return found

    async def at_this_stage() -> None:
        assert not (await again({"n": 1})).payload_differs
        assert not (await again({"n": 1.0})).payload_differs
        assert (await again({"n": 2})).payload_differs
        assert (await again(None)).payload_differs
        assert (await again(b"x" * 50_000)).payload_differs

    assert (first.duplicate, first.payload_differs) == (False, False)
    await at_this_stage()
    async with host:
        await until_status(first, RunStatus.RUNNING)
        await at_this_stage()
        shop.goes_on.set()
        assert await first.result(timeout=45) == {"n": 1}
        await at_this_stage()
        assert await (await again({"n": 2})).result(timeout=45) == {"n": 1}
        with pytest.raises(DuplicateRun):
            await job.trigger({"n": 1}, idempotency_key="k", on_duplicate="raise")
        await field.retired("shop.eu.pay")
    assert len(shop.starts) == 1


async def test_b31_the_same_key_while_its_retry_waits(field: Field, shop: Shop):
    await field.host(shop.module)
    job = field.client.get_job("shop.eu.shaky")
    first = await job.trigger(1, idempotency_key="k")
    await until_status(first, RunStatus.RETRYING)
    again = await job.trigger(2, idempotency_key="k")
    assert (again.run_id, again.duplicate, again.payload_differs) == (first.run_id, True, True)
    assert await again.result(timeout=45) == 1
    assert [line.split()[2] for line in shop.starts] == ["1", "2"]
    await field.retired("shop.eu.shaky")


async def test_b31_the_same_key_with_a_delay(field: Field, shop: Shop):
    """A run that waits for its hour is found by its key too."""
    await field.host(shop.module)
    shop.goes_on.set()
    job = field.client.get_job("shop.eu.pay")
    first = await job.trigger(1, idempotency_key="k", delay="1h")
    now = await job.trigger(1, idempotency_key="k")
    other = await job.trigger(2, idempotency_key="k", delay="2h")
    assert {first.run_id} == {now.run_id, other.run_id}
    assert (now.duplicate, other.payload_differs) == (True, True)
    assert shop.starts == []


async def test_b35_equal_keys_of_two_jobs_are_two_runs(field: Field, shop: Shop, tmp_path: Path):
    """Also where module, job and key spell the same when they are put together."""
    shop.goes_on.set()
    near = [Module(name) for name in ("shop", "shop.eu.pay", "shop_eu", "shop-eu", "Shop.eu", "shop.2Eeu")]
    for module in near:
        for job in ("pay", "eu", "pa", "Pay"):
            module.expose_job(job, shop._pay, timeout="60s", max_concurrency=4)
    await field.host(shop.module, *near)
    jobs = [str(job.address) for module in (shop.module, *near) for job in module.jobs.values() if job.name != "shaky"]
    keys = ["k", "pay.k", "y.k", "k\0", "\0k", "pay\0k", "K", " k", "é", "e\u0301"]
    asked = [(job, key) for job in jobs for key in keys]
    runs = [await field.client.get_job(job).trigger([job, key], idempotency_key=key) for job, key in asked]
    assert not any(run.duplicate for run in runs)
    assert len({run.run_id for run in runs}) == len(asked)
    for run, (job, key) in zip(runs, asked, strict=True):
        assert await run.result(timeout=45) == [job, key]
    assert len(shop.starts) == len(asked)


async def _over_the_window(field: Field, shop: Shop, after: tuple[float, ...]) -> None:
    await field.host(shop.module)
    shop.goes_on.set()
    job = field.client.get_job("shop.eu.pay")
    first = await job.trigger({"n": 1}, idempotency_key="k")
    assert await first.result(timeout=45) == {"n": 1}
    begun = time.monotonic()
    for seconds in after:
        await asyncio.sleep(max(0.0, begun + seconds - time.monotonic()))  # the broker's window is what is tried
        again = await job.trigger({"n": 1}, idempotency_key="k")
        assert (again.run_id, again.duplicate, again.payload_differs) == (first.run_id, True, False)
        assert await again.result(timeout=45) == {"n": 1}
    await field.retired("shop.eu.pay")
    assert len(shop.starts) == 1


async def test_b29_the_same_key_within_the_brokers_window_and_after(field: Field, shop: Shop):
    preparing = JobHost(shop.module, project=field.project, nats=field.url)
    await preparing.prepare()
    await preparing.close()
    jetstream = field.nats.jetstream()
    info = await jetstream.stream_info(names.stream(field.project))
    await jetstream.update_stream(replace(info.config, duplicate_window=0.2))
    await _over_the_window(field, shop, (0.1, 0.18, 0.4, 0.9))


@pytest.mark.soak
@pytest.mark.timeout(200)
async def test_b29_the_same_key_after_two_minutes(field: Field, shop: Shop):
    await _over_the_window(field, shop, (60, 115, 130))


@pytest.mark.faults
async def test_b29_the_same_key_after_a_broker_restart(own_server: RealServer, project: str, shop: Shop):
    """Nothing of the promise lies in the broker's memory."""
    options = {"servers": own_server.url, "reconnect_time_wait": 0.1}
    settings = HostSettings(**QUICK)
    async with (
        JobHost(shop.module, project=project, nats=options, settings=settings),
        JobClient(options, project=project) as client,
    ):
        job = client.get_job("shop.eu.pay")
        running = await job.trigger(1, idempotency_key="running")
        await until_status(running, RunStatus.RUNNING)
        shaky = await client.get_job("shop.eu.shaky").trigger(1, idempotency_key="ended")
        await shaky.wait(10)
        delayed = await job.trigger(1, idempotency_key="delayed", delay="1h")
        await asyncio.to_thread(own_server.kill9)
        await asyncio.to_thread(own_server.start)
        for first, name in ((running, "pay"), (shaky, "shaky"), (delayed, "pay")):
            key = {running: "running", shaky: "ended", delayed: "delayed"}[first]
            again = await client.get_job("shop.eu", name).trigger(2, idempotency_key=key, timeout=20)
            assert (again.run_id, again.duplicate, again.payload_differs) == (first.run_id, True, True), key
        shop.goes_on.set()
        assert await running.result(timeout=45) == 1
    assert sorted(line.split()[0] for line in shop.starts) == ["pay", "shaky", "shaky"]


@pytest.mark.parametrize("key", ["k", None])
async def test_b33_a_trigger_whose_answer_is_lost(nats_server: RealServer, project: str, shop: Shop, key: str | None):
    """The answer is lost for longer than the call; told so, with the id, and the repeated key is one run."""
    shop.goes_on.set()
    async with field_of(nats_server.url, project) as field, Proxy(nats_server.port) as proxy:
        await field.host(shop.module)
        async with JobClient(proxy.url, project=project, timeout=1.5) as client:
            job = client.get_job("shop.eu.pay")
            assert await (await job.trigger("warm up")).result(timeout=45) == "warm up"
            proxy.to_client.drop()
            options: dict[str, Any] = {} if key is None else {"idempotency_key": key}
            with pytest.raises(
                TriggerUnconfirmed if key is None else (BrokerUnavailable, TriggerUnconfirmed)
            ) as unknown:
                await job.trigger(1, **options)
            proxy.heal()
            proxy.cut()
            if key is None:
                assert isinstance(unknown.value, TriggerUnconfirmed)
                stored = client.run("shop.eu", "pay", unknown.value.run_id)
            else:
                stored = await job.trigger(1, idempotency_key=key, timeout=10)
                assert stored.run_id == (await job.trigger(1, idempotency_key=key, timeout=10)).run_id
            assert await stored.result(timeout=45) == 1
    assert len(shop.starts) == 2


async def test_b33_a_keyed_trigger_whose_answer_alone_is_lost(nats_server: RealServer, project: str, shop: Shop):
    """The same call sends it again and finds its own."""
    shop.goes_on.set()
    async with field_of(nats_server.url, project) as field, Proxy(nats_server.port) as proxy:
        await field.host(shop.module)
        options = {"servers": proxy.url, "reconnect_time_wait": 0.1}
        async with JobClient(options, project=project, timeout=8) as client:
            job = client.get_job("shop.eu.pay")
            await (await job.trigger("warm up")).result(timeout=45)
            proxy.lose_answer(b"HPUB jetjobs." + project.encode() + b".trigger.")
            run = await job.trigger(1, idempotency_key="k")
            assert proxy.lost.is_set()
            assert await run.result(timeout=45) == 1
            assert (await job.trigger(1, idempotency_key="k")).run_id == run.run_id
    assert len(shop.starts) == 2
