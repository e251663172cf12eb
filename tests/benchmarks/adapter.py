"""jetjobs in a side-by-side benchmark of job systems: `adapter.py enqueue | trickle | worker`.

Runs beside a folder with a `common.py` on PYTHONPATH that gives `N`, `CONC`, `NATS` and `tally.hit(t0)`; the payload
is `[i, t0]`. `worker` is one host process. Also `adapter.py reset`, which deletes the benchmark's project.
"""

from __future__ import annotations

import asyncio
import sys
import time
from importlib import import_module
from typing import Any

import nats

from jetjobs import JobClient, JobContext, JobHost, Module, TriggerRequest

common: Any = import_module("common")  # given by the benchmark's folder
PROJECT = "bench"
bench = Module("bench")


@bench.job(max_concurrency=common.CONC)
async def noop(_ctx: JobContext, payload: list[Any]) -> None:
    """Count the start."""
    common.tally.hit(payload[1])


async def reset() -> None:
    """Delete what an earlier run left."""
    connection = await nats.connect(common.NATS)
    stream = connection.jetstream()
    for name in await stream.streams_info():
        if name.config.name and PROJECT in name.config.name and "jetjobs" in name.config.name.lower():
            await stream.delete_stream(name.config.name)
    await connection.close()


async def enqueue() -> None:
    """Store N triggers, 128 in flight, by `trigger` and then print the rate; `many` uses `trigger_many`."""
    await reset()
    async with JobHost([bench], project=PROJECT, nats=common.NATS) as host:
        await host.close()
    async with JobClient(common.NATS, project=PROJECT, modules=[bench]) as client:
        began = time.time()
        if "many" in sys.argv:
            await client.trigger_many(TriggerRequest(("bench", "noop"), [i, time.time()]) for i in range(common.N))
        else:
            job = client.get_job(noop)
            for start in range(0, common.N, 128):
                await asyncio.gather(*(job.trigger([i, time.time()]) for i in range(start, min(common.N, start + 128))))
        print("ENQ", common.N / (time.time() - began))


async def trickle() -> None:
    """One trigger every 10 ms."""
    async with JobClient(common.NATS, project=PROJECT, modules=[bench]) as client:
        job = client.get_job(noop)
        for i in range(common.N):
            await job.trigger([i, time.time()])
            await asyncio.sleep(0.01)


def worker() -> int:
    """One host process, until it is told to end."""
    return JobHost([bench], project=PROJECT, nats=common.NATS).run()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        sys.exit(worker())
    asyncio.run({"enqueue": enqueue, "trickle": trickle, "reset": reset}[sys.argv[1]]())
