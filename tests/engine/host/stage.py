"""Hosts over ports that can fail, in memory or on a real server, and what their handlers did."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from jetjobs import Backoff, HostSettings, JobContext, JobHost, Module, RetryAfter, Skip
from jetjobs._clock import Clock, SystemClock
from jetjobs._core.models import RunKey, RunRecord, RunStatus
from jetjobs._ports import Backend
from jetjobs.client import JobClient
from jetjobs.testing import FailingBackend
from tests.support.worlds import ACK_WAIT, MemoryWorld, World, eventually

SETTINGS = HostSettings(
    ack_wait=ACK_WAIT,
    heartbeat_every=0.3,
    lost_after=3,
    upkeep_every=0.5,
    drain=0.2,
    interrupt_grace=0.2,
    completion_error_after=2,
)


@dataclass
class Call:
    """One start of the handler; `how` is there once it ended."""

    run_id: str
    attempt: int
    host: str
    how: str = ""


@dataclass
class Play:
    """What handlers shall do, by run; and what they did."""

    clock: Clock
    calls: list[Call] = field(default_factory=list)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    acts: dict[str, Callable[[JobContext[Any]], Any]] = field(default_factory=dict)

    def of(self, run_id: str) -> list[Call]:
        return [call for call in self.calls if call.run_id == run_id]

    @property
    def live(self) -> int:
        return sum(not call.how for call in self.calls)


class Hosted:
    """One host, its failing ports, and its connection."""

    def __init__(self, host: JobHost, ports: FailingBackend, connection: Backend) -> None:
        self.host = host
        self.ports = ports
        self.connection = connection

    @property
    def held(self) -> int:
        return self.host.health().running

    @property
    def fenced(self) -> int:
        hosting = self.host._hosting
        assert hosting is not None
        return sum(held.fenced for held in hosting.engine.held)


class Stage:
    """Several hosts and one client of a project."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.clock: Clock = world.clock if isinstance(world, MemoryWorld) else SystemClock()
        self.play = Play(self.clock)
        self.hosts: list[Hosted] = []
        self.client_ports: FailingBackend
        self.client: JobClient

    async def open(self) -> None:
        self.client_ports = FailingBackend(await self.world.connect())
        self.client = JobClient(backend=self.client_ports)
        await self.client.connect()
        await self.client_ports.broker.ensure_project()

    async def host(self, *, settings: HostSettings = SETTINGS) -> Hosted:
        """A host that serves `m.job` (three attempts), `m.once` and `m.timed` (one, a second long)."""
        return await self.serve(_module(self.play, f"h{len(self.hosts)}"), settings=settings)

    async def serve(self, *modules: Module, settings: HostSettings = SETTINGS) -> Hosted:
        """A host that serves these modules."""
        connection = await self.world.connect()
        ports = FailingBackend(connection)
        host = JobHost(modules, backend=ports, settings=settings, clock=self.clock)
        made = Hosted(host, ports, connection)
        await self.driven(host.start())
        self.hosts.append(made)
        return made

    async def driven(self, coroutine: Any) -> Any:
        """Await something that needs time to pass."""
        task = asyncio.ensure_future(coroutine)
        for _ in range(2000):
            if task.done():
                break
            await self.world.elapse(0.02)
        return await task

    async def trigger(self, payload: str, job: str = "job", **options: Any) -> str:
        run = await self.driven(self.client.get_job("m", job).trigger(payload, **options))
        return run.run_id

    async def record(self, run_id: str, job: str = "job") -> RunRecord | None:
        stored = await self.client_ports.runs.get(RunKey("m", job, run_id))
        return stored.record if stored is not None else None

    async def when(self, condition: Callable[[], object], within: float = 8.0) -> None:
        async def holds() -> object:
            return condition()

        await eventually(self.world, holds, within)

    async def ended(self, run_id: str, job: str = "job", within: float = 12.0) -> RunRecord:
        async def terminal() -> RunRecord | None:
            record = await self.record(run_id, job)
            return record if record is not None and record.status.is_terminal else None

        return await eventually(self.world, terminal, within)

    async def reached(self, run_id: str, status: RunStatus, job: str = "job") -> RunRecord:
        async def there() -> RunRecord | None:
            record = await self.record(run_id, job)
            return record if record is not None and record.status is status else None

        return await eventually(self.world, there)

    async def retired(self, run_id: str, job: str = "job", within: float = 8.0) -> None:
        """Return once nothing of the run is in the stream."""
        project = self.client_ports.broker.project

        async def gone() -> bool:
            from jetjobs._core import names

            run = RunKey("m", job, run_id)
            return (
                await self.client_ports.broker.last(names.trigger_subject(project, run)) is None
                and await self.client_ports.broker.last(names.run_schedules(project, run)) is None
            )

        await eventually(self.world, gone, within)

    async def close(self) -> None:
        for gate in self.play.gates.values():
            gate.set()
        for hosted in self.hosts:
            await self.driven(hosted.host.close())
        await self.client.close()


def _module(play: Play, host: str) -> Module:
    module = Module("m")

    async def act(ctx: JobContext[Any], how: str) -> Any:
        call = Call(ctx.run_id, ctx.attempt, host)
        play.calls.append(call)
        try:
            result = await _act(play, ctx, how)
        except BaseException as error:
            call.how = type(error).__name__
            raise
        call.how = "return"
        return result

    @module.job(name="job", max_concurrency=4, max_attempts=3, backoff=Backoff("100ms", factor=1, jitter=0))
    async def job(ctx: JobContext[Any], how: str) -> Any:
        return await act(ctx, how)

    @module.job(name="timed", timeout=1)
    async def timed(ctx: JobContext[Any], how: str) -> Any:
        return await act(ctx, how)

    @module.job(name="once")
    async def once(ctx: JobContext[Any], how: str) -> Any:
        return await act(ctx, how)

    return module


async def _raise(error: BaseException) -> None:
    raise error


async def _act(play: Play, ctx: JobContext[Any], how: str) -> Any:
    name, _, more = how.partition(" ")
    return await _ACTS[name](play, ctx, more)


async def _return(_: Play, ctx: JobContext[Any], __: str) -> str:
    return f"attempt {ctx.attempt}"


async def _fail(_: Play, ctx: JobContext[Any], more: str) -> str:
    if ctx.attempt <= int(more):
        raise ValueError(f"attempt {ctx.attempt}")
    return f"attempt {ctx.attempt}"


async def _wait(play: Play, ctx: JobContext[Any], more: str) -> str:
    await play.gates.setdefault(more, asyncio.Event()).wait()
    return f"attempt {ctx.attempt}"


async def _group(_: Play, __: JobContext[Any], more: str) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_raise({"skip": Skip("nothing"), "later": RetryAfter("1s")}[more]))


async def _cancels(play: Play, ctx: JobContext[Any], more: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()  # as libraries do for their timeouts, and not all take it back
    try:
        await asyncio.sleep(1)
    except asyncio.CancelledError:
        await _wait(play, ctx, more)


async def _sleep(play: Play, _: JobContext[Any], more: str) -> None:
    await play.clock.sleep(float(more))


async def _do(play: Play, ctx: JobContext[Any], more: str) -> Any:
    return play.acts[more](ctx)


async def _linger(play: Play, ctx: JobContext[Any], _: str) -> None:
    """Cleaning up takes its time, however often it is told to hurry."""
    try:
        await _wait(play, ctx, "never")
    except asyncio.CancelledError:
        cleaned = play.gates.setdefault("cleaned", asyncio.Event())
        while not cleaned.is_set():
            with suppress(asyncio.CancelledError):
                await cleaned.wait()
        raise


_ACTS: dict[str, Callable[[Play, JobContext[Any], str], Awaitable[Any]]] = {
    "return": _return,
    "fail": _fail,
    "wait": _wait,
    "group": _group,
    "cancels": _cancels,
    "sleep": _sleep,
    "do": _do,
    "linger": _linger,
}
