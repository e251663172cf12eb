"""B118, B131: one name declared twice, in one host, in two, in hosts that disagree; and jobs nobody hosts."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest

from jetjobs import Every, JobClient, JobContext, JobHost, Module, RunStatus
from jetjobs._core import names
from jetjobs.errors import AmbiguousHostError, ClientError, DuplicateJobError, JobsNotHosted, UnknownJobError
from tests.support.field import Field

pytestmark = pytest.mark.integration


def shop(ran: list[str], name: str, **policy: Any) -> Module:
    module = Module("shop")

    async def pay(ctx: JobContext, payload: Any = None) -> str:
        ran.append(name)
        return name

    options: dict[str, Any] = {"timeout": "20s", **policy}
    module.expose_job("pay", pay, **options)
    return module


async def handler(ctx: JobContext) -> None:
    """Nothing."""


async def rules_of(field: Field) -> list[str]:
    """The rules by which the broker fires, one for each schedule message."""
    stream = field.nats.jetstream()
    subjects = [subject for subject in await field.messages() if ".schedule." in subject]
    found: list[Any] = [await stream.get_last_msg(names.stream(field.project), subject) for subject in subjects]
    return sorted(message.headers["Nats-Schedule"] for message in found)


class TestTwice:
    """B118."""

    def test_b118_in_one_module(self):
        module = Module("shop")
        module.expose_job("x", handler)
        with pytest.raises(DuplicateJobError) as twice:
            module.expose_job("x", handler)
        assert str(twice.value).count("test_declared_twice.py:") == 2

    def test_b118_in_two_modules_of_one_name_in_one_host(self, project: str):
        first, second = Module("shop"), Module("shop")
        for module in (first, second):
            module.expose_job("x", handler)
        with pytest.raises(DuplicateJobError, match=r"shop\.x") as twice:
            JobHost([first, second], project=project)
        assert str(twice.value).count("test_declared_twice.py:") == 2

    def test_b118_the_same_module_twice_in_one_host(self, project: str):
        module = Module("shop")
        module.expose_job("x", handler)
        with pytest.raises(DuplicateJobError):
            JobHost([module, module], project=project)

    async def test_b118_two_hosts_of_one_process_share_the_job(self, field: Field):
        """Each run is done by one of them; both have slots of the one limit."""
        ran: list[str] = []
        await field.host(shop(ran, "first", max_concurrency=4))
        await field.host(shop(ran, "second", max_concurrency=4))
        runs = [await field.client.get_job("shop.pay").trigger(n) for n in range(100)]
        for run in runs:
            assert (await run.wait(45)).status is RunStatus.SUCCEEDED
        assert len(ran) == 100
        assert set(ran) == {"first", "second"}

    async def test_b118_one_module_in_two_hosts_of_one_project(self, field: Field):
        """Bound twice to the same project is no ambiguity."""
        ran: list[str] = []
        module = shop(ran, "one")
        await field.host(module)
        await field.host(module)
        assert await (await module.jobs["pay"].trigger(1)).result(timeout=45) == "one"

    async def test_b118_one_module_in_hosts_of_two_projects(self, field: Field, nats_url: str, project: str):
        module = shop([], "one")
        await field.host(module)
        async with JobHost([module], project=f"{project}-b", nats=nats_url):
            with pytest.raises(AmbiguousHostError, match=f"{project}-b"):
                await module.jobs["pay"].trigger(1)
        assert await (await module.jobs["pay"].trigger(1)).result(timeout=45) == "one"

    @pytest.mark.parametrize("attempts", [1, 2])
    async def test_b118_hosts_that_disagree_warn_once(
        self, field: Field, capsys: pytest.CaptureFixture[str], attempts: int
    ):
        """B118: two hosts of one version with different declarations: one warning, and the work is done."""
        ran: list[str] = []
        await field.host(shop(ran, "first", max_attempts=1), version="1.0")
        await field.host(shop(ran, "second", max_attempts=attempts), version="1.0")
        await (await field.client.get_job("shop.pay").trigger()).wait(10)
        out = capsys.readouterr().out
        warnings = [line for line in out.splitlines() if "job_declared_differently" in line]
        assert len(warnings) == attempts - 1
        assert all("shop.pay" in line for line in warnings)

    async def test_b118_hosts_that_disagree_about_a_schedule(self, field: Field, capsys: pytest.CaptureFixture[str]):
        """Without versions the first one's stays, and the other says so; a newer version's declaration counts."""
        jobs = {hours: shop([], f"{hours} h", triggers=[Every(f"{hours}h")]) for hours in (1, 2, 3)}
        await field.host(jobs[1])
        await field.host(jobs[2])
        assert await rules_of(field) == ["@every 3600s"]
        assert "shop.pay" in next(
            line for line in capsys.readouterr().out.splitlines() if "schedule_declared_differently" in line
        )
        await field.host(jobs[3], version="2.0")
        assert await rules_of(field) == ["@every 10800s"]

    async def test_b118_another_version_may_differ(self, field: Field, capsys: pytest.CaptureFixture[str]):
        await field.host(shop([], "first", max_attempts=1), version="1.0")
        await field.host(shop([], "second", max_attempts=2), version="1.1")
        assert "job_declared_differently" not in capsys.readouterr().out


class TestNobodyHosts:
    """B131."""

    async def test_b131_a_job_nobody_ever_described(self, field: Field):
        await field.host(shop([], "one"))
        for name in ("shop.pya", "shop.Pay", "shopp.pay"):
            with pytest.raises(UnknownJobError) as unknown:
                await field.client.get_job(name).trigger()
            assert unknown.value.close_names == ("shop.pay",)
            assert "shop.pay" in str(unknown.value)
        assert await field.messages() == {}

    async def test_b131_allowed_all_the_same_it_waits_and_the_waiting_ends(self, field: Field):
        await field.host(shop([], "one"))
        run = await field.client.get_job("shop.typo").trigger(1, allow_unknown=True)
        assert run.no_host
        started = time.monotonic()
        with pytest.raises(TimeoutError, match="3 s"):
            await run.wait(timeout=3)
        assert 2.5 < time.monotonic() - started < 10
        assert await run.status() is RunStatus.QUEUED

    async def test_b131_described_and_no_host_lives(self, field: Field):
        """Stored, told, and run by whichever host comes."""
        ran: list[str] = []
        async with JobHost(shop(ran, "first"), project=field.project, nats=field.url):
            pass
        run = await field.client.get_job("shop.pay").trigger(1)
        assert run.no_host
        with pytest.raises(TimeoutError):
            await run.result(timeout=0.3)
        await field.host(shop(ran, "second"))
        assert await run.result(timeout=45) == "second"

    async def test_b131_a_wait_without_an_end_is_cancelled(self, field: Field):
        await field.host(shop([], "one"))
        run = await field.client.get_job("shop.typo").trigger(1, allow_unknown=True)
        waiting = asyncio.create_task(run.wait())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await run.status() is RunStatus.QUEUED

    async def test_b131_a_job_bound_to_nothing(self):
        module = shop([], "one")
        with pytest.raises(JobsNotHosted, match="JobClient"):
            await module.jobs["pay"].trigger(1)

    @pytest.mark.faults
    async def test_b131_ctrl_c_ends_a_wait_without_an_end(self, field: Field):
        await field.host(shop([], "one"))
        program = (
            "import asyncio, signal, sys\nfrom jetjobs import JobClient\n"
            # A shell that starts its commands in the background has SIGINT ignored, for their children too.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "async def main():\n"
            "    async with JobClient(sys.argv[1], project=sys.argv[2]) as client:\n"
            "        run = await client.get_job('shop.typo').trigger(allow_unknown=True)\n"
            "        sys.stdout.write('waiting\\n'); sys.stdout.flush()\n"
            "        await run.wait()\n"
            "asyncio.run(main())\n"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, field.url, field.project,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        try:
            async with asyncio.timeout(45):
                assert process.stdout is not None
                while await process.stdout.readline() not in {b"waiting\n", b""}:
                    pass
                process.send_signal(signal.SIGINT)
                _, err = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert err.decode().strip().endswith("KeyboardInterrupt")


async def test_b131_a_client_that_is_not_open_says_so(nats_url: str, project: str):
    client = JobClient(nats_url, project=project)
    with pytest.raises(ClientError, match="not connected"):
        await client.runs.list()
