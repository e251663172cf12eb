"""`JobHost.run`: it owns signals while it serves and gives them back, on whatever event loop."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jetjobs import HostSettings, JobHost
from tests.support import process_jobs
from tests.support.embedded import counting
from tests.support.field import QUICK
from tests.support.programs_run import run_program

pytestmark = pytest.mark.integration


SETTINGS = HostSettings(**QUICK)


def printed(out: str) -> list[str]:
    """What a program printed, without its log."""
    return [line for line in out.splitlines() if " [" not in line]


def handlers() -> dict[int, Any]:
    """Every signal's handler, and the descriptor that wakes the loop up."""
    found: dict[int, Any] = {number: signal.getsignal(number) for number in signal.valid_signals()}
    found[-1] = wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    return found


@pytest.fixture
def own_handler() -> Iterator[None]:
    def heard(number: int, frame: object) -> None:
        raise AssertionError(number, frame)

    before = signal.signal(signal.SIGTERM, heard)
    yield
    signal.signal(signal.SIGTERM, before)


# Whether the first argument's way of running leaves the handlers as they were, told after a signal of its own.
RUNS = """
import os, signal, sys, threading
from jetjobs import JobHost, Module, JobContext

shop = Module("shop")

@shop.job(timeout="20s")
async def add(ctx: JobContext, n: int) -> int:
    return n

def mine(*_):
    print("mine", flush=True)

signal.signal(signal.SIGTERM, mine)
before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
for number in (signal.SIGTERM, signal.SIGINT):
    host = JobHost([shop])
    ready = threading.Event()
    def end():
        while not host.health().ready:
            ready.wait(0.02)
        os.kill(os.getpid(), number)
    thread = threading.Thread(target=end)
    thread.start()
    code = host.run()
    thread.join()
    after = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    print(code, after == before, host.health().state, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
"""


class TestSignals:
    @pytest.mark.usefixtures("own_handler")
    async def test_start_and_close_leave_every_handler_alone(self, nats_url: str, project: str):
        before = handlers()
        host = JobHost([counting("shop"), process_jobs.jobs], nats=nats_url, project=project, settings=SETTINGS)
        await host.start()
        run = await process_jobs.echo.trigger(b"done")
        assert await run.result(timeout=45) == b"done"
        assert handlers() == before
        await host.close()
        assert handlers() == before

    @pytest.mark.skipif(sys.platform == "win32", reason="kill is no signal there")
    async def test_run_puts_back_what_was_there(self, nats_url: str, project: str):
        done = await asyncio.to_thread(run_program, RUNS, nats_url, project)
        assert (done.returncode, done.stderr) == (0, "")
        assert printed(done.stdout) == ["0 True closed", "130 True closed", "mine"]


UVLOOP_RUN = """
import os, signal, sys, threading
import asyncio
import uvloop
from jetjobs import HostSettings, JobHost, JobContext, Module
from jetjobs.sync import JobClient

shop = Module("shop")

@shop.job(timeout="20s", max_concurrency=8)
async def kind(ctx: JobContext, data: bytes) -> str:
    return f"{type(asyncio.get_running_loop()).__module__} {len(data)}"

@shop.job(timeout="20s", max_concurrency=8)
def plain(ctx: JobContext, n: int) -> int:
    return kind.trigger_blocking(b"x" * n).result(timeout=45) and n

@shop.job(timeout="20s")
async def slow(ctx: JobContext) -> str:
    started.set()
    await asyncio.sleep(0.5)
    return "finished"

started = threading.Event()
host = JobHost([shop], settings=HostSettings(drain="5s"))

def ask():
    while not host.health().ready:
        started.wait(0.02)
    client = JobClient()
    print(client.get_job("shop.kind").trigger(b"x" * 200_000).result(timeout=45), flush=True)
    runs = [client.get_job("shop.plain").trigger(n) for n in range(1, 101)]
    print(sum(run.result(timeout=45) for run in runs), flush=True)
    last = client.get_job("shop.slow").trigger()
    started.wait(20)
    os.kill(os.getpid(), signal.SIGINT)
    print(last.result(timeout=45), flush=True)

thread = threading.Thread(target=ask)
thread.start()
code = host.run(loop_factory=uvloop.new_event_loop)
thread.join()
sys.exit(code)
"""


UVLOOP_EMBEDDED = """
import asyncio
import uvloop
from jetjobs import JobClient, JobHost, JobContext, Module

shop = Module("shop")

@shop.job(timeout="20s", max_concurrency=8)
async def add(ctx: JobContext, n: int) -> int:
    return n + 1

async def main():
    async with JobHost([shop]) as host, JobClient() as client:
        runs = [await add.trigger(n) for n in range(50)]
        print(sum([await run.result(timeout=45) for run in runs]), type(asyncio.get_running_loop()).__module__)
        print(len(await client.runs.list(limit=100)), host.health().ok, flush=True)

uvloop.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop")
class TestUvloop:
    async def test_run_on_it_does_jobs_and_drains(self, nats_url: str, project: str):
        done = await asyncio.to_thread(run_program, UVLOOP_RUN, nats_url, project)
        assert (done.returncode, done.stderr) == (130, "")
        assert printed(done.stdout) == ["uvloop 200000", "5050", "finished"]

    async def test_embedded_in_a_program_of_its_own(self, nats_url: str, project: str):
        done = await asyncio.to_thread(run_program, UVLOOP_EMBEDDED, nats_url, project)
        assert (done.returncode, done.stderr) == (0, "")
        assert printed(done.stdout) == ["1275 uvloop", "50 True"]
