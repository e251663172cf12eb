"""A service with work of its own and a job host beside it, in one event loop.

It reads numbers from stdin, one a line, has each squared by a job, and prints the results. At the end of the input it
stops; what runs then is finished first.
"""

from __future__ import annotations

import asyncio
import sys

from jetjobs import JobContext, JobHost, Module

numbers = Module("numbers")


@numbers.job(max_concurrency=4, timeout="10s")
async def square(ctx: JobContext, number: int) -> int:
    return number * number


async def serve_stdin() -> None:
    """The service's own work."""
    while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
        run = await square.trigger(int(line))
        print(f"{line} squared is {await run.result(timeout='30s')}", flush=True)


async def main() -> None:
    # NATS_URL and JETJOBS_PROJECT say where to. The host touches no signals: those are the service's.
    async with JobHost([numbers]) as host, asyncio.TaskGroup() as group:
        # Raises when a loop of the host dies, and that ends the group; else it waits until the host is closed.
        watching = group.create_task(host.wait_closed())
        await serve_stdin()
        watching.cancel()


if __name__ == "__main__":
    asyncio.run(main())
