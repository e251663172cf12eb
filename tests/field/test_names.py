"""Names: each that can be declared works from trigger to command line; others are refused before a broker is asked."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from jetjobs import Cron, Every, JobClient, JobContext, JobHost, Module, RunStatus
from jetjobs.client import CancelOutcome
from jetjobs.errors import ConfigError, DeclarationError, InvalidNameError
from tests.support.commands import clean_environment, command
from tests.support.field import Field, field_of
from tests.support.links import until

pytestmark = pytest.mark.integration

LISTED: list[Any] = [
    "a.b", "a..b", ".a", "a.", "a b", "a:b", "a/b", "Grüße", "日本", "*", ">", "$JS", "a\nb", "a\0b", "", " ",
    "a=2Eb", "x" * 300, "x" * 5000, None, 7, b"a", True,
]  # fmt: skip
GOOD_MODULES = ["a.b", "a", "A", "A.B", "a-b", "a_b", "-", "_", "7", "x" * 190, "a.b.c.d", "2Eb", "run", "tick", "high"]
GOOD_JOBS = ["b", "B", "-", "_", "7", "run", "tick", "send_invoice", "send-invoice"]


@pytest.mark.parametrize("name", LISTED, ids=lambda name: ascii(name)[:20])
def test_b114_a_listed_name_is_good_or_refused_at_declaration(name: Any):
    """B114: a ValueError that shows it, and never a broker's time-out."""
    if name == "a.b":
        Module(name)
    elif name is not None:  # without a name it is the class-style default
        with pytest.raises((InvalidNameError, DeclarationError)):
            Module(name)
    module = Module("m")
    if name is not None:
        with pytest.raises(InvalidNameError) as refused:
            module.expose_job(name, handler)
        assert len(str(refused.value)) < 500
    assert dict(module.jobs) == {}


@pytest.mark.parametrize("name", [*LISTED, "A", "Shop", "x" * 33], ids=lambda name: ascii(name)[:20])
def test_b116_a_listed_name_is_no_project(name: Any, monkeypatch: pytest.MonkeyPatch):
    """B114, B116: nor is a project named by a default."""
    monkeypatch.delenv("JETJOBS_PROJECT", raising=False)
    for make in (JobHost, JobClient):
        with pytest.raises((InvalidNameError, ConfigError)):
            make(project=name)


@pytest.mark.parametrize("name", LISTED, ids=lambda name: ascii(name)[:20])
async def test_b114_a_listed_name_is_never_asked_of_the_broker(nats_url: str, project: str, name: Any):
    async with field_of(nats_url, project) as field:
        await field.host(Module("m"))
        for call in (lambda: field.client.get_job("m", name), lambda: field.client.run("m", name, "r")):
            if name is not None:
                with pytest.raises(InvalidNameError):
                    call()
        module: Any = "*" if name == "a.b" else name
        with pytest.raises(InvalidNameError):
            field.client.get_job(module, "j")


async def handler(ctx: JobContext, payload: Any = None) -> Any:
    return [ctx.module, ctx.job, payload]


def command_line(field: Field, *args: str) -> Any:
    env = {**clean_environment(), "NATS_URL": field.url, "JETJOBS_PROJECT": field.project}
    done = subprocess.run(
        command(args), env=env, cwd=Path(sys.executable).parent, capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


async def test_b114_every_good_name_works_end_to_end(nats_url: str, project: str):
    """B114: trigger, result, record, list, cancel; and all stay apart."""
    modules = [Module(name) for name in GOOD_MODULES]
    for module in modules:
        for job in GOOD_JOBS[: 9 if len(module.name) < 100 else 5]:
            module.expose_job(job, handler, timeout="20s", max_concurrency=2)
    names = [(module.name, job) for module in modules for job in module.jobs]
    async with field_of(nats_url, project) as field:
        await field.host(*modules)
        runs = [await field.client.get_job(*name).trigger(n, idempotency_key="k") for n, name in enumerate(names)]
        for n, (run, name) in enumerate(zip(runs, names, strict=True)):
            assert await run.result(timeout=45) == [*name, n]
            found = await field.client.runs.get(run.run_id)
            assert (found.module, found.job) == name
        for module, job in names[::7]:
            listed = await field.client.runs.list(module=module, job=job)
            assert [(each.module, each.job) for each in listed] == [(module, job)]
            assert {each.job for each in await field.client.runs.list(module=module)} == set(
                modules[GOOD_MODULES.index(module)].jobs
            )
            delayed = await field.client.get_job(module, job).trigger(delay="1h")
            assert await delayed.status() is RunStatus.SCHEDULED
            assert (await delayed.cancel()).outcome is CancelOutcome.CANCELLED
        assert {str(each.address) for each in await field.client.jobs.list()} == {".".join(name) for name in names}
        assert len(await field.client.runs.list(limit=1000)) == len(names) + len(names[::7])


async def test_b114_schedules_of_such_names_fire_and_apart(nats_url: str, project: str):
    """B114: schedules, whose subjects and ids have the names in them."""
    ran: dict[str, int] = {}

    async def tick(ctx: JobContext) -> None:
        ran[f"{ctx.module}.{ctx.job}"] = ran.get(f"{ctx.module}.{ctx.job}", 0) + 1

    modules = [Module(name) for name in ("a.b", "a-2Eb", "A.B", "-", "tick")]
    for module in modules:
        module.expose_job("tick", tick, timeout="20s", triggers=[Every("1s", name="each-1_s"), Cron("* * * * * *")])
    async with field_of(nats_url, project) as field:
        await field.host(*modules)
        await until(lambda: len(ran) == 5 and min(ran.values()) >= 3)
        subjects = [subject for subject in await field.messages() if ".schedule." in subject]
        assert len(subjects) == 10


@pytest.mark.parametrize("module, job", [("a.b.c", "send-invoice"), ("A", "_"), ("-", "-"), ("run", "tick")])
async def test_b114_the_command_line_takes_and_shows_them(nats_url: str, project: str, module: str, job: str):
    """B114; a name that begins like an option stands after `--`, or behind `=`."""
    made = Module(module)
    made.expose_job(job, handler, timeout="20s")
    async with field_of(nats_url, project) as field:
        await field.host(made)
        triggered = command_line(field, "trigger", "--json", "--", f"{module}.{job}", '"x"')
        record = await field.ended(f"{module}.{job}", triggered["run_id"])
        assert record.result == [module, job, "x"]
        shown = command_line(field, "runs", "show", "--json", record.run_id)
        assert (shown["module"], shown["job"], shown["run_id"]) == (module, job, record.run_id)
        (listed,) = command_line(field, "runs", "list", "--json", f"--job={module}.{job}")["runs"]
        assert (listed["module"], listed["job"]) == (module, job)
        delayed = await field.client.get_job(module, job).trigger(delay="1h")
        command_line(field, "runs", "cancel", "--json", delayed.run_id)
        assert await delayed.status() is RunStatus.CANCELLED


@pytest.mark.parametrize("size", [199, 200, 201])
def test_b114_together_they_take_200_bytes(size: int):
    module = Module("m.n")  # five bytes in a subject
    if size <= 200:
        module.expose_job("j" * (size - 5), handler)
    else:
        with pytest.raises(InvalidNameError, match="201 bytes"):
            module.expose_job("j" * (size - 5), handler)


async def test_b114_the_longest_names_work(nats_url: str, project: str):
    module = Module(".".join("m" * 30))  # 30 letters, 29 dots: 117 bytes
    module.expose_job("j" * 83, handler, timeout="20s")
    async with field_of(nats_url, project) as field:
        await field.host(module)
        run = await field.client.get_job(module.name, "j" * 83).trigger(1, idempotency_key="k" * 4096)
        assert await run.result(timeout=45) == [module.name, "j" * 83, 1]


async def test_b116_projects_never_see_each_other(nats_url: str, project: str):
    """B116: same module, job and key in projects of like names; hosts for each."""
    projects = [project, f"{project}-a", f"{project}_a", f"{project}a", project[:-1]]
    ran: dict[str, list[str]] = {name: [] for name in projects}

    def shop(name: str) -> Module:
        module = Module("shop")

        async def pay(ctx: JobContext, payload: Any = None) -> str:
            ran[name].append(ctx.run_id)
            return name

        module.expose_job("pay", pay, timeout="20s")
        return module

    async with AsyncExitStack() as stack:
        fields = {name: await stack.enter_async_context(field_of(nats_url, name)) for name in projects}
        for name, field in fields.items():
            await field.host(shop(name))
        for name, field in fields.items():
            run = await field.client.get_job("shop.pay").trigger(idempotency_key="k")
            assert not run.duplicate
            assert await run.result(timeout=45) == name
            assert len(await field.client.runs.list()) == 1
            assert len(await field.client.hosts.list()) == 1
        assert len({ids[0] for ids in ran.values()}) == 1  # one id, five runs
        await until(lambda: all(len(ids) == 1 for ids in ran.values()))
