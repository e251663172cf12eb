"""What importing jetjobs doesn't import; how long that takes depends on the machine, this doesn't."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from textwrap import dedent

import pytest

# Each of these costs milliseconds at the start of every process that imports it.
HEAVY = (
    "asyncio",
    "concurrent.futures",
    "email",
    "http",
    "importlib.metadata",
    "logging",
    "msgpack.fallback",
    "multiprocessing",
    "nats",
    "pydantic",
    "pydantic_core",
    "pytest",
    "socket",
    "ssl",
    "structlog",
    "subprocess",
    "tempfile",
    "tomllib",
    "unittest",
    "urllib.request",
)
DECLARING = """
    from jetjobs import Backoff, Cron, Every, JobContext, JobPolicy, Module, OnEvent, RunRecord, job
    from jetjobs.errors import JetJobsError

    billing = Module("billing")

    @billing.job(triggers=[Every("1h")])
    async def sweep(ctx: JobContext) -> None: ...
"""


def imported(program: str, heavy: Iterable[str] = HEAVY) -> list[str]:
    """Those of the heavy modules that a program has imported at its end."""
    ask = f"import json, sys; print(json.dumps([name for name in {list(heavy)!r} if name in sys.modules]))"
    # -I and -S: neither this environment nor what a site's hooks import are the program's doing.
    path = f"import sys; sys.path[:] = {sys.path!r}\n"
    command = [sys.executable, "-I", "-S", "-c", path + dedent(program) + ask]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)


def test_the_package_alone_imports_nothing_of_itself():
    assert imported("import jetjobs\n", ["jetjobs.errors", "jetjobs.module", "dataclasses", "inspect"]) == []


@pytest.mark.parametrize("program", ["import jetjobs\n", DECLARING], ids=["the package", "a module that declares"])
def test_declaring_imports_nothing_heavy(program: str):
    assert imported(program) == []


def test_pydantic_comes_with_the_first_declared_payload():
    program = (
        DECLARING
        + """
    @billing.job
    async def untyped(ctx: JobContext, payload) -> None: ...

    import sys
    assert "pydantic" not in sys.modules

    @billing.job
    async def send(ctx: JobContext, payload: dict) -> None: ...
    """
    )
    assert "pydantic" in imported(program + "\n")


@pytest.mark.parametrize("name", ["JobClient", "JobRun", "SyncJobClient", "TriggerError", "TriggerRequest"])
def test_a_client_needs_no_engine(name: str):
    assert imported(f"from jetjobs import {name}\n", ["jetjobs._engine", "multiprocessing", "jetjobs.host"]) == []


def test_names_are_what_their_modules_call_so():
    import jetjobs
    from jetjobs import client, declaring, host, sync

    assert (jetjobs.JobHost, jetjobs.JobClient, jetjobs.JobRun) == (host.JobHost, client.JobClient, client.JobRun)
    assert jetjobs.SyncJobClient is sync.JobClient
    assert jetjobs.job is declaring.job


def test_the_decorator_is_not_the_module_of_its_name():
    program = """
    import jetjobs.job
    from jetjobs import job
    from jetjobs.job import Job

    assert job is jetjobs.job and callable(job) and Job is jetjobs.Job
    """
    assert imported(program + "\n", ["jetjobs._engine"]) == []


def test_every_name_is_told_to_checkers_and_at_run_time():
    import jetjobs

    told = re.findall(r"from (\S+) import (\w+) as (\w+)", inspect.getsource(jetjobs))
    assert all(name == alias for _, name, alias in told)
    assert {name: home for home, name, _ in told} == jetjobs._HOME
    for name in jetjobs._HOME:
        assert getattr(jetjobs, name) is not None
    assert set(dir(jetjobs)) >= set(jetjobs._HOME)


def test_a_star_brings_all_of_them():
    program = "from jetjobs import *\nassert callable(job) and JobHost and JobClient and RunRecord\n"
    assert "nats" in imported(program)


def test_a_name_that_does_not_exist_is_told():
    import jetjobs

    with pytest.raises(AttributeError, match="module 'jetjobs' has no attribute 'JobHosts'"):
        jetjobs.JobHosts  # noqa: B018  # pyright: ignore
    with pytest.raises(ImportError, match="JobHosts"):
        from jetjobs import JobHosts  # noqa: F401  # pyright: ignore
