"""`jetjobs dev`: a broker and a host in one terminal, the host started anew whenever the code changes.

::

    dev ──── nats-server (ends with dev, see `_nats/supervisor.py`)
      └───── jetjobs run (a process of its own; drains when the pipe to its stdin closes)

The pipe is the only word between the two: a reload and Ctrl-C close it, and so does the kernel when this process
is killed. The child has a session of its own, so that a terminal's Ctrl-C reaches it through us, once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from jetjobs._core.connect_options import VARIABLES
from jetjobs._engine.signals import hang_ups
from jetjobs.cli.failures import ExitCode
from jetjobs.cli.logs import configure_logs
from jetjobs.cli.options import Parser, add_project, data_folder
from jetjobs.cli.run import add_host_options
from jetjobs.cli.sources import changed, look, project_files
from jetjobs.config import resolve_host_settings, resolve_project, surroundings
from jetjobs.embedded import EmbeddedServer

DATA = ".jetjobs"
PROJECT = "dev"
_LOOK_EVERY = 0.3
_OVER_DRAIN = 15.0  # interrupting handlers and saving their outcomes comes after the drain


def add_dev(parser: Parser) -> None:
    """The options of `dev`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="pkg.mod or pkg.mod:attr, as for run")
    add_project(parser)
    add_host_options(parser)
    parser.add_argument("--port", type=int, metavar="PORT", help="port of the broker (default: a free one)")
    parser.add_argument("--data", default=DATA, metavar="FOLDER", help=f"where the broker keeps its data ({DATA})")
    parser.set_defaults(command=dev)


def dev(args: argparse.Namespace) -> int:
    """Serve and reload until Ctrl-C."""
    configure_logs(level=logging.DEBUG if args.debug else logging.WARNING)
    around = surroundings()
    named = args.project or around.environ.get("JETJOBS_PROJECT") or around.file.get("project") or PROJECT
    project = resolve_project(named, around)
    interrupts = Interrupts()
    server = EmbeddedServer(data_folder(args.data), port=args.port)
    server.start_blocking()
    try:
        _say(f"{project} @ {server.url}, data in {args.data}; Ctrl-C ends it")
        _say(f"from another terminal: {to_set(NATS_URL=server.url, JETJOBS_PROJECT=project)}")
        child = HostProcess(
            _child_command(args),
            environment(server.url, project),
            report=Path(server.data_dir, "dev-files.json"),
            paths=args.paths,
        )
        return Reloading(child, interrupts).serve()
    finally:
        server.stop_blocking()


def _child_command(args: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "jetjobs", "run", *args.paths]
    command += ["--debug"] if args.debug else []
    command += ["--version", args.version] if args.version else []
    command += [f"--disable={pattern}" for pattern in args.disable]
    command += ["--no-schedules"] if args.no_schedules else []
    command += ["--json-logs"] if args.json_logs else []
    return command


def to_set(*, windows: bool = os.name == "nt", **variables: str) -> str:
    """What to type into another terminal, for the shell that is usual here.

    >>> to_set(windows=True, JETJOBS_PROJECT="dev")
    '$env:JETJOBS_PROJECT="dev"'
    """
    if windows:
        return "; ".join(f'$env:{name}="{value}"' for name, value in variables.items())
    return f"export {' '.join(f'{name}={value}' for name, value in variables.items())}"


def environment(url: str, project: str) -> dict[str, str]:
    """This process's environment, pointed at the embedded broker: clients in the user's code find it too."""
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    # Compiled files are told apart by whole seconds and size: one written twice in a second would be stale.
    fresh = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    return {**kept, **fresh, "NATS_URL": url, "JETJOBS_PROJECT": project}


class Interrupts:
    """Counts the signals that ask for the end. Its handlers do nothing else, so none hits a bad moment.

    A closed terminal asks for it too, once: as for `run`, its hang-up is never the second signal.
    """

    def __init__(self) -> None:
        self.heard: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _frame: self.heard.append(number))
        for number in hang_ups():
            signal.signal(number, self._hung_up)

    def _hung_up(self, number: int, _frame: object) -> None:
        if not self.heard:
            self.heard.append(number)

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, 0 after SIGTERM and a hang-up, as `run` does it."""
        return ExitCode.INTERRUPTED if signal.SIGINT in self.heard else ExitCode.OK


class HostProcess:
    """The child: `jetjobs run`, with what it says it has loaded."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], *, report: Path, paths: Sequence[str]
    ) -> None:
        self._command = [*command, "--dev-files", str(report)]
        self._environment = environment
        self._report = report
        self._paths = tuple(paths)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it; what it has loaded is known once `files` changes."""
        self._report.unlink(missing_ok=True)
        self._process = subprocess.Popen(  # noqa: S603 - our own command, a list, no shell
            self._command,
            stdin=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )

    def files(self) -> list[str]:
        """The project's files it has imported; before it says so, those its paths name."""
        try:
            found: list[str] = json.loads(self._report.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # not written yet, or half
            return project_files(self._paths)
        return found

    @property
    def loaded(self) -> bool:
        """Whether it has said what it imported."""
        return self._report.exists()

    @property
    def running(self) -> bool:
        """Whether it hasn't ended."""
        return self._process is not None and self._process.poll() is None

    def ask_to_end(self) -> None:
        """Tell it to drain. Idempotent."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """End it now."""
        if self._process is not None:
            self.ask_to_end()
            self._process.kill()
            self._process.wait()


class Reloading:
    """Keeps the child running on the newest code."""

    def __init__(self, child: HostProcess, interrupts: Interrupts) -> None:
        self._child = child
        self._interrupts = interrupts
        settings = resolve_host_settings()
        self._patience = (settings.drain + settings.interrupt_grace).total_seconds() + _OVER_DRAIN

    def serve(self) -> int:
        """Until a signal; returns the exit code."""
        try:
            while not self._interrupts.heard:
                self._child.start()
                if different := self._until_change():
                    _say(f"{_named(different)} changed: reloading")
                self._drain()
        finally:
            self._child.kill()
        return self._interrupts.exit_code

    def _until_change(self) -> list[str]:
        """Wait for a change of the code, whether the child runs or has ended; nothing when a signal came first."""
        seen = look(self._child.files())
        told, known = False, False
        while not self._interrupts.heard:
            time.sleep(_LOOK_EVERY)
            if not known and self._child.loaded:
                # What was looked at before stays as it was then: a change in the meantime counts.
                known, seen = True, {**look(self._child.files()), **seen}
            if not told and not self._child.running:
                told = True
                _say("the host has ended; waiting for a change of the code")
            different = changed(seen, look(seen))
            if different:
                return different
        return []

    def _drain(self) -> None:
        """End the child: its running handlers may finish, unless there is a second signal."""
        if self._child.running and self._interrupts.heard:
            _say("draining; Ctrl-C again ends it at once")
        self._child.ask_to_end()
        deadline = time.monotonic() + self._patience
        while self._child.running and time.monotonic() < deadline:
            if len(self._interrupts.heard) > 1:  # both may have come before this began
                break
            time.sleep(0.05)
        self._child.kill()


def _named(files: Sequence[str]) -> str:
    """Which files those are, in one line: a `git checkout` changes hundreds."""
    first = os.path.relpath(files[0]) if Path(files[0]).is_relative_to(Path.cwd()) else files[0]
    return first if len(files) == 1 else f"{first} and {len(files) - 1} more"


def _say(text: str) -> None:
    with suppress(OSError):  # a closed terminal: the drain goes on without being told of
        print(f"jetjobs dev: {text}", file=sys.stderr, flush=True)
