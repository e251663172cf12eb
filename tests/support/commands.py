"""The command line as its users run it: processes of their own."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

APP = '''
import asyncio
import threading
from pathlib import Path
from typing import Self

from jetjobs import JobContext, Module

shop = Module("shop")


@shop.job(timeout="30s", max_concurrency=4)
async def mail(ctx: JobContext, payload: dict) -> dict:
    """Send a mail."""
    ctx.log("sending", to=payload.get("to"))
    return {"sent": payload}


@shop.job(timeout="30s", max_concurrency=4)
def boom(ctx: JobContext) -> None:
    raise ValueError("no way")


@shop.job(timeout="300s", max_attempts=3, max_concurrency=4)
async def slow(ctx: JobContext, payload: float) -> str:
    Path("slow-started").touch()
    print("slow started", flush=True)
    await asyncio.sleep(payload)
    print("slow ended", flush=True)
    return "slept"
'''


@dataclass(frozen=True)
class Done:
    """A command that ended."""

    code: int
    out: str
    err: str
    took: float

    @property
    def in_time(self) -> bool:
        """Whether it took no longer than is promised, ten seconds, and as much again on a machine with other work."""
        return self.took < 20

    @property
    def last_line(self) -> str:
        return self.err.strip().splitlines()[-1]


class Terminal:
    """Runs commands in a folder of its own, with a broker and a project in the environment."""

    def __init__(self, folder: Path, *, nats: str | None = None, project: str | None = None) -> None:
        self.folder = folder
        self.env = clean_environment()
        if nats is not None:
            self.env["NATS_URL"] = nats
        if project is not None:
            self.env["JETJOBS_PROJECT"] = project

    def run(self, *args: str, stdin: str | None = None, env: Mapping[str, str] | None = None) -> Done:
        """Run `jetjobs …` to its end; one that goes on for a minute is broken."""
        started = time.monotonic()
        done = subprocess.run(
            command(args),
            cwd=self.folder,
            env={**self.env, **(env or {})},
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=60,
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - started)

    def start(self, *args: str) -> "Running":
        """Start `jetjobs …`, which goes on."""
        return Running(args, self)


class Running:
    """A command that goes on, and what it has said so far on stdout and stderr."""

    def __init__(self, args: Sequence[str], terminal: Terminal, *, before: Sequence[str] = ()) -> None:
        self._said = ""
        self._changed = threading.Condition()
        self._process = subprocess.Popen(
            [*before, *command(args)],
            cwd=terminal.folder,
            env=terminal.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(5)
        assert self._process.stdout is not None
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        with self._changed:
            return self._said

    def wait_for(self, text: str, *, times: int = 1, within: float = 45) -> str:
        """What was said once the text has come so often."""
        with self._changed:
            came = self._changed.wait_for(lambda: self._said.count(text) >= times, within)
            assert came, f"{text!r} did not come {times} times within {within} s, but:\n{self._said}"
            return self._said

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self, *, within: float = 45) -> int:
        """The exit code."""
        code = self._process.wait(within)
        self._reader.join(5)
        return code

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self._said += line
                self._changed.notify_all()


def command(args: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "jetjobs", *args]


def clean_environment() -> dict[str, str]:
    """This process's environment without what says where a broker is or how a host behaves."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("NATS_", "JETJOBS_"))}
    return {**kept, "PYTHONUNBUFFERED": "1"}
