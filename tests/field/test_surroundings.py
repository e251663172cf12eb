"""A host where little is as on a developer's machine: B133's neighbours on a Unix. It starts, runs a job and drains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from jetjobs import JobClient
from jetjobs.errors import JetJobsError
from tests.faults.rig import eventually
from tests.support.commands import Terminal, command

pytestmark = [pytest.mark.faults, pytest.mark.skipif(sys.platform != "linux", reason="shells, limits and namespaces")]

APP = """
from jetjobs import JobContext, Module

shop = Module("shop")


@shop.job(timeout="20s")
async def plain(ctx: JobContext) -> str:
    ctx.log("Grüße, 日本")
    return "Grüße"


@shop.job(timeout="20s", isolation="process")
def apart(ctx: JobContext) -> str:
    return "日本"
"""
SHELL = ("bash", "-c")


def limited(what: str) -> Sequence[str]:
    return (*SHELL, f'{what}; exec "$@"', "host")


class Case:
    """How the host is started."""

    def __init__(
        self,
        *before: str,
        python: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        without: Sequence[str] = (),
        folder: str | None = None,
    ) -> None:
        self.before = before
        self.python = python
        self.env = env or {}
        self.without = without
        self.folder = folder


CASES = {
    "asserts are off": Case(python=["-OO"]),
    "warnings are errors": Case(python=["-W", "error"]),
    "ascii only": Case(env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}),
    "few descriptors": Case(*limited("ulimit -n 64")),
    "small stacks": Case(*limited("ulimit -s 256")),
    "no file may be read back": Case(*limited("umask 777")),
    "a folder nobody can write": Case(folder="/proc/sys"),
    "no home, no path, no temporary folder": Case(env={"TMPDIR": "/nonexistent"}, without=["HOME", "PATH", "LANG"]),
    "nohup": Case("nohup"),
}


def started(terminal: Terminal, case: Case) -> subprocess.Popen[bytes]:
    env = {name: value for name, value in {**terminal.env, **case.env}.items() if name not in case.without}
    env["PYTHONPATH"] = os.pathsep.join([str(terminal.folder), terminal.env.get("PYTHONPATH", "")])
    line = [*case.before, sys.executable, *case.python, "-m", "jetjobs", "run", "app"]
    folder = case.folder or terminal.folder
    nothing, one = subprocess.DEVNULL, subprocess.STDOUT
    return subprocess.Popen(line, cwd=folder, env=env, stdin=nothing, stdout=subprocess.PIPE, stderr=one)


async def serve(terminal: Terminal, case: Case) -> tuple[int, str]:
    """Start the host, run a job of each kind, stop it; its exit code and what it said."""
    host = started(terminal, case)
    said = bytearray()
    assert host.stdout is not None
    reader = threading.Thread(target=lambda: [said.extend(line) for line in host.stdout or ()], daemon=True)
    reader.start()
    try:
        await eventually(lambda: b"host_started" in said, what=f"its start, but {said.decode(errors='replace')}")
        for job in ("shop.plain", "shop.apart"):
            done = terminal.run("trigger", job, "--wait")
            assert done.out.startswith("SUCCEEDED"), done.out + done.err
        host.send_signal(signal.SIGTERM)
        code = host.wait(15)
    finally:
        host.kill()
        host.wait()
        reader.join(5)
        host.stdout.close()
    return code, said.decode(errors="replace")


@pytest.mark.parametrize("name", CASES)
async def test_b133_a_host_in_odd_surroundings(tmp_path: Path, nats_url: str, project: str, name: str) -> None:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    code, said = await serve(Terminal(tmp_path, nats=nats_url, project=project), CASES[name])
    assert code == 0, said
    assert "Traceback" not in said
    assert "host_draining" in said


TALKS = """
import subprocess

from jetjobs import JobContext, Module

shop = Module("shop")


@shop.job(timeout="20s")
def talks(ctx: JobContext) -> str:
    print("printed", flush=True)
    subprocess.run(["sh", "-c", "echo said; echo said >&2; cat"], check=True)
    return "talked"


@shop.job(timeout="20s", isolation="process")
def apart(ctx: JobContext) -> str:
    print("printed", flush=True)
    return "talked"
"""


def silent(terminal: Terminal, line: Sequence[str]) -> subprocess.Popen[bytes]:
    nothing = subprocess.DEVNULL
    return subprocess.Popen(line, cwd=terminal.folder, env=terminal.env, stdin=nothing, stdout=nothing)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
async def test_b133_a_host_whose_standard_streams_are_closed(
    tmp_path: Path, nats_url: str, project: str, closed: str
) -> None:
    """As some supervisors start programs. What it or its handlers say goes nowhere, least of all to the broker."""
    (tmp_path / "app.py").write_text(TALKS)
    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    line = [*SHELL, f'exec "$@" {closed}', "host", *command(["run", "app"])]
    host = silent(terminal, line)
    try:
        async with JobClient(nats_url, project=project) as client:

            async def serves() -> bool:
                assert host.poll() is None, "it ended"
                try:
                    return bool(await client.hosts.list())
                except JetJobsError:
                    return False

            await eventually(serves, 20)
            for job in ("talks", "apart", "talks"):
                run = await client.get_job("shop", job).trigger()
                assert (await run.wait(10)).result == "talked"
        host.send_signal(signal.SIGTERM)
        assert host.wait(15) == 0
    finally:
        host.kill()
        host.wait()


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_b133_a_command_whose_standard_streams_are_closed(
    tmp_path: Path, nats_url: str, project: str, closed: str
) -> None:
    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    (tmp_path / "app.py").write_text(TALKS)
    for args, code in ((["init", "app"], 0), (["runs", "list"], 0), (["runs", "show", "no-such-run"], 4)):
        line = [*SHELL, f'exec "$@" {closed}', "host", *command(args)]
        done = subprocess.run(line, cwd=tmp_path, env=terminal.env, timeout=30, check=False, capture_output=True)
        assert done.returncode == code, done


def test_b133_a_descriptor_that_a_closed_stream_had_is_left_to_who_has_it_now(tmp_path: Path) -> None:
    """A program that starts the command itself may have opened a file or a socket before."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os\n"
        "from jetjobs.cli.entry import main\n"
        "mine = os.open('mine', os.O_WRONLY | os.O_CREAT)\n"
        "assert mine == 1\n"
        "try:\n"
        "    main(['--version'])\n"
        "except SystemExit:\n"
        "    os.write(mine, b'mine')\n"
    )
    line = [*SHELL, 'exec "$@" >&-', "program", sys.executable, str(program)]
    subprocess.run(line, cwd=tmp_path, timeout=30, check=True)
    assert (tmp_path / "mine").read_text() == "mine"
