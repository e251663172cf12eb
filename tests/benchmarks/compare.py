"""jetjobs beside bare nats-py, in one run on one machine: `make bench`.

Only the ratios mean anything, and only on a machine that does nothing else. The bare twin does what a durable run
must (take the message, create a record, update it, ack) with nats-py's pipelined writes and a raw pull, and nothing
around it. Both run 100 at once, in a process of their own; the figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats
from nats.aio.msg import Msg

from jetjobs import JobClient, JobContext, JobHost, JobRun, Module, TriggerRequest
from jetjobs.embedded import EmbeddedServer

AT_ONCE = 100
RECORD = b"a record of about as many bytes as a finished run has".ljust(400, b".")
EXPECTED = "Nats-Expected-Last-Subject-Sequence"


async def store_bare(url: str, runs: int) -> float:
    """Store messages on a stream, 128 in flight; messages a second."""
    client = await nats.connect(url)
    stream = client.jetstream()
    await stream.add_stream(name="bare", subjects=["bare.>"])
    await stream.add_stream(name="KV_bare", subjects=["$KV.bare.>"], max_msgs_per_subject=1)
    began = time.perf_counter()
    for start in range(0, runs, 128):
        count = min(128, runs - start)
        await asyncio.gather(*(stream.publish("bare.run", json.dumps([start + i]).encode()) for i in range(count)))
    rate = runs / (time.perf_counter() - began)
    await client.close()
    return rate


async def run_bare(url: str, runs: int) -> float:
    """Take them all, with a record each; runs a second from the first to the last."""
    client = await nats.connect(url)
    stream = client.jetstream(publish_async_max_pending=4096)
    await stream.add_consumer("bare", durable_name="bare", max_ack_pending=AT_ONCE, ack_policy="explicit")
    inbox, clock = client.new_inbox(), Clock(runs)
    free, going = [0], set[asyncio.Task[None]]()

    async def pull(count: int) -> None:
        ask = json.dumps({"batch": count, "expires": 30_000_000_000}).encode()
        await client.publish("$JS.API.CONSUMER.MSG.NEXT.bare.bare", ask, reply=inbox)

    async def run(message: Msg) -> None:
        subject = f"$KV.bare.{message.reply.split('.')[5]}"
        created = await (await stream.publish_async(subject, RECORD, headers={EXPECTED: "0"}))
        clock.start()
        await (await stream.publish_async(subject, RECORD, headers={EXPECTED: str(created.seq)}))
        await client.publish(message.reply, b"+ACK")
        free[0] += 1
        if free[0] >= AT_ONCE // 2:
            count, free[0] = free[0], 0
            await pull(count)

    async def take(message: Msg) -> None:
        if message.data:
            task = asyncio.create_task(run(message))
            going.add(task)
            task.add_done_callback(going.discard)

    await client.subscribe(inbox, cb=take)
    await pull(AT_ONCE)
    await clock.full.wait()
    await asyncio.gather(*going)
    await client.close()
    return clock.rate


class Clock:
    """When each run started; `on_full` is called with the last."""

    def __init__(self, runs: int) -> None:
        self.starts: list[float] = []
        self.full = asyncio.Event()
        self.on_full: Callable[[], None] = self.full.set
        self._runs = runs

    def start(self) -> None:
        """A run starts now."""
        self.starts.append(time.perf_counter())
        if len(self.starts) == self._runs:
            self.on_full()

    @property
    def rate(self) -> float:
        """Runs a second, from the first start to the last."""
        return (self._runs - 1) / (self.starts[-1] - self.starts[0])


def noop_module(clock: Clock) -> Module:
    """A module whose one job notes when it started."""
    module = Module("bench")

    @module.job(max_concurrency=AT_ONCE, timeout="1m")
    async def noop(_ctx: JobContext, _payload: list[Any]) -> None:
        clock.start()

    return module


async def store_ours(url: str, runs: int) -> float:
    """Trigger runs, 128 in flight; triggers a second."""
    module = noop_module(Clock(runs))
    async with JobHost([module], project="bench", nats=url) as host:
        await host.close()
    async with JobClient(url, project="bench") as client:
        job = client.get_job(module.jobs["noop"])
        began = time.perf_counter()
        for start in range(0, runs, 128):
            await asyncio.gather(*(job.trigger([i]) for i in range(start, min(runs, start + 128))))
        return runs / (time.perf_counter() - began)


async def many_ours(url: str, runs: int) -> float:
    """Trigger runs by one call, in a project of its own; triggers a second."""
    module = noop_module(Clock(runs))
    async with JobHost([module], project="many", nats=url) as host:
        await host.close()
    async with JobClient(url, project="many") as client:
        job = module.jobs["noop"]
        began = time.perf_counter()
        triggered = await client.trigger_many(TriggerRequest(job, [i]) for i in range(runs))
        rate = runs / (time.perf_counter() - began)
    assert all(isinstance(each, JobRun) for each in triggered)
    return rate


def run_ours(url: str, runs: int) -> float:
    """Run them on one host process, ended as its supervisor would; runs a second from the first to the last."""
    clock = Clock(runs)
    module = noop_module(clock)
    clock.on_full = lambda: signal.raise_signal(signal.SIGTERM)
    JobHost([module], project="bench", nats=url).run()
    return clock.rate


STEPS: dict[str, Callable[[str, int], float]] = {
    "store_bare": lambda url, runs: asyncio.run(store_bare(url, runs)),
    "run_bare": lambda url, runs: asyncio.run(run_bare(url, runs)),
    "store_ours": lambda url, runs: asyncio.run(store_ours(url, runs)),
    "many_ours": lambda url, runs: asyncio.run(many_ours(url, runs)),
    "run_ours": run_ours,
}


def in_a_process(step: str, url: str, runs: int) -> float:
    """One step's figure."""
    command = [sys.executable, "-m", "tests.benchmarks.compare", "--step", step, "--url", url, "--runs", str(runs)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.split()[-1])


def compare(runs: int, rounds: int) -> None:
    """Print each round and the median ratios."""
    stored, many, ran = list[float](), list[float](), list[float]()
    for number in range(1, rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            server = EmbeddedServer(Path(folder))
            server.start_blocking()
            try:
                figures = {step: in_a_process(step, server.url, runs) for step in STEPS}
            finally:
                server.stop_blocking()
        stored.append(figures["store_ours"] / figures["store_bare"])
        many.append(figures["many_ours"] / figures["store_bare"])
        ran.append(figures["run_ours"] / figures["run_bare"])
        print(f"round {number}:", "  ".join(f"{step} {rate:,.0f}/s" for step, rate in figures.items()), flush=True)
    print(f"trigger beside bare publish: {statistics.median(stored):.2f}")
    print(f"trigger_many beside it:      {statistics.median(many):.2f}")
    print(f"runs beside the bare twin:   {statistics.median(ran):.2f}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--url")
    given = parser.parse_args()
    if given.step is None:
        compare(given.runs, given.rounds)
    else:
        print(STEPS[given.step](given.url, given.runs))


if __name__ == "__main__":
    main()
