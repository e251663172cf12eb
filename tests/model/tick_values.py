"""The values of the search through one schedule's ticks: hosts, messages, the world, and the rules under test."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any, Final, NamedTuple

from jetjobs._core import occurrences, schedules, starting
from jetjobs._core.models import RunError, RunRecord, RunStatus
from jetjobs._core.occurrences import Decision
from jetjobs._core.schedule_record import ScheduleRecord

NOON: Final = datetime(2030, 5, 1, 12, tzinfo=UTC)
STEP: Final = timedelta(seconds=10)
FIRST: Final = ScheduleRecord(
    "s", "b.j/every", "b", "j", "every", "10s", STEP, misfire_grace=timedelta(hours=1), anchor=NOON, cursor=NOON
)
EDITED: Final = {"line": "20s", "interval": 2 * STEP}


def at(t: int) -> datetime:
    """The instant of broker time `t`; occurrences fall on whole ones."""
    return NOON + t * STEP


def place(instant: datetime) -> int:
    """The `t` of an occurrence."""
    return (instant - NOON) // STEP


class Phase(IntEnum):
    """What a host does with its delivery, or its reconciler."""

    IDLE = 0
    GOT = 1
    DECIDING = 2  # with the schedule as it was read then
    STORING = 3  # the decision is written; triggers of the others next
    CREATING = 4
    RUNS = 5
    CLEARING = 6  # the run's record is terminal, the schedule's not yet told
    ACKING = 7
    MENDING = 8


class Host(NamedTuple):
    """A host with one slot; `snap` is the number of the schedule's record it read or wrote."""

    phase: int = Phase.IDLE
    mid: int = 0
    o: int = 0
    tick: int = 0
    snap: int = 0


class Msg(NamedTuple):
    """A message of occurrence `o`; `tick` is the revision of its schedule, 0 for a run's own trigger.

    `holder`: 0 nobody yet, 1 or 2 a host, 3 open again, with its slot still taken.
    """

    mid: int
    o: int
    tick: int
    holder: int = 0


class Run(NamedTuple):
    """A run's record: status, the message that owns it, when it ended."""

    status: str = ""
    owner: int = 0
    end: int = 0


class Fires(NamedTuple):
    """The schedule's message in the stream: which revision, stored when."""

    revision: int
    at: int


class World(NamedTuple):
    """Everything there is. `schedule` is a number of `TickStore`; `recon` is a phase and a read per reconciler."""

    schedule: int
    runs: tuple[Run, ...]
    t: int = 0
    fires: Fires | None = Fires(1, 0)
    msgs: tuple[Msg, ...] = ()
    waiting: tuple[int, ...] = ()
    hosts: tuple[Host, Host] = (Host(), Host())
    recon: tuple[tuple[int, int], ...] = ()
    started: int = 0
    op: int = 0
    stopped: int = 0
    back: int = 0
    faults: int = 0


@dataclass(frozen=True)
class Setup:
    """Bounds of a search, and the rules under test: the product's, or one of them turned back.

    `last` is the last instant, `op` what an operator does, at `op_at` or at any time.
    """

    last: int = 2
    slots: int = 2
    faults: int = 1
    policy: dict[str, Any] = field(default_factory=dict[str, Any])
    op: str = ""
    op_at: int = 0
    reconcilers: int = 1
    decide: Callable[..., Decision] = occurrences.decide
    resume: Callable[..., Decision] = schedules.resume
    update: Callable[..., Decision] = schedules.update
    verdict: Callable[..., starting.TickVerdict] = starting.tick_verdict
    starts: Callable[[ScheduleRecord], tuple[starting.Start, ...]] = starting.starts_of
    compares: bool = True
    mends: bool = True


def record_of(schedule: ScheduleRecord, o: int, run: Run, t: int) -> RunRecord | None:
    """The run record that a decider would read."""
    if not run.status:
        return None
    plain = RunRecord(
        schedule.run_id(at(o)), "b", "j", RunStatus.RUNNING, started_at=at(o), heartbeat_at=at(t), schedule_id="s"
    )
    match run.status:
        case "S":
            return replace(plain, status=RunStatus.SUCCEEDED, finished_at=at(run.end), heartbeat_at=at(run.end))
        case "F":
            lost = RunError("Lost", "lost")
            return replace(plain, status=RunStatus.FAILED, finished_at=at(run.end), heartbeat_at=at(o), error=lost)
        case _:
            return plain
