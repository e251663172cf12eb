"""An hour of mixed jobs without faults: `make soak MINUTES=60`.

Two host processes and a broker of their own, some 28 runs a second of every kind there is, records kept for two
minutes only. At the end: had every trigger one outcome, and did nothing grow? Growth is judged from ten minutes on.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.aio.msg import Msg

from jetjobs import JobClient
from jetjobs.embedded import EmbeddedServer
from tests.soak.flows import Flows
from tests.soak.gauges import Gauges, Sample, line, table, trends
from tests.soak.jobs import STARTS
from tests.soak.ledger import Ledger

PROJECT = "soak"
SETTINGS = {
    "JETJOBS_UPKEEP_EVERY": "15s",
    "JETJOBS_RETENTION_SKIPPED": "1m",
    "JETJOBS_RETENTION_FINISHED": "2m",
    "JETJOBS_RETENTION_KEYS": "3m",
    "JETJOBS_RETENTION_MIN_AGE": "30s",
    "JETJOBS_RETENTION_MAX_PER_JOB": "500",
}
JUDGED_FROM = 600.0  # seconds; before, what fills up is taken for growth
SETTLE = 150.0  # seconds for what was asked for last: delays, retries, runs of some seconds


def say(text: str) -> None:
    """A line for whoever watches."""
    print(text, flush=True)


class Soak:
    """One soak, from the start of its hosts to the verdict."""

    def __init__(self, server: EmbeddedServer, folder: Path, seconds: float) -> None:
        self.ledger = Ledger()
        self.samples: list[Sample] = []
        self.problems: list[str] = []
        self.began = time.monotonic()
        self._server = server
        self._folder = folder
        self._seconds = seconds
        self._starts = folder / "starts"
        self._starts.touch()
        self._hosts: list[subprocess.Popen[bytes]] = []

    async def run(self) -> int:
        """The exit code."""
        connection = await nats.connect(self._server.url)
        await connection.subscribe(f"jetjobs.{PROJECT}.events.>", cb=self._hear)
        try:
            await self._with_hosts(connection)
        finally:
            for host in self._hosts:
                host.kill()
                host.wait()
            await connection.close()
        return self._verdict()

    async def _hear(self, message: Msg) -> None:
        self.ledger.hear(message.subject)

    async def _with_hosts(self, connection: Client) -> None:
        await asyncio.to_thread(self._start_hosts)
        gauges = Gauges([host.pid for host in self._hosts], self._server.pid, self._server.data_dir, connection)
        async with JobClient(self._server.url, project=PROJECT) as client:
            await self._serving()
            flows = Flows(client, connection, self.ledger)
            self.began = time.monotonic()
            sampling = asyncio.create_task(self._sample(gauges))
            await flows.run(self._seconds)
            sampling.cancel()
            with suppress(asyncio.CancelledError):
                await sampling
            await self._settle(client)
        await self._stop_hosts()
        await connection.flush()
        self.problems += [*flows.errors, *await self._left_over(connection)]

    def _start_hosts(self) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith(("JETJOBS_", "NATS_"))}
        env |= {**SETTINGS, "NATS_URL": self._server.url, "JETJOBS_PROJECT": PROJECT, STARTS: str(self._starts)}
        for number in (1, 2):
            command = [sys.executable, "-m", "jetjobs", "run", "tests.soak.jobs:soak"]
            with (self._folder / f"host{number}.log").open("wb") as out:
                self._hosts.append(subprocess.Popen(command, env=env, stdout=out, stderr=out))

    async def _serving(self) -> None:
        """Return once both hosts take runs and hear events."""
        logs = list(self._folder.glob("host*.log"))
        await _until(lambda: all("host_started" in log.read_text() for log in logs), 60)

    async def _sample(self, gauges: Gauges) -> None:
        pause = min(30.0, self._seconds / 16)
        while True:
            self.samples.append(await gauges.sample())
            say(line(self.samples[-1], self.began))
            await asyncio.sleep(pause)

    async def _settle(self, client: JobClient) -> None:
        """Wait for the last ends. Announcements are at most once: one that isn't heard is read from its record."""
        with suppress(TimeoutError):
            await _until(lambda: not self.ledger.unheard, SETTLE)
        for job, run_id in self.ledger.unheard:
            record = await client.runs.get(run_id, module="soak", job=job)
            if record.status.is_terminal:
                self.ledger.ended[job, run_id].append(record.status.value)

    async def _stop_hosts(self) -> None:
        for number, host in enumerate(self._hosts, 1):
            if host.poll() is not None:
                self.problems.append(f"host {number} ended by itself, with {host.returncode}")
            else:
                host.terminate()
        codes = [await asyncio.to_thread(host.wait, 60) for host in self._hosts]
        if any(codes):
            self.problems.append(f"the hosts ended with {codes}, not with 0")

    async def _left_over(self, connection: Client) -> list[str]:
        """Triggers that still lie in the stream, ticks since the hosts' end aside."""
        info = await connection.jetstream().stream_info(f"JETJOBS_{PROJECT}", subjects_filter=f"jetjobs.{PROJECT}.>")
        subjects = info.state.subjects or {}
        return [f"{subject} is still in the stream" for subject in subjects if ".run." in subject]

    def _verdict(self) -> int:
        took = time.monotonic() - self.began
        self.problems += self.ledger.problems(self._starts.read_text().splitlines())
        found = trends(self.samples)
        judged = took >= JUDGED_FROM
        say(f"\n{table(found, judged=judged)}\n")
        if not judged:
            say("growth isn't judged: that takes ten minutes")
        else:
            self.problems += [f"{trend.name} rises" for trend in found if not trend.flat]
        ended = self.ledger.outcomes()
        say(f"{ended.total()} runs in {took / 60:.1f} minutes: " + ", ".join(f"{n} {s}" for s, n in ended.items()))
        for problem in self.problems[:40]:
            say(f"PROBLEM: {problem}")
        say(f"{len(self.problems)} problems" if self.problems else "every trigger had one outcome")
        return 1 if self.problems else 0


async def _until(condition: Callable[[], bool], within: float) -> None:
    async with asyncio.timeout(within):
        while True:
            if condition():
                return
            await asyncio.sleep(0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        server = EmbeddedServer(Path(name) / "broker")
        server.start_blocking()
        try:
            return asyncio.run(Soak(server, Path(name), given.minutes * 60).run())
        finally:
            server.stop_blocking()


if __name__ == "__main__":
    sys.exit(main())
