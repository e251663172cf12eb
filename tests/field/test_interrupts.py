"""Ctrl-C and SIGTERM, sent to real commands, some of them in a terminal: B98, B100, B131, B133."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.commands import APP, Terminal
from tests.support.processes import gone_within
from tests.support.ptys import CTRL_C, Pty

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="no pty, no SIGTERM"),
]


@pytest.fixture
def terminal(tmp_path: Path, nats_url: str, project: str) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, nats=nats_url, project=project)


def test_b100_one_ctrl_c_drains_and_is_130(terminal: Terminal):
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        run_id = terminal.run("trigger", "shop.slow", "1.5").out.strip()
        host.wait_for("slow started")
        host.signal(signal.SIGINT)
        assert host.end() == 130
        assert "slow ended" in host.said
    assert "SUCCEEDED" in terminal.run("runs", "show", run_id).out


def test_b98_sigterm_is_0(terminal: Terminal):
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        host.signal(signal.SIGTERM)
        assert host.end() == 0


def test_b100_a_second_ctrl_c_ends_at_once_and_the_run_is_not_stuck(terminal: Terminal):
    host = Pty(terminal, "run", "app")
    try:
        host.wait_for("host_started")
        run_id = terminal.run("trigger", "shop.slow", "200").out.strip()
        host.wait_for("slow started")
        host.press(CTRL_C)
        host.wait_for("host_draining")
        host.press(CTRL_C)
        assert host.end(within=15) == 130
        assert "Traceback" not in host.said
    finally:
        host.close()
    # Attempts are left, so the next host that asks in vain for the old one may go on with it.
    assert '"status": "RUNNING"' in terminal.run("runs", "show", run_id, "--json").out
    assert terminal.run("runs", "cancel", run_id).code == 0


def test_b131_ctrl_c_while_waiting_for_a_run_no_host_takes(terminal: Terminal):
    assert terminal.run("init", "app").code == 0
    with terminal.start("trigger", "shop.mail", "{}", "--wait") as waiting:
        waiting.wait_for("waiting for its end")
        waiting.signal(signal.SIGINT)
        assert waiting.end() == 130
        assert "Traceback" not in waiting.said


def test_b133_a_loop_without_add_signal_handler_starts_and_drains(terminal: Terminal):
    """As on Windows."""
    (terminal.folder / "sitecustomize.py").write_text(
        "import asyncio\n\n\ndef refuse(*args, **kwargs):\n    raise NotImplementedError\n\n\n"
        "asyncio.SelectorEventLoop.add_signal_handler = refuse\n"
    )
    terminal.env["PYTHONPATH"] = os.pathsep.join([str(terminal.folder), terminal.env.get("PYTHONPATH", "")])
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        host.signal(signal.SIGINT)
        assert host.end() == 130
        assert "host_draining" in host.said
        assert "NotImplementedError" not in host.said


class TestDev:
    def test_b100_a_second_ctrl_c_ends_it_at_once(self, terminal: Terminal):
        del terminal.env["NATS_URL"], terminal.env["JETJOBS_PROJECT"]
        dev = Pty(terminal, "dev", "app")
        try:
            dev.wait_for("host_started")
            terminal.env |= address_in(dev.said)
            host = host_pid(terminal)
            assert terminal.run("trigger", "shop.slow", "200").code == 0
            dev.wait_for("slow started")
            dev.press(CTRL_C)
            dev.wait_for("host_draining")
            dev.press(CTRL_C)
            assert dev.end(within=15) == 130
            assert "Traceback" not in dev.said
        finally:
            dev.close()
        assert gone_within(host, 20)

    def test_b100_killed_it_leaves_no_orphan(self, terminal: Terminal):
        with terminal.start("dev", "app") as dev:
            dev.wait_for("host_started")
            terminal.env |= address_in(dev.said)
            host = host_pid(terminal)
            server = server_pid(terminal.folder)
            dev.signal(signal.SIGKILL)
            dev.end()
            assert gone_within(server, 20)
            assert gone_within(host, 40)


def address_in(said: str) -> dict[str, str]:
    """The variables that dev tells to export."""
    line = next(line for line in said.splitlines() if "export " in line)
    return dict(pair.split("=", 1) for pair in line.partition("export ")[2].split())


def host_pid(terminal: Terminal) -> int:
    (host,) = json.loads(terminal.run("hosts", "list", "--json").out)["hosts"]
    return host["pid"]


def server_pid(folder: Path) -> int:
    (ports,) = (folder / ".jetjobs").glob("*.ports")
    return int(ports.stem.rpartition("_")[2])
