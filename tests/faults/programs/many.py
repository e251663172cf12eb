"""Many hosts in one process, all started at one instant: HOSTS of them, each with JOBS jobs of the module `many`.

The instant comes when the file that STARTED names is there. With EVERY each job has a schedule of that interval.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from notes import note, noted

from jetjobs import Every, JobContext, JobHost, Module


def module() -> Module:
    made = Module("many")
    triggers = [Every(os.environ["EVERY"])] if "EVERY" in os.environ else []
    for number in range(int(os.environ["JOBS"])):

        async def handler(ctx: JobContext[Any]) -> None:
            due = ctx.trigger.scheduled_for
            with noted(ctx, **({"due": due.timestamp(), "now": time.time()} if due is not None else {})):
                pass

        made.expose_job(
            f"job{number}", handler, timeout="30s", max_concurrency=int(os.environ["LIMIT"]), triggers=triggers
        )
    return made


async def main() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    hosts = [
        JobHost([module()], project=os.environ["PROJECT"], nats=os.environ["SERVER"])
        for _ in range(int(os.environ["HOSTS"]))
    ]
    note("loaded")
    while not Path(os.environ["STARTED"]).exists():  # noqa: ASYNC110, ASYNC240 - nobody tells but the file
        await asyncio.sleep(0.01)
    began = time.monotonic()
    results = await asyncio.gather(*(host.start() for host in hosts), return_exceptions=True)
    for result in results:
        note("up", error=None if result is None else repr(result), took=time.monotonic() - began)
    await stop.wait()
    await asyncio.gather(*(host.close() for host in hosts))


if __name__ == "__main__":
    asyncio.run(main())
