"""`trigger_once.py URL PROJECT MODULE JOB KEY PAYLOAD`: trigger when a line comes, print what came of it as JSON."""

import asyncio
import json
import sys

from jetjobs import JobClient


async def main() -> None:
    url, project, module, job, key, payload = sys.argv[1:]
    async with JobClient(url, project=project) as client:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        run = await client.get_job(module, job).trigger(json.loads(payload), idempotency_key=key)
        said = {"run_id": run.run_id, "duplicate": run.duplicate, "payload_differs": run.payload_differs}
        sys.stdout.write(json.dumps({**said, "result": await run.result(timeout=60)}) + "\n")


asyncio.run(main())
