"""Hosts whose jobs have schedules, and what was kept of these."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from jetjobs._core import names
from jetjobs._core.messages import Message
from jetjobs._core.models import JobAddress, RunRecord
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.triggers import schedule_id
from jetjobs._nats import open_backend
from jetjobs._ports import Backend
from tests.faults.rig import PATIENCE, HostProcess, Line, Rig, eventually

Jobs = Mapping[str, Mapping[str, Any]]


def every(interval: str, **options: Any) -> list[Any]:
    return ["every", interval, options]


def cron(line: str, **options: Any) -> list[Any]:
    return ["cron", line, options]


class ScheduleRig:
    """A rig, and the ports of the same project."""

    def __init__(self, rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rig = rig
        self._monkeypatch = monkeypatch
        self._ports: Backend | None = None

    def spawn(self, jobs: Jobs, *, version: str | None = None, **settings: str) -> HostProcess:
        self._monkeypatch.setenv("TICKING", json.dumps(jobs))
        if version is None:
            self._monkeypatch.delenv("VERSION", raising=False)
        else:
            self._monkeypatch.setenv("VERSION", version)
        return self.rig.spawn("ticking", **settings)

    async def host(self, jobs: Jobs, *, version: str | None = None, **settings: str) -> HostProcess:
        return await self.spawn(jobs, version=version, **settings).ready()

    async def stop(self, host: HostProcess) -> None:
        host.sigterm()
        await host.exit_code()

    async def ports(self) -> Backend:
        if self._ports is None:
            target = {"servers": self.rig.url, "reconnect_time_wait": 0.1}
            self._ports = await open_backend(target, self.rig.project, name="test")
        return self._ports

    async def record(self, job: str, name: str) -> ScheduleRecord:
        stored = await (await self.ports()).schedules.get(schedule_id(JobAddress("t", job), name))
        assert stored is not None
        return stored.schedule

    async def message(self, job: str, name: str) -> Message | None:
        """The schedule's message in the stream."""
        address = JobAddress("t", job)
        subject = names.schedule_subject(self.rig.project, address, schedule_id(address, name))
        return await (await self.ports()).broker.last(subject)

    async def sequence(self, job: str, name: str) -> int:
        message = await self.message(job, name)
        assert message is not None
        return message.sequence

    async def runs(self, job: str) -> list[RunRecord]:
        ports = await self.ports()
        return [stored.record async for stored in ports.runs.scan(JobAddress("t", job))]

    def starts(self, job: str, name: str | None = None) -> list[Line]:
        wanted = None if name is None else schedule_id(JobAddress("t", job), name)
        return [line for line in self.rig.journal.starts(job=job) if wanted in (None, line.schedule)]

    def due(self, job: str, name: str | None = None) -> list[float]:
        """Which occurrences started, in that order, in epoch seconds."""
        return [line.due for line in self.starts(job, name)]

    async def started(self, job: str, times: int, within: float = PATIENCE) -> list[Line]:
        return await eventually(
            lambda: len(found := self.starts(job)) >= times and found, within, f"{times} starts of {job}"
        )

    async def settled(self, job: str, name: str, after: float, within: float = PATIENCE) -> ScheduleRecord:
        """The schedule once all occurrences up to an instant are decided and none is going."""

        async def quiet() -> ScheduleRecord | None:
            found = await self.record(job, name)
            return found if found.cursor.timestamp() >= after and not found.live else None

        return await eventually(quiet, within, f"{job}/{name} being decided")

    async def close(self) -> None:
        await self.rig.close()
        if self._ports is not None:
            await self._ports.close()


def occurrences_between(first: float, last: float, step: float = 1.0) -> list[float]:
    return [first + n * step for n in range(round((last - first) / step) + 1)]
