"""Somebody who does what a page says, in a folder and shell of their own."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.docs.pages import Block, Command, pattern

_PATIENCE = 50.0
_EXPORT = re.compile(r"^export ((?:[A-Z_]+=\S+ ?)+)")


class Reader:
    """Does blocks one after the other; `end` stops what still runs."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        scripts = str(Path(sys.executable).parent)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("NATS_", "JETJOBS_"))},
            "PATH": f"{scripts}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def do(self, block: Block) -> None:
        """Do one block.

        Raises:
            AssertionError: it fails, or prints something else.
        """
        match block.kind:
            case "file" | "add":
                self._write(block)
            case "script":
                self._run(block.place, [sys.executable, "-c", block.text], "")
            case "commands":
                for command in block.commands:
                    self._command(block.place, command)
            case "background":
                for command in block.commands:
                    self._start(block.place, command)
            case "left":
                assert block.name, f"{block.place}: say why it is not run"

    def end(self) -> None:
        """End what still runs, as Ctrl-C would."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
        for process in self._running:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _write(self, block: Block) -> None:
        path = self._folder / block.name
        path.parent.mkdir(parents=True, exist_ok=True)
        before = f"{path.read_text(encoding='utf-8')}\n\n" if block.kind == "add" else ""
        path.write_text(before + block.text, encoding="utf-8")
        if path.suffix == ".py":
            compile(block.text, block.place, "exec")

    def _command(self, place: str, command: Command) -> None:
        exported = _EXPORT.match(command.line)
        if exported is None:
            self._run(place, ["bash", "-c", command.line], command.output)
        elif not self._running:  # with a broker of the page's own, its address is known from what it printed
            self._export(exported[1])

    def _run(self, place: str, command: list[str], expected: str) -> None:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # in one stream, as a terminal shows them
            timeout=_PATIENCE * 2,
            check=False,
        )
        printed = done.stdout.decode()
        whole = f"{place}: {command[-1]}\n{printed}"
        assert done.returncode == 0, f"exit {done.returncode}: {whole}"
        assert not expected or pattern(expected).search(printed), f"expected:\n{expected}\nin {whole}"

    def _start(self, place: str, command: Command) -> None:
        if command.line.startswith("jetjobs dev"):  # it brings a broker: whoever reads on has set nothing yet
            self._environment = {k: v for k, v in self._environment.items() if k not in {"NATS_URL", "JETJOBS_PROJECT"}}
        printed_to = self._folder / f".printed-{len(self._running)}"
        with printed_to.open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command.line}"],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._running.append(process)
        wanted = pattern(command.output)
        deadline = time.monotonic() + _PATIENCE
        while not wanted.search(printed := printed_to.read_text(encoding="utf-8")):
            assert process.poll() is None, f"{place}: {command.line} ended:\n{printed}"
            assert time.monotonic() < deadline, f"{place}: {command.line} printed only:\n{printed}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        for line in printed.splitlines():
            self._export(line.partition("export ")[2])

    def _export(self, text: str) -> None:
        for part in shlex.split(text):
            name, _, value = part.partition("=")
            self._environment[name] = value
