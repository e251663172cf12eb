"""Machines without a time zone database, the broker's and a host's own: UTC goes on, a named zone is a clear error."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jetjobs import Cron, HostSettings, JobContext, JobHost, Module
from tests.support.commands import Terminal
from tests.support.impostors import bare_server
from tests.support.links import until
from tests.support.servers import RealServer
from tests.support.zones import PrivateZone, private_zones

pytestmark = pytest.mark.faults

APART = timedelta(hours=12)
WITHOUT_ZONES = "mount --bind {empty} /usr/share/zoneinfo"
UTC_ONLY = """
from jetjobs import Cron, Every, JobContext, Module

shop = Module("shop")


@shop.job(timeout="5s", triggers=[Cron("* * * * * *"), Cron("@daily", timezone="UTC", name="daily"), Every("1h")])
async def look(ctx: JobContext) -> None:
    print("looked", flush=True)
"""
NAMED = UTC_ONLY.replace('timezone="UTC"', 'timezone="Europe/Berlin"')


@pytest.fixture
def zoneless(tmp_path: Path) -> Iterator[str]:
    """The URL of a server in a mount namespace of its own, where the folder of zones is empty."""
    empty = tmp_path / "no-zones"
    empty.mkdir()
    into = ["unshare", "--mount", "sh", "-c", f'{WITHOUT_ZONES.format(empty=empty)} && exec "$@"', "sh"]
    try:
        tried = subprocess.run([*into, "ls", "/usr/share/zoneinfo"], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no mount namespaces on this machine: {error}")
    if tried.returncode != 0:
        pytest.skip(f"no mount namespace for this user: {tried.stderr.strip()}")
    assert tried.stdout == ""
    with bare_server(tmp_path / "nats", "-js", "-sd", str(tmp_path / "store"), under=into) as url:
        yield url


@pytest.fixture
def terminal(tmp_path: Path, project: str) -> Terminal:
    (tmp_path / "utc_only.py").write_text(UTC_ONLY)
    (tmp_path / "named.py").write_text(NAMED)
    return Terminal(tmp_path, project=project)


def test_b22_a_broker_without_zones_serves_utc(zoneless: str, terminal: Terminal):
    terminal.env["NATS_URL"] = zoneless
    with terminal.start("run", "utc_only") as host:
        host.wait_for("looked", times=2)


def test_b22_a_broker_without_zones_refuses_a_named_one_and_is_told_of(zoneless: str, terminal: Terminal):
    """The host knows the zone, so the message must say whose database is missing, and what to do."""
    terminal.env["NATS_URL"] = zoneless
    done = terminal.run("run", "named")
    assert done.code == 2
    assert done.in_time
    for part in ("shop.look/daily", "10223", 'broker know the zone "Europe/Berlin"', "install tzdata there"):
        assert part in done.last_line
    assert "Traceback" not in done.err


@pytest.fixture
def no_zones_here(terminal: Terminal) -> Terminal:
    """A Python that finds no zones: none on its path, and no package `tzdata`."""
    shadow = terminal.folder / "shadow" / "tzdata"
    shadow.mkdir(parents=True)
    (shadow / "__init__.py").write_text("")
    python_path = [str(shadow.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    terminal.env |= {"PYTHONTZPATH": "/nonexistent", "PYTHONPATH": os.pathsep.join(python_path)}
    return terminal


def test_b22_a_host_without_zones_serves_utc(no_zones_here: Terminal, nats_url: str):
    no_zones_here.env["NATS_URL"] = nats_url
    with no_zones_here.start("run", "utc_only") as host:
        host.wait_for("looked", times=2)


def test_b22_a_host_without_zones_refuses_a_named_one_at_its_declaration(no_zones_here: Terminal, nats_url: str):
    no_zones_here.env["NATS_URL"] = nats_url
    done = no_zones_here.run("run", "named")
    assert done.code == 2
    assert done.in_time
    assert 'timezone "Europe/Berlin": this Python has no time zone database' in done.err
    assert "install the package tzdata" in done.err


async def test_b22_other_rules_here_than_at_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str, capsys: pytest.CaptureFixture[str]
):
    """One of the two databases is years older: each instant of the host's rules runs once, and that is warned of."""
    now = datetime.now(UTC).replace(microsecond=0)
    old, here = (PrivateZone("Test/Moved", now - timedelta(days=300), hours, hours) for hours in (APART, timedelta()))
    with private_zones(tmp_path / "broker", [old]) as zones:
        monkeypatch.setenv("ZONEINFO", str(zones))
    server = RealServer(tmp_path / "nats")
    server.start()
    due: dict[str, list[float]] = {"theirs": [], "ours": []}
    try:
        with private_zones(tmp_path / "here", [here]):
            module = Module("m")

            async def note(ctx: JobContext[Any]) -> None:
                assert ctx.trigger.scheduled_for is not None
                due[ctx.job].append(ctx.trigger.scheduled_for.timestamp())

            hours = {"theirs": now + APART, "ours": now}  # by whose clock it is that hour now
            for job, shown in hours.items():
                line = f"* * {shown.hour},{(shown.hour + 1) % 24} * * *"
                module.expose_job(job, note, triggers=[Cron(line, timezone="Test/Moved")], timeout="5s")
            async with JobHost([module], project=project, nats=server.url, settings=HostSettings(upkeep_every="1s")):
                said = list[str]()

                def warned() -> bool:
                    said.append(capsys.readouterr().out)
                    return "schedule_zone_differs" in "".join(said)

                await until(warned)
                assert "m.theirs/cron" in "".join(said)
    finally:
        server.remove()
    assert due["theirs"] == []
    assert len(set(due["ours"])) == len(due["ours"])
