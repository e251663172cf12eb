"""Terminals that are closed and logins that end, for real commands: neighbours of B98 and B100. Each is a drain."""

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.field.test_interrupts import address_in
from tests.support.commands import Running, Terminal
from tests.support.processes import gone_within
from tests.support.ptys import Pty

pytestmark = [
    pytest.mark.faults,
    pytest.mark.skipif(sys.platform == "win32", reason="no terminal there hangs up"),
]

APP = """
import asyncio
import multiprocessing
import os
import time
from pathlib import Path

from jetjobs import JobContext, Module

shop = Module("shop")


def note(name: str) -> None:
    path = Path(name)
    path.with_suffix(".tmp").write_text(str(os.getpid()))
    path.with_suffix(".tmp").rename(path)


@shop.job(timeout="300s")
async def nap(ctx: JobContext, seconds: float) -> str:
    note("started")
    await asyncio.sleep(seconds)
    note("ended")
    return "slept"


@shop.job(timeout="300s", isolation="process")
def apart(ctx: JobContext, seconds: float) -> str:
    note("started")
    time.sleep(seconds)
    note("ended")
    return "slept"


def forked(seconds: float) -> str:
    note("started")
    time.sleep(seconds)
    return "slept"


@shop.job(timeout="300s")
def pooled(ctx: JobContext, seconds: float) -> str:
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.map(forked, [seconds])[0]
"""


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Tests run under `nohup`, too, and what they start would ignore it as well."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def terminal(tmp_path: Path, nats_url: str, project: str) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, nats=nats_url, project=project)


def started(terminal: Terminal, job: str, seconds: float) -> tuple[str, int]:
    """A run that goes on, and the process it is in."""
    run_id = terminal.run("trigger", f"shop.{job}", str(seconds)).out.strip()
    noted = terminal.folder / "started"
    deadline = time.monotonic() + 15
    while not noted.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return run_id, int(noted.read_text())


def status(terminal: Terminal, run_id: str) -> str:
    return terminal.run("runs", "show", run_id).out


def test_b98_a_closed_terminal_drains_the_host(terminal: Terminal):
    """Nobody reads any more what it says, either."""
    host = Pty(terminal, "run", "app")
    try:
        host.wait_for("host_started")
        run_id, _ = started(terminal, "nap", 1.5)
        host.hang_up()
        assert host.process.wait(15) == 0
    finally:
        host.close()
    assert (terminal.folder / "ended").exists()
    assert "SUCCEEDED" in status(terminal, run_id)
    assert json.loads(terminal.run("hosts", "list", "--json").out)["hosts"] == []


def test_b98_a_shell_that_hangs_up_too_is_no_second_signal(terminal: Terminal):
    """The shell tells its jobs, then the kernel does, and a service manager that ends the login adds SIGTERM."""
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        run_id, _ = started(terminal, "nap", 1.5)
        for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
            host.signal(number)
            host.wait_for("host_draining")
        assert host.end() == 0
    assert "SUCCEEDED" in status(terminal, run_id)


def test_b100_a_second_signal_after_a_hang_up_ends_at_once(terminal: Terminal):
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        run_id, _ = started(terminal, "nap", 200)
        host.signal(signal.SIGHUP)
        host.wait_for("host_draining")
        host.signal(signal.SIGTERM)
        host.signal(signal.SIGINT)
        assert host.end(within=2) in {130, 143}
    terminal.run("runs", "cancel", run_id)


def test_b98_nohup_keeps_a_host_serving(terminal: Terminal):
    """What is ignored when it starts stays ignored, and whoever hears it himself goes on to."""
    with Running(("run", "app"), terminal, before=("nohup",)) as host:
        host.wait_for("host_started")
        host.signal(signal.SIGHUP)
        assert terminal.run("trigger", "shop.nap", "0.1", "--wait").out.startswith("SUCCEEDED")
        assert "host_draining" not in host.said
        host.signal(signal.SIGTERM)
        assert host.end() == 0


def test_b98_a_programs_own_handler_stays(terminal: Terminal):
    (terminal.folder / "own.py").write_text(
        "import signal\nfrom app import shop\nfrom jetjobs import JobHost\n\n"
        "signal.signal(signal.SIGHUP, lambda *_: print('read my settings again', flush=True))\n"
        "host = JobHost([shop])\n"
    )
    with terminal.start("run", "own:host") as host:
        host.wait_for("host_started")
        host.signal(signal.SIGHUP)
        host.wait_for("read my settings again")
        assert terminal.run("trigger", "shop.nap", "0.1", "--wait").out.startswith("SUCCEEDED")
        host.signal(signal.SIGTERM)
        assert host.end() == 0


@pytest.mark.parametrize("job", ["apart", "pooled"])
def test_b98_processes_that_hear_it_too_finish(terminal: Terminal, job: str):
    """A terminal tells the whole group, a service manager all of a service; the host drains, and needs them."""
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        run_id, pid = started(terminal, job, 1.5)
        assert pid != host.pid
        os.kill(pid, signal.SIGHUP)
        host.signal(signal.SIGHUP)
        assert host.end() == 0
    assert "SUCCEEDED" in status(terminal, run_id)
    assert gone_within(pid, 5)


def test_b98_a_closed_terminal_drains_dev(terminal: Terminal):
    """Its broker is there until the run has been saved."""
    del terminal.env["NATS_URL"]
    dev = Pty(terminal, "dev", "app")
    try:
        dev.wait_for("host_started")
        terminal.env |= address_in(dev.said)
        run_id, pid = started(terminal, "nap", 2)
        dev.hang_up()
        assert dev.process.wait(20) == 0
    finally:
        dev.close()
    assert gone_within(pid, 5)
    with terminal.start("dev", "app") as again:
        again.wait_for("host_started")
        terminal.env |= address_in(again.said)
        assert "SUCCEEDED" in status(terminal, run_id)
        again.signal(signal.SIGTERM)
        assert again.end() == 0
