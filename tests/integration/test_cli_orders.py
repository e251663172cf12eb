"""What people order on the command line, on a real server, with host processes."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from jetjobs._core.descriptors import HostPresence
from jetjobs._nats import open_backend
from jetjobs.config import connect_options
from tests.support.commands import APP, Done, Running, Terminal
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


@pytest.fixture
def terminal(nats_server: RealServer, tmp_path: Path) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, nats=nats_server.url, project=f"cli-{secrets.token_hex(5)}")


@pytest.fixture
def host(terminal: Terminal) -> Iterator[Running]:
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        yield host


def document(done: Done) -> Any:
    assert done.code == 0, done.err
    return json.loads(done.out)


def said_where(terminal: Terminal, done: Done) -> bool:
    return done.err.splitlines()[0] == f"{terminal.env['JETJOBS_PROJECT']} @ {terminal.env['NATS_URL']}"


def test_pause_and_resume(terminal: Terminal, host: Running):
    before = document(terminal.run("jobs", "show", "shop.mail", "--json"))["job"]
    assert (before["paused"], before["limit"], before["switched_by"]) == (False, 4, None)
    paused = terminal.run("jobs", "pause", "shop.mail", "--actor", "ops")
    assert paused.code == 0
    assert said_where(terminal, paused)
    assert paused.out.startswith("shop.mail is paused (ops, ")
    again = document(terminal.run("jobs", "pause", "shop.mail", "--actor", "another", "--json"))
    assert (again["changed"], again["job"]["switched_by"]) == (False, "ops")
    host.wait_for("job_controlled")

    asked = terminal.run("trigger", "shop.mail", '{"to": "a"}')
    assert asked.code == 0
    assert "warning: shop.mail is paused" in asked.err
    assert document(terminal.run("trigger", "shop.mail", '{"to": "b"}', "--json"))["paused"] is True
    assert document(terminal.run("runs", "show", asked.out.strip(), "--json"))["status"] == "QUEUED"
    assert "waits for `jetjobs jobs resume shop.mail`: " in terminal.run("runs", "show", asked.out.strip()).out
    listed = terminal.run("jobs", "list").out.splitlines()
    assert [line.split()[2] for line in listed if line.startswith("shop.")] == ["-", "paused", "-"]
    doctor = terminal.run("doctor")
    assert doctor.code == 0
    assert "shop.mail is paused (ops, " in doctor.out
    assert "jetjobs jobs resume shop.mail" in doctor.out

    resumed = terminal.run("jobs", "resume", "shop.mail")
    assert resumed.code == 0
    assert "shop.mail is not paused" in resumed.out
    assert terminal.run("trigger", "shop.mail", "{}", "--wait", "10").code == 0
    assert document(terminal.run("runs", "show", asked.out.strip(), "--json"))["status"] == "SUCCEEDED"


def test_override(terminal: Terminal, host: Running):
    done = document(terminal.run("jobs", "override", "shop.mail", "--max-concurrency", "2", "--actor", "ops", "--json"))
    assert done["changed"]
    assert (done["job"]["limit"], done["job"]["max_concurrency"], done["job"]["limited_by"]) == (2, 4, "ops")
    host.wait_for("job_controlled")
    assert "2 (not 4)" in terminal.run("jobs", "list").out
    shown = terminal.run("jobs", "show", "shop.mail").out
    assert "limit 2 (instead of 4, ops, " in shown
    assert "Send a mail." in shown
    removed = terminal.run("jobs", "override", "shop.mail", "--remove")
    assert "limit 4 (declared, " in removed.out
    assert "@" in removed.out, "who does it is told without being said"


@pytest.mark.parametrize(
    "words, code, said",
    [
        (("jobs", "pause", "shop.maill"), 4, "did you mean 'shop.mail'"),
        (("jobs", "resume", "mail"), 2, "mail"),
        (("jobs", "override", "shop.mail"), 2, "--max-concurrency"),
        (("jobs", "override", "shop.mail", "--max-concurrency", "0"), 2, "jobs pause"),
        (("jobs", "override", "shop.mail", "--max-concurrency", "2", "--remove"), 2, "not allowed"),
        (("hosts", "drain", "nobody"), 4, "'nobody'"),
        (("hosts", "drain", "a", "b"), 2, "add --yes"),
        (("jobs", "pause", "shop.mail", "--nats", "nats://127.0.0.1:1"), 3, "no NATS server"),
    ],
)
def test_mistakes(prepared: Terminal, words: tuple[str, ...], code: int, said: str):
    done = prepared.run(*words)
    assert (done.code, done.out) == (code, "")
    assert said in done.last_line
    assert "Traceback" not in done.err


@pytest.fixture(scope="module")
def prepared(nats_server: RealServer, tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A project whose jobs are described, and no host."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "app.py").write_text(APP)
    made = Terminal(folder, nats=nats_server.url, project=f"cli-{secrets.token_hex(5)}")
    assert made.run("init", "app").code == 0
    return made


def test_what_is_ordered_without_a_host_holds_when_one_starts(prepared: Terminal):
    done = prepared.run("jobs", "pause", "shop.boom")
    assert done.code == 0
    assert "no live host takes shop.boom" in done.out
    with prepared.start("run", "app") as host:
        host.wait_for("host_started")
        run = prepared.run("trigger", "shop.boom").out.strip()
        assert prepared.run("trigger", "shop.mail", "{}", "--wait", "10").code == 0
        assert document(prepared.run("runs", "show", run, "--json"))["status"] == "QUEUED"
    prepared.run("jobs", "resume", "shop.boom")


def test_drain(terminal: Terminal, host: Running):
    (live,) = document(terminal.run("hosts", "list", "--json"))["hosts"]
    run = terminal.run("trigger", "shop.slow", "6").out.strip()
    host.wait_for("slow started")
    done = terminal.run("hosts", "drain", live["host_id"], "nobody", "--yes", "--json", "--actor", "ops")
    assert done.code == 4, "of the one that isn't there"
    first, second = json.loads(done.out)["hosts"]
    assert first == {"host_id": live["host_id"], "draining": True, "running": 1, "closes": True, "again": False}
    assert (second["host_id"], second["draining"]) == ("nobody", False)
    host.wait_for("host_drain_asked")
    assert host.end() == 0
    assert "slow ended" in host.said
    assert document(terminal.run("runs", "show", run, "--json"))["status"] == "SUCCEEDED"


def test_a_draining_host_takes_no_more(terminal: Terminal):
    async def say() -> None:
        url, project = terminal.env["NATS_URL"], terminal.env["JETJOBS_PROJECT"]
        backend = await open_backend(connect_options(url), project, name="going")
        now = datetime.now(UTC)
        host = HostPresence("going", "box", 1, now, now, jobs=("shop.slow", "shop.mail"), draining=True)
        await backend.catalog.say(host, timedelta(minutes=5))
        await backend.close()

    assert terminal.run("init", "app").code == 0
    asyncio.run(say())
    shown = document(terminal.run("jobs", "show", "shop.slow", "--json"))
    assert (shown["hosts"], shown["job"]["live_hosts"]) == (["going"], 0)
    assert "going (draining); none takes it" in terminal.run("jobs", "show", "shop.slow").out
    listed = document(terminal.run("jobs", "list", "--json"))["jobs"]
    assert {job["live_hosts"] for job in listed} == {0}
    assert "no live host takes shop.mail" in terminal.run("jobs", "override", "shop.mail", "--max-concurrency", "4").out
