"""What a host writes for machines, and what becomes of a reader that leaves."""

import contextlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import APP, Terminal, command

pytestmark = pytest.mark.integration


@pytest.fixture
def terminal(tmp_path: Path, nats_url: str, project: str) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, nats=nats_url, project=project)


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
