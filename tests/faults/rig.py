"""Host processes to kill, freeze and stop, and the journal in which their handlers tell what they did.

Starts are counted here and never from the run's record: the record is what is under test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from jetjobs._core.models import RunRecord
from jetjobs.client import JobClient
from jetjobs.errors import JetJobsError
from tests.support.processes import freeze
from tests.support.waiting import PATIENCE, eventually

T = TypeVar("T")

PROGRAM = Path(__file__).parent / "programs" / "serve.py"
SOURCE = Path(__file__).parents[2] / "src"

ACK_WAIT = 2.0
SETTINGS: Mapping[str, str] = {
    "JETJOBS_ACK_WAIT": f"{ACK_WAIT}",
    "JETJOBS_HEARTBEAT_EVERY": "500ms",
    "JETJOBS_LOST_AFTER": "3s",
    "JETJOBS_UPKEEP_EVERY": "1s",
    "JETJOBS_DRAIN": "1s",
    "JETJOBS_INTERRUPT_GRACE": "500ms",
    "JETJOBS_COMPLETION_ERROR_AFTER": "1s",
}


@dataclass(frozen=True)
class Line:
    """One line of the journal; `at` is the machine's monotonic time."""

    what: str
    pid: int
    at: float
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def __getattr__(self, name: str) -> Any:
        try:
            return self.more[name]
        except KeyError:
            raise AttributeError(name) from None


class Journal:
    """The file all host processes of one test append to."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self, what: str | None = None, run: str | None = None, job: str | None = None) -> list[Line]:
        if not self.path.exists():
            return []
        found: list[Line] = []
        *whole, _being_written = self.path.read_text().split("\n")
        for text in whole:
            entry = json.loads(text)
            line = Line(entry.pop("what"), entry.pop("pid"), entry.pop("at"), entry)
            if (
                (what is None or line.what == what)
                and (run is None or line.more.get("run") == run)
                and (job is None or line.more.get("job") == job)
            ):
                found.append(line)
        return found

    def starts(self, run: str | None = None, job: str | None = None) -> list[Line]:
        return self.lines("start", run, job)

    def ends(self, run: str | None = None, job: str | None = None) -> list[Line]:
        """One line for each start that has ended: an interrupted writer writes its line again."""
        ends = {line.start: line for line in reversed(self.lines("end", run, job))}
        return list(reversed(ends.values()))

    async def started(
        self, run: str | None = None, times: int = 1, within: float = PATIENCE, job: str | None = None
    ) -> Line:
        """The line of the start with that number, once it is there."""
        found = await eventually(
            lambda: len(lines := self.starts(run, job)) >= times and lines, within, f"start {times} of {run or job}"
        )
        return found[times - 1]

    async def ended(self, run: str, times: int = 1, within: float = PATIENCE) -> Line:
        found = await eventually(lambda: len(lines := self.ends(run)) >= times and lines, within, f"end of {run}")
        return found[times - 1]

    async def health(self) -> Line:
        """The first answer to `HostProcess.ask_health`."""
        return (await eventually(lambda: self.lines("health"), what="the host's health"))[0]

    def most_live(self, job: str | None = None, run: str | None = None, died: Mapping[int, float] | None = None) -> int:
        """How many handlers of a job, or of one run, were ever live at once; `died` is when a process was killed."""
        over = {line.start: line.at for line in self.ends(run, job)}
        changes: list[tuple[float, int]] = []
        for line in self.starts(run, job):
            changes.append((line.at, 1))
            end = over.get(line.start, (died or {}).get(line.pid))
            if end is not None:
                changes.append((end, -1))
        live = most = 0
        for _, change in sorted(changes):
            live += change
            most = max(most, live)
        return most


class HostProcess:
    """One host in a process of its own."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process
        self.log_path = log

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def events(self, name: str) -> list[dict[str, Any]]:
        """The log's entries of one event."""
        found: list[dict[str, Any]] = []
        *whole, _being_written = self.log.split("\n")
        for line in whole:
            if line.startswith("{") and name in line:
                entry = json.loads(line)
                if entry.get("event") == name:
                    found.append(entry)
        return found

    async def ready(self, within: float = PATIENCE) -> HostProcess:
        """Return once it takes deliveries."""

        def there() -> bool:
            assert self.process.poll() is None, f"the host ended: {self.log[-3000:]}"
            return bool(self.events("host_started"))

        await eventually(there, within, "the host's start")
        return self

    def kill9(self) -> float:
        """When it died."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait()
        return time.monotonic()

    def sigterm(self) -> float:
        at = time.monotonic()
        os.kill(self.pid, signal.SIGTERM)
        return at

    def freeze(self) -> None:
        freeze(self.pid)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def ask_health(self) -> None:
        os.kill(self.pid, signal.SIGUSR1)

    async def exit_code(self, within: float = PATIENCE) -> int:
        code = await eventually(lambda: (self.process.poll() is not None) and [self.process.returncode], within, "exit")
        return code[0]

    def remove(self) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Rig:
    """Hosts, journal and a client of one project."""

    def __init__(self, folder: Path, url: str, project: str) -> None:
        self.folder = folder
        self.url = url
        self.project = project
        self.journal = Journal(folder / "journal")
        self.hosts: list[HostProcess] = []
        self.log_to: int | None = None  # a descriptor instead of a file of each host's own
        self._client: JobClient | None = None

    def spawn(self, *modules: str, server: str | None = None, **settings: str) -> HostProcess:
        """A new host process; settings as in `DRAIN="5s"`."""
        log = self.folder / f"host{len(self.hosts)}.log"
        env = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("JETJOBS_", "NATS_"))},
            **SETTINGS,
            "PYTHONPATH": str(SOURCE),
            "PROJECT": self.project,
            "SERVER": server or self.url,
            "JOURNAL": str(self.journal.path),
            **{f"JETJOBS_{name}": value for name, value in settings.items()},
        }
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", str(PROGRAM), *(modules or ("basic",))],
                cwd=self.folder,
                env=env,
                stdout=out if self.log_to is None else self.log_to,
                stderr=out if self.log_to is None else self.log_to,
            )
        host = HostProcess(process, log)
        self.hosts.append(host)
        return host

    async def host(self, *modules: str, server: str | None = None, **settings: str) -> HostProcess:
        """A new host process that serves."""
        return await self.spawn(*modules, server=server, **settings).ready()

    async def client(self) -> JobClient:
        """One client for the whole test, over a connection of its own."""
        if self._client is None:
            self._client = JobClient({"servers": self.url, "reconnect_time_wait": 0.1}, project=self.project)
            await self._client.connect()
        return self._client

    async def trigger(self, job: str, payload: Any = None, **options: Any) -> str:
        """A new run's id; `job` is of the module `basic` unless it has a dot."""
        client = await self.client()
        run = await client.get_job(self._full(job)).trigger(payload, **options)
        return run.run_id

    async def trigger_first(self, job: str, payload: Any = None, **options: Any) -> str:
        """The same before any host runs: the project is prepared by one that ends at once."""
        host = await self.host()
        host.sigterm()
        await host.exit_code()
        return await self.trigger(job, payload, **options)

    async def trigger_at_last(self, job: str, payload: Any = None, **options: Any) -> str:
        """A trigger stored once the project is there, or is there again."""

        async def stored() -> str | None:
            try:
                return await self.trigger(job, payload, timeout=2, **options)
            except JetJobsError:
                return None

        return await eventually(stored, what="a trigger being stored")

    async def trigger_all(self, job: str, payloads: Iterable[Any]) -> list[str]:
        return [await self.trigger(job, payload) for payload in payloads]

    def _full(self, job: str) -> str:
        return job if "." in job else f"basic.{job}"

    def _names(self, job: str) -> tuple[str, str]:
        module, _, name = self._full(job).partition(".")
        return module, name

    async def record(self, job: str, run: str) -> RunRecord:
        client = await self.client()
        return await client.run(*self._names(job), run).record()

    async def ended(self, job: str, run: str, within: float = PATIENCE) -> RunRecord:
        """The terminal record, and the delivery retired with it."""
        client = await self.client()
        return await client.run(*self._names(job), run).wait(within)

    async def run(self, job: str, payload: Any = None, **options: Any) -> tuple[RunRecord, str]:
        """A run's record and id once it has ended and its message is gone."""
        run_id = await self.trigger(job, payload, **options)
        record = await self.ended(job, run_id)
        await self.retired(job)
        return record, run_id

    async def all_ended(self, job: str, runs: Iterable[str], within: float = 60.0) -> list[RunRecord]:
        until = time.monotonic() + within
        return [await self.ended(job, run, max(until - time.monotonic(), 0.1)) for run in runs]

    async def jetstream(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        """What the broker itself answers, or does, over a connection of its own."""
        import nats

        client = await nats.connect(self.url)
        try:
            return await ask(client.jetstream())
        finally:
            await client.close()

    async def consumer(self, job: str) -> Any:
        """The broker's state of a job's consumer."""
        module, name = self._names(job)
        return await self.jetstream(lambda js: js.consumer_info(f"JETJOBS_{self.project}", f"{module}=_{name}"))

    async def retired(self, job: str, within: float = PATIENCE) -> None:
        """Return once no message of the job waits or is in flight: every slot is free."""

        async def free() -> bool:
            info = await self.consumer(job)
            return info.num_ack_pending == 0 and info.num_pending == 0

        await eventually(free, within, f"{job} having no message left")

    async def ping(self, within: float = 20.0) -> None:
        """The other job of the same host must start, whatever goes on beside it."""
        run = await self.trigger("ping")
        await self.journal.started(run, within=within)

    async def close(self) -> None:
        for host in self.hosts:
            host.remove()
        if self._client is not None:
            await self._client.close()
