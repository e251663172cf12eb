"""The end of a process with a blocking client: quiet, soon, and by Ctrl-C in the middle of a wait."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from jetjobs import JobHost
from jetjobs.config import HostSettings
from tests.support.field import QUICK
from tests.support.programs_run import run_program, start_program
from tests.support.servers import RealServer
from tests.support.sync_shop import Shop

pytestmark = pytest.mark.integration


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
async def host(shop: Shop, nats_url: str, project: str) -> AsyncIterator[JobHost]:
    async with JobHost([shop.module], project=project, nats=nats_url, settings=HostSettings(**QUICK)) as running:
        yield running


QUIET_EXIT = """
import threading
from jetjobs.sync import JobClient
client = JobClient()
assert threading.active_count() == 1
run = client.get_job("shop.hold").trigger()
waiting = threading.Thread(target=run.wait, daemon=True)
waiting.start()
other = JobClient()
print(len(other.jobs.list()), client.run("shop", "hold", run.run_id).cancel().outcome.value, flush=True)
client.get_job("shop.hold").trigger(delay="1h")
threading.Thread(target=client.get_job("shop.hold").trigger(delay="1h").wait, daemon=True).start()
"""


async def test_the_exit_makes_no_noise(host: JobHost, nats_url: str, project: str, tmp_path: Path):
    began = time.monotonic()
    done = await asyncio.to_thread(run_program, QUIET_EXIT, nats_url, project)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("5 ")
    assert time.monotonic() - began < 45


SLOW_EXIT = """
import asyncio
import threading
from jetjobs._client.loop_thread import call_on, loop_thread
from jetjobs.sync import JobClient
class Slow:
    async def close(self):
        await asyncio.sleep(0.9)
async def hold():
    loop_thread().hold(Slow())
run = JobClient().get_job("shop.hold").trigger()
call_on(loop_thread().loop, hold)
for _ in range(5):
    threading.Thread(target=run.wait, daemon=True).start()
"""


async def test_nor_does_one_that_closes_one_thing_long_before_another(host: JobHost, nats_url: str, project: str):
    """Those who wait look for their run once more, and what they would look with is closed."""
    done = await asyncio.to_thread(run_program, SLOW_EXIT, nats_url, project)
    assert (done.returncode, done.stderr) == (0, "")


CUT_OFF = """
from jetjobs.sync import JobClient
client = JobClient()
print(len(client.jobs.list()), flush=True)
input()
"""


async def test_nor_does_the_exit_while_the_broker_is_away(own_server: RealServer, project: str, shop: Shop):
    async with JobHost([shop.module], project=project, nats=own_server.url, settings=HostSettings(**QUICK)):
        with start_program(CUT_OFF, own_server.url, project) as program:

            def leave() -> tuple[str, str]:
                assert program.stdout is not None
                assert program.stdout.readline() == "5\n"
                own_server.kill9()
                return program.communicate("\n", timeout=45)

            _, told = await asyncio.to_thread(leave)
            own_server.restart()
    assert (program.returncode, told) == (0, "")


INTERRUPTED = """
import asyncio, os, signal, threading, time
from jetjobs.sync import JobClient
from jetjobs._client.loop_thread import loop_thread

async def tasks():
    return len(asyncio.all_tasks())

def running():
    return asyncio.run_coroutine_threadsafe(tasks(), loop_thread().loop).result(30)

def interrupt_the_wait():
    while running() == before:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

client = JobClient()
run = client.get_job("shop.hold").trigger()
before = running()
threading.Thread(target=interrupt_the_wait).start()
try:
    run.wait()
except KeyboardInterrupt:
    until = time.monotonic() + 30
    while running() != before and time.monotonic() < until:
        time.sleep(0.01)
    print("interrupted", running() - before, run.status() in {"RUNNING", "QUEUED"})
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
async def test_ctrl_c_ends_a_wait_and_what_it_waited_for(host: JobHost, nats_url: str, project: str):
    done = await asyncio.to_thread(run_program, INTERRUPTED, nats_url, project)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "interrupted 0 True\n")


# How programs end, each with a connection open and a run that goes on.
ENDS = {
    "an error": "raise SystemExit(3)",
    "an exception": "raise LookupError('the only thing it says')",
    "a thread that isn't waited for": "threading.Thread(target=run.wait, daemon=True).start()",
    "a thread that is": "threading.Thread(target=lambda: print('late', len(client.jobs.list()))).start()",
    "a pool": "pool = ThreadPoolExecutor(4); calls = [pool.submit(client.jobs.list) for _ in range(40)]",
    "a call at the exit": "atexit.register(lambda: print('at exit', len(client.jobs.list())))",
    "an iterator in the middle": "watched = client.runs.watch(heartbeat=60); next(watched)",
    "a client of a function": "(lambda: JobClient().jobs.list())()",
    "a client that is closed": "client.close()",
    "a cycle": "client.self = client; del client; del run",
}
ENDING = """
import atexit, threading
from concurrent.futures import ThreadPoolExecutor
from jetjobs.sync import JobClient
client = JobClient()
run = client.get_job("shop.hold").trigger()
{end}
"""


@pytest.mark.parametrize("end", ENDS)
async def test_however_it_ends(host: JobHost, nats_url: str, project: str, end: str):
    began = time.monotonic()
    done = await asyncio.to_thread(run_program, ENDING.format(end=ENDS[end]), nats_url, project)
    assert time.monotonic() - began < 15
    said = done.stderr.splitlines()
    assert said[-1:] == (["LookupError: the only thing it says"] if end == "an exception" else [])
    assert said.count("Traceback (most recent call last):") == len(said[-1:])
    assert done.returncode == {"an error": 3, "an exception": 1}.get(end, 0)
    assert done.stdout == {"a thread that is": "late 5\n", "a call at the exit": "at exit 5\n"}.get(end, "")
