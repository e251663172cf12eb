"""Many hosts in a few processes: what they do to a broker when they come, and when they come back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.faults.rig import SOURCE, Journal, eventually

PROGRAM = Path(__file__).parent / "programs" / "many.py"


class Crowd:
    """`processes` times `hosts` hosts with the same `jobs` jobs of the module `many`."""

    def __init__(
        self,
        folder: Path,
        url: str,
        project: str,
        *,
        processes: int = 1,
        hosts: int = 1,
        jobs: int = 1,
        limit: int = 2,
        every: str | None = None,
    ) -> None:
        self.size = processes * hosts
        self.journal = Journal(folder / "journal")
        self.log_path = folder / "crowd.log"
        self._folder = folder
        self._starting = folder / "starting"
        folder.mkdir(exist_ok=True)
        self._processes = processes
        self._env: Mapping[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("JETJOBS_", "NATS_"))},
            "PYTHONPATH": str(SOURCE),
            "PROJECT": project,
            "SERVER": url,
            "JOURNAL": str(self.journal.path),
            "HOSTS": str(hosts),
            "JOBS": str(jobs),
            "LIMIT": str(limit),
            "STARTED": str(self._starting),
            **({} if every is None else {"EVERY": every}),
        }
        self.started: list[subprocess.Popen[bytes]] = []

    async def start(self, within: float = 60) -> None:
        """All of them begin in the same moment, when all programs have been loaded."""
        self._spawn()
        await eventually(lambda: len(self.journal.lines("loaded")) == self._processes, 60, "every program's loading")
        self._starting.touch()
        await eventually(lambda: len(self.journal.lines("up")) == self.size, within, "every host's start")

    def _spawn(self) -> None:
        with self.log_path.open("wb") as out:
            for _ in range(self._processes):
                command = [sys.executable, str(PROGRAM)]
                self.started.append(subprocess.Popen(command, cwd=self._folder, env=self._env, stdout=out, stderr=out))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.started]

    @property
    def errors(self) -> list[str]:
        return [line.error for line in self.journal.lines("up") if line.error is not None]

    def close(self) -> None:
        for process in self.started:
            process.terminate()
        for process in self.started:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
