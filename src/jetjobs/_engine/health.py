"""How a host is, as values: what `JobHost.health()` gives, and what two kinds of probes make of it.

*live* asks whether only a new process helps. *ready* asks whether this one does its work now. An outage of the broker
makes a host unready and leaves it live: it waits and goes on by itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from jetjobs._core.models import JobAddress
    from jetjobs._engine.event_route import Route
    from jetjobs._engine.held import HeldRuns
    from jetjobs._engine.runner import Runner

State = Literal["new", "off", "serving", "draining", "closed"]
"""`new`: not started. `off`: switched off in this environment, bound for calling only."""


@dataclass(frozen=True, slots=True)
class JobHealth:
    """One job on this host.

    `limit` is the one in force, over all hosts. `running` are runs here, `waiting` deliveries that stand in line for a
    place here. A `paused` job waits until somebody resumes it. `problem` tells why the broker delivers nothing.
    """

    job: str
    limit: int
    running: int = 0
    waiting: int = 0
    paused: bool = False
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class EventHealth:
    """One event trigger of a job on this host. `problem` tells why no event comes."""

    job: str
    subject: str
    stream: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class HostHealth:
    """How a host is.

    Attributes:
        live: False when a loop of the host died: only a new process helps.
        ready: It serves: started, connected, not draining, and the broker takes what it writes and delivers every job.
        ok: Ready, and nothing at all is wrong.
        state: `new`, `serving`, `draining`, `closed`; `off` where the environment switched the host off.
        connected: Whether it has its connection to the broker.
        running: Runs in hand.
        threads_busy, threads_limit: Plain handlers running, and the most there may be.
        jobs: Each job it runs.
        events: Each event trigger of theirs.
        events_lost: Events that came and could not be stored, since the start.
        problems: What is wrong, in words. The broker's own errors are in them, credentials and payloads never.
    """

    live: bool
    ready: bool
    ok: bool
    state: State
    connected: bool
    project: str
    host_id: str
    running: int = 0
    threads_busy: int = 0
    threads_limit: int = 0
    jobs: tuple[JobHealth, ...] = ()
    events: tuple[EventHealth, ...] = ()
    events_lost: int = 0
    problems: tuple[str, ...] = ()

    @property
    def draining(self) -> bool:
        """Whether it takes nothing new any more."""
        return self.state == "draining"

    @property
    def problem(self) -> str | None:
        """The first of the problems."""
        return self.problems[0] if self.problems else None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a host's parts say of themselves. `died` and `unwritten` are problems, or `None`."""

    state: State
    connected: bool
    died: str | None = None
    unwritten: str | None = None
    blocked_for: float = 0.0
    jobs: tuple[JobHealth, ...] = ()
    events: tuple[EventHealth, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether every job can be done now."""
        serves = self.state in {"serving", "off"} and self.connected
        broken = self.died or self.unwritten or self.blocked_for or any(job.problem for job in self.jobs)
        return serves and not broken

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, the worst first; nothing is said of a host that never started or was closed."""
        found: list[str] = []
        if self.died:
            found.append(f"a loop died: {self.died}")
        if self.blocked_for:
            found.append(f"the event loop has been blocked for {self.blocked_for:.0f} s")
        if not self.connected and self.state not in {"new", "closed"}:
            found.append("not connected")
        if self.unwritten:
            found.append(self.unwritten)
        found += [f"{job.job}: {job.problem}" for job in self.jobs if job.problem]
        found += [f"{event.job}, events of {event.subject}: {event.problem}" for event in self.events if event.problem]
        return tuple(found)


def jobs_health(runners: Iterable[Runner], held: HeldRuns, paused: Container[JobAddress]) -> tuple[JobHealth, ...]:
    """Each job's part, in the order they were declared."""
    running: dict[str, int] = {}
    for each in held:
        name = str(each.key.address)
        running[name] = running.get(name, 0) + 1
    return tuple(
        JobHealth(
            job=(name := str(runner.hosted.address)),
            limit=runner.limit,
            running=running.get(name, 0),
            waiting=runner.waiting,
            paused=runner.hosted.address in paused,
            problem=runner.problem,
        )
        for runner in runners
    )


def events_health(routes: Iterable[Route]) -> tuple[EventHealth, ...]:
    """Each event trigger's part."""
    return tuple(
        EventHealth(str(route.address), route.trigger.subject, route.trigger.stream, route.problem) for route in routes
    )
