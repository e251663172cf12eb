"""The plugin as a user's test suite meets it: pytest in a process of its own, on files of the user's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

BILLING = """
from jetjobs import Backoff, Module

billing = Module("billing")

@billing.job(max_attempts=2, backoff=Backoff("10ms"), timeout="5s")
async def charge(ctx, amount: int) -> str:
    if ctx.attempt == 1:
        raise ConnectionError("the bank is away")
    return f"{amount} charged"

@billing.job(timeout="5s")
def count(ctx) -> int:
    return 1
"""

TESTS = """
import asyncio
from billing import billing, charge, count
from jetjobs import JobClient

def test_blocking(jetjobs_host, jetjobs_client):
    host = jetjobs_host(billing)
    assert host.health().ok
    assert jetjobs_client.get_job(charge).trigger(7).result(timeout=45) == "7 charged"
    assert count.trigger_blocking().result(timeout=45) == 1

def test_a_project_of_its_own(jetjobs_client, jetjobs_project, jetjobs_host):
    assert jetjobs_client.project == jetjobs_project
    jetjobs_host(billing)
    assert jetjobs_client.runs.list() == []

def test_awaiting(jetjobs_broker, jetjobs_project, jetjobs_host):
    jetjobs_host(billing)
    async def use():
        async with JobClient(jetjobs_broker.url, project=jetjobs_project) as client:
            return await (await client.get_job(count).trigger()).result(timeout=45)
    assert asyncio.run(use()) == 1

def test_a_host_that_can_not_start(jetjobs_host):
    import pytest
    with pytest.raises(Exception, match="given twice"):
        jetjobs_host(billing, billing)
"""

UNUSED = """
import sys

def test_nothing_is_imported():
    heavy = ["asyncio", "nats", "pydantic", "structlog", "jetjobs.testing", "jetjobs.embedded", "jetjobs.errors"]
    assert [name for name in heavy if name in sys.modules] == []
    assert "jetjobs.pytest_plugin" in sys.modules
"""


def run_pytest(folder: Path, *options: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """A user's pytest, with no plugin but ours, nothing inherited, warnings as errors."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COV", "NATS"))}
    environment |= {"PATH": path} if path is not None else {}
    others = [
        f"-pno:{name}" for name in ("asyncio", "cov", "randomly", "timeout", "xdist", "hypothesispytest", "anyio")
    ]
    (folder / "pytest.ini").write_text("[pytest]\naddopts =\n")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", *others, *options]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=80)


def test_a_users_tests_with_the_fixtures(tmp_path: Path):
    (tmp_path / "billing.py").write_text(BILLING)
    (tmp_path / "test_billing.py").write_text(TESTS)
    done = run_pytest(tmp_path)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_it_costs_nothing_when_unused(tmp_path: Path):
    (tmp_path / "test_other.py").write_text(UNUSED)
    done = run_pytest(tmp_path)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_a_missing_server_is_told(tmp_path: Path):
    (tmp_path / "test_broker.py").write_text("def test_it(jetjobs_broker): ...\n")
    hide = "import importlib.metadata as m\ndef none(name): raise m.PackageNotFoundError(name)\nm.files = none\n"
    (tmp_path / "conftest.py").write_text(hide)
    done = run_pytest(tmp_path, path=str(tmp_path))
    assert 'pip install "jetjobs[server]"' in done.stdout, done.stdout
    assert "Traceback" not in done.stdout
    assert "1 error" in done.stdout


def test_the_fixtures_are_listed_with_what_they_give(tmp_path: Path):
    done = run_pytest(tmp_path, "--fixtures")
    for name in ("jetjobs_broker", "jetjobs_project", "jetjobs_client", "jetjobs_host"):
        assert name in done.stdout
