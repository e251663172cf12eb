"""Another service: orders an index from `file_index` and prints the report. It shares no code with it.

    python order.py /some/folder

It needs two things: where the broker is (NATS_URL) and which project is meant (JETJOBS_PROJECT). `jetjobs dev` prints
both.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from jetjobs import JobClient, RunFailed


async def order(folder: Path) -> int:
    # Without arguments the client reads NATS_URL and JETJOBS_PROJECT.
    async with JobClient() as client:
        # By name: the module that declares the job is not imported, it needn't even be installed here.
        run = await client.get_job("files", "scan").trigger({"folder": str(folder)})
        print(f"ordered as run {run.run_id}", file=sys.stderr)
        if run.no_host:
            # The order is stored all the same, and done once a host is back. Nothing needs to be sent again.
            print("nobody works on it at the moment; waiting", file=sys.stderr)
        try:
            scanned = await run.result(timeout="5m")
        except TimeoutError:
            print("not done within 5 minutes; it goes on", file=sys.stderr)
            return 1
        except RunFailed as failure:
            print(f"it failed: {failure.record.error}", file=sys.stderr)
            return 1
        # A run is found by its id from anywhere, for as long as its record is kept.
        report = await client.run("files", "report", scanned["report"]).result(timeout="1m")
        print(report["text"])
        return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(order(Path(sys.argv[1] if len(sys.argv) > 1 else ".").absolute())))
