"""A service is rolled from release 1 to 2 and back, host by host, under load: nothing is lost, doubled or failed.

The load is what callers of both releases do: those of 1 call old names with old payloads all the time, those of 2 begin
when the first host of 2 serves, and stop before the last one is rolled back. Occurrences come every second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import nullcontext
from typing import Any

import pytest

from jetjobs import JobClient, RunStatus
from tests.faults.field import show
from tests.faults.programs.rolled import LIMITS, SEND_LIMIT, release
from tests.faults.rig import HostProcess, Line, Rig, eventually

HOSTS = 3
PROGRAMS = {"1": "release_one", "2": "release_two"}
QUICK = {"DRAIN": "500ms", "UPKEEP_EVERY": "2s"}
PAUSE = 0.04  # between two triggers of one caller


class Callers:
    """Callers of both releases, and the runs whose triggers were accepted, by release and job."""

    def __init__(self, client: JobClient) -> None:
        self.accepted: dict[tuple[str, str], list[str]] = {}
        self._old = release("1", nullcontext).jobs
        self._new = release("2", nullcontext).jobs
        self._client = client
        self._count = 0
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopped: set[str] = set()

    def start(self, which: str) -> None:
        self._tasks[which] = asyncio.create_task(self._call(which))

    async def stop(self, which: str) -> None:
        """Return when its last call is answered; raises what ended it."""
        self._stopped.add(which)
        await self._tasks[which]

    def runs(self, job: str, which: str | None = None) -> list[str]:
        """The accepted runs of a job, by the callers of one release or of both."""
        found = [runs for (by, name), runs in self.accepted.items() if name == job and which in {None, by}]
        return [run for runs in found for run in runs]

    async def _call(self, which: str) -> None:
        while which not in self._stopped:
            self._count += 1
            for job, payload, options in self._calls(which, self._count):
                run = await self._client.get_job(job).trigger(payload, **options)
                self.accepted.setdefault((which, job.name), []).append(run.run_id)
                assert not run.duplicate
            await asyncio.sleep(PAUSE)

    def _calls(self, which: str, number: int) -> list[tuple[Any, Any, dict[str, Any]]]:
        jobs = self._old if which == "1" else self._new
        send = jobs["send" if which == "1" else "mail"]
        calls: list[tuple[Any, Any, dict[str, Any]]] = [(send, {"n": number}, {"idempotency_key": f"{which}-{number}"})]
        if number % 12 == 0:
            order = {"id": number, "email": "a@b.c"} if which == "1" else {"id": number, "address": "here"}
            calls.append((jobs["order"], order, {}))
        if number % 10 == 0:
            calls.append((jobs["long"], None, {}))
        if which == "1" and number % 5 == 0:
            calls.append((jobs["gone"], None, {}))
        if number % 7 == 0:
            calls.append((send, {"n": number}, {"delay": "1500ms"}))
        return calls


class Rollout:
    """The hosts of one service, replaced one by one."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self.hosts: list[HostProcess] = []
        self._monkeypatch = monkeypatch

    def spawn(self, number: str) -> HostProcess:
        self._monkeypatch.setenv("VERSION", number)
        return self.rig.spawn(PROGRAMS[number], **QUICK)

    async def begin(self, number: str) -> None:
        self.hosts = [self.spawn(number) for _ in range(HOSTS)]
        for host in self.hosts:
            await host.ready()

    async def replace(self, place: int, number: str) -> None:
        """Start the new one, then stop the old one, as most deployments do."""
        new = await self.spawn(number).ready()
        old, self.hosts[place] = self.hosts[place], new
        old.sigterm()
        assert await old.exit_code() == 0


@pytest.fixture
def rollout(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rollout:
    return Rollout(rig, monkeypatch)


async def all_done(rig: Rig, job: str, runs: list[str]) -> None:
    """Every accepted trigger became a run that SUCCEEDED, whose handler returned once, never beside another attempt."""
    assert runs, job
    records = await rig.all_ended(f"shop.{job}", runs)
    assert Counter(record.status for record in records) == {RunStatus.SUCCEEDED: len(runs)}, job
    returns = Counter(line.run for line in rig.journal.ends(job=job) if line.how == "return")
    assert {run: returns[run] for run in runs} == dict.fromkeys(runs, 1)
    starts = Counter(line.run for line in rig.journal.starts(job=job))
    for record in records:
        assert starts[record.run_id] == 1 + record.interruptions, record


async def no_occurrence_twice_or_never(rig: Rig, job: str) -> int:
    """How many occurrences ran: each second one, of whichever release, and each of them once."""

    def without_gap() -> list[Line]:
        starts = rig.journal.starts(job=job)
        due = {line.due for line in starts}
        whole = due == {min(due) + second for second in range(round(max(due) - min(due)) + 1)}
        return starts if whole else []

    starts = await eventually(without_gap, what="the run of every occurrence")
    runs = {line.run for line in starts}
    assert len(runs) == len({line.due for line in starts})
    returns = Counter(line.run for line in rig.journal.ends(job=job) if line.how == "return")
    assert set(returns.values()) == {1}
    return len(runs)


@pytest.mark.long
@pytest.mark.timeout(120)
async def test_rolled_forward_and_back_under_load_it_loses_doubles_and_fails_nothing(rollout: Rollout, rig: Rig):
    await rollout.begin("1")
    callers = Callers(await rig.client())
    callers.start("1")
    await rollout.replace(0, "2")
    callers.start("2")
    await rollout.replace(1, "2")
    await rollout.replace(2, "2")
    assert (await rig.consumer("shop.long")).config.max_ack_pending == LIMITS["2"]
    await asyncio.sleep(1.5)  # all of release 2, and callers of both
    await rollout.replace(0, "1")
    await rollout.replace(1, "1")
    await callers.stop("2")
    for job in ("mail", "order"):  # what only release 2 can run is run before its last host goes
        await rig.all_ended(f"shop.{job}", callers.runs(job, "2"))
    await rollout.replace(2, "1")
    await asyncio.sleep(0.5)
    await callers.stop("1")

    for job in ("send", "mail", "order", "gone", "long"):
        await all_done(rig, job, callers.runs(job))
    ticks = await no_occurrence_twice_or_never(rig, "tick")
    journal = rig.journal
    assert {line.release for line in journal.starts(job="tick")} == {"1", "2"}
    assert {line.release for line in journal.starts(job="send")} == {"1", "2"}
    assert {line.release for line in journal.starts(job="mail")} == {"2"}
    assert {line.release for line in journal.starts(job="gone")} == {"1"}
    assert {line.schema for line in journal.starts(job="order")} == {"1", "2"}
    assert (await rig.consumer("shop.long")).config.max_ack_pending == LIMITS["2"]  # an older release changes nothing
    most = {job: journal.most_live(job=job) for job in ("send", "mail", "order", "gone", "long")}
    assert most["send"] <= SEND_LIMIT
    assert most["mail"] <= SEND_LIMIT
    assert most["order"] == most["gone"] == 1
    assert most["long"] <= LIMITS["2"]
    restarted = sum(1 for line in journal.ends() if line.how != "return")
    show(
        f"{sum(map(len, callers.accepted.values()))} runs and {ticks} ticks, {restarted} interrupted, most live {most}"
    )
