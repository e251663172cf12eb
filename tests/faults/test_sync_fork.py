"""Blocking clients in forked processes, as web servers fork them: the parent has called, the children call too."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from jetjobs import JobContext, JobHost, Module
from jetjobs.config import HostSettings
from tests.support.field import QUICK
from tests.support.programs_run import run_program
from tests.support.waiting import eventually

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        sys.platform in {"win32", "darwin"}, reason="forks: Windows can't, macOS not safely with threads"
    ),
]

# Children leave the ordinary way, through the interpreter's exit, as a web server's do.
PRE_FORK = """
import os, sys
from jetjobs.sync import JobClient

client = JobClient(timeout=10)
job = client.get_job("shop.add")
before = [job.trigger(n) for n in range(5)]
children = []
for child in range(1, 5):
    pid = os.fork()
    if not pid:
        runs = [job.trigger(child * 100 + n) for n in range(10)]
        assert [run.result(timeout=45) for run in runs] == [child * 100 + n for n in range(10)]
        assert before[child].result(timeout=45) == child  # the parent's run, over the child's connection
        sys.exit(0)
    children.append(pid)
during = [job.trigger(1000 + n) for n in range(5)]
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
after = [job.trigger(2000 + n, timeout=2) for n in range(5)]
assert [run.result(timeout=45) % 1000 for run in [*before, *during, *after]] == [*range(5)] * 3
print(len({run.run_id for run in [*before, *during, *after]}))
"""

# Forks at any moment of other threads' calls, with children of children.
IN_FULL_FLIGHT = """
import os, sys, threading
from jetjobs.sync import JobClient

client = JobClient(timeout=10)
client.connect()
start = threading.Barrier(5)

def trigger(first):
    start.wait()
    for n in range(first, first + 40):
        client.get_job("shop.add").trigger(n)

threads = [threading.Thread(target=trigger, args=(n * 40,)) for n in range(4)]
for thread in threads:
    thread.start()
start.wait()
children = []
for child in range(1, 5):
    pid = os.fork()
    if not pid:
        client.get_job("shop.add").trigger(child * 1000)
        grandchild = os.fork()
        if not grandchild:
            JobClient(timeout=10).get_job("shop.add").trigger(child * 1000 + 1)
            sys.exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]) == 0
        assert client.get_job("shop.add").trigger(child * 1000 + 2).result(timeout=45) == child * 1000 + 2
        sys.exit(0)
    children.append(pid)
assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0] * 4
for thread in threads:
    thread.join()
"""

NOTHING_INHERITED = """
import os, socket, sys
from contextlib import suppress
from pathlib import Path
from jetjobs.sync import JobClient

def sockets():
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            with socket.socket(fileno=os.dup(int(each.name))) as copy:
                found += copy.family in {socket.AF_INET, socket.AF_INET6}
    return found

client = JobClient(timeout=10)
closed = JobClient(timeout=10)
none = sockets()
client.jobs.list()
closed.jobs.list()
assert sockets() == none + 2
pid = os.fork()
if not pid:
    print(sockets() - none, flush=True)
    del closed
    client.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(len(client.jobs.list(timeout=2)), len(closed.jobs.list(timeout=2)))
"""

# Servers that replace their processes fork as long as they live: what one fork leaves behind adds up.
MANY = """
import os, sys
from jetjobs.sync import JobClient

client = JobClient(timeout=10)
other = JobClient(timeout=10)

def descriptors():
    return len(os.listdir("/proc/self/fd"))

def fork():
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(read)
        inherited = descriptors()
        for each in (client, other, JobClient(timeout=10)):
            each.jobs.list()
        os.write(write, f"{inherited} {descriptors()}".encode())
        sys.exit(0)
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    with open(read) as told:
        return told.read(), descriptors()

client.jobs.list()
other.jobs.list()
assert len({fork() for _ in range(12)}) == 1
assert len(client.jobs.list()) == len(other.jobs.list()) == 1
"""

# As uWSGI forks: in C, with no word to Python. Such a child leaves in C, too.
UNTOLD = """
import ctypes, os, threading
from jetjobs.sync import JobClient

client = JobClient(timeout=10)
run = client.get_job("shop.add").trigger(1)
fork = ctypes.PyDLL(None).fork
pid = fork()
if not pid:
    read = [threading.Thread(target=client.jobs.list) for _ in range(4)]
    for each in read:
        each.start()
    assert client.get_job("shop.add").trigger(2).result(timeout=20) == 2
    assert run.result(timeout=20) == 1
    for each in read:
        each.join()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert client.get_job("shop.add").trigger(3, timeout=2).result(timeout=20) == 3
"""

# What is bound to a loop of the parent's says so in a child, instead of waiting for it.
BORROWED = """
import asyncio, os
from jetjobs import JobClient, JobContext, Module
from jetjobs.errors import ClientError

shop = Module("shop")

@shop.job(timeout="30s")
async def add(ctx: JobContext, n: int) -> int:
    return n

def fork():
    run = add.trigger_blocking(1)
    pid = os.fork()
    if not pid:
        for call in (run.status, lambda: add.trigger_blocking(2)):
            try:
                call()
            except ClientError as error:
                print("jetjobs.sync.JobClient" in str(error), flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    print(run.result(timeout=45))

async def main():
    async with JobClient(modules=[shop]):
        await asyncio.to_thread(fork)

asyncio.run(main())
"""


@pytest.fixture
async def started(nats_url: str, project: str) -> AsyncIterator[Counter[int]]:
    """How often the handler was started for each payload."""
    counted = Counter[int]()
    shop = Module("shop")

    @shop.job(max_concurrency=16, timeout="30s")
    async def add(_ctx: JobContext, n: int) -> int:
        counted[n] += 1
        return n

    assert add.name in shop.jobs
    async with JobHost([shop], project=project, nats=nats_url, settings=HostSettings(**QUICK)):
        yield counted


async def test_children_of_a_parent_that_called_call_too(started: Counter[int], nats_url: str, project: str):
    done = await asyncio.to_thread(run_program, PRE_FORK, nats_url, project)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "15\n")
    wanted = [*range(5), *range(1000, 1005), *range(2000, 2005)]
    wanted += [child * 100 + n for child in range(1, 5) for n in range(10)]
    assert started == Counter(wanted)


async def test_forks_in_the_middle_of_calls(started: Counter[int], nats_url: str, project: str):
    done = await asyncio.to_thread(run_program, IN_FULL_FLIGHT, nats_url, project)
    assert (done.returncode, done.stderr) == (0, "")
    wanted = Counter([*range(160), *(child * 1000 + n for child in range(1, 5) for n in range(3))])
    await eventually(lambda: started.total() >= wanted.total(), 60)
    assert started == wanted


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_child_keeps_no_socket_of_its_parent(started: Counter[int], nats_url: str, project: str):
    done = await asyncio.to_thread(run_program, NOTHING_INHERITED, nats_url, project)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "0\n1 1\n")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_many_forks_leave_nothing_behind(started: Counter[int], nats_url: str, project: str):
    done = await asyncio.to_thread(run_program, MANY, nats_url, project)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(sys.platform != "linux", reason="calls the C library's fork")
async def test_a_fork_that_python_is_not_told_of(started: Counter[int], nats_url: str, project: str):
    done = await asyncio.to_thread(run_program, UNTOLD, nats_url, project, within=40)
    assert (done.returncode, done.stderr) == (0, "")
    assert started == {1: 1, 2: 1, 3: 1}


async def test_a_parents_loop_is_not_waited_for(started: Counter[int], nats_url: str, project: str):
    done = await asyncio.to_thread(run_program, BORROWED, nats_url, project)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "True\nTrue\n1\n")
    assert started == {1: 1}
