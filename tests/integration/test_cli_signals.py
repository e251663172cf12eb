"""Ctrl-C and SIGTERM, sent to real processes, one of them in a terminal."""

import contextlib
import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import APP, Terminal, command
from tests.support.processes import gone_within

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="no pty, no SIGTERM"),
]

# Makes the pty on stdin the controlling terminal, so that its Ctrl-C becomes SIGINT, then becomes the command.
IN_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
CTRL_C = b"\x03"


@pytest.fixture
def terminal(tmp_path: Path, nats_url: str, project: str) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, nats=nats_url, project=project)


class Pty:
    """A command in a terminal of its own."""

    def __init__(self, terminal: Terminal, *args: str) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-c", IN_TERMINAL, *command(args)],
            cwd=terminal.folder,
            env=terminal.env,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self.said = ""

    def press(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, text: str, within: float = 20) -> None:
        deadline = time.monotonic() + within
        while text not in self.said:
            assert self._read(deadline - time.monotonic()), f"{text!r} did not come, but:\n{self.said}"

    def end(self, within: float) -> int:
        deadline = time.monotonic() + within
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(0.1, deadline - time.monotonic()))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)

    def _read(self, within: float) -> bool:
        if not select.select([self._master], [], [], max(0.0, within))[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Linux's way to say that nobody has the other end open
            return False
        self.said += data.decode(errors="replace")
        return bool(data)


def test_one_ctrl_c_drains_and_is_130(terminal: Terminal):
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        run_id = terminal.run("trigger", "shop.slow", "1.5").out.strip()
        host.wait_for("slow started")
        host.signal(signal.SIGINT)
        assert host.end() == 130
        assert "slow ended" in host.said
    assert "SUCCEEDED" in terminal.run("runs", "show", run_id).out


def test_sigterm_is_0(terminal: Terminal):
    with terminal.start("run", "app") as host:
        host.wait_for("host_started")
        host.signal(signal.SIGTERM)
        assert host.end() == 0


def test_a_second_ctrl_c_ends_at_once_and_the_run_is_not_stuck(terminal: Terminal):
    host = Pty(terminal, "run", "app")
    try:
        host.wait_for("host_started")
        run_id = terminal.run("trigger", "shop.slow", "200").out.strip()
        host.wait_for("slow started")
        host.press(CTRL_C)
        host.wait_for("host_draining")
        host.press(CTRL_C)
        assert host.end(within=2) == 130
        assert "Traceback" not in host.said
    finally:
        host.close()
    # Attempts are left, so the next host that asks in vain for the old one may go on with it.
    assert '"status": "RUNNING"' in terminal.run("runs", "show", run_id, "--json").out
    assert terminal.run("runs", "cancel", run_id).code == 0


def test_ctrl_c_while_waiting_for_a_run_no_host_takes(terminal: Terminal):
    assert terminal.run("init", "app").code == 0
    with terminal.start("trigger", "shop.mail", "{}", "--wait") as waiting:
        waiting.wait_for("waiting for its end")
        waiting.signal(signal.SIGINT)
        assert waiting.end(within=5) == 130
        assert "Traceback" not in waiting.said


def test_a_loop_without_add_signal_handler_starts_and_drains(terminal: Terminal):
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


def test_json_logs_are_json_lines(terminal: Terminal):
    with terminal.start("run", "app", "--json-logs") as host:
        host.wait_for("host_started")
        host.signal(signal.SIGTERM)
        host.end()
        lines = [json.loads(line) for line in host.said.splitlines()]
    assert lines[0]["event"] == "host_started"
    assert all("timestamp" in line for line in lines)


def test_a_pipe_closed_early_is_no_traceback(terminal: Terminal):
    assert terminal.run("init", "app").code == 0
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command(["jobs", "list"]),
            cwd=terminal.folder,
            env=terminal.env,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=20,
            check=False,
        )
    finally:
        with contextlib.suppress(OSError):
            os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 1


class TestDev:
    def test_a_second_ctrl_c_ends_it_within_two_seconds(self, terminal: Terminal):
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
            assert dev.end(within=2) == 130
            assert "Traceback" not in dev.said
        finally:
            dev.close()
        assert gone_within(host, 2)

    def test_killed_it_leaves_no_orphan(self, terminal: Terminal):
        with terminal.start("dev", "app") as dev:
            dev.wait_for("host_started")
            terminal.env |= address_in(dev.said)
            host = host_pid(terminal)
            server = server_pid(terminal.folder)
            dev.signal(signal.SIGKILL)
            dev.end()
            assert gone_within(server, 10)
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
