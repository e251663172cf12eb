"""The values of the search: hosts, messages, the whole world, a step, and the bounds of a search."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final, NamedTuple

from jetjobs._core import delivery
from jetjobs._core.completion import CompletionRules, Ending, settle
from jetjobs._core.models import RunKey, RunRecord

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
LATE: Final = NOW + timedelta(hours=1)  # past every heartbeat's patience, long before the run expires
KEY: Final = RunKey("m", "j", "r")
NAMES: Final = ("A", "B")


class Phase(IntEnum):
    """What a host does with its delivery."""

    IDLE = 0
    GOT = 1
    WRITING = 2  # decided on a write, with the record as it was read then
    UNSURE_CLAIM = 3
    CLAIMED = 4
    RUNS = 5
    ENDED = 6
    UNSURE_SAVE = 7
    PUBLISHING = 8
    ACKING = 9


class Link(IntEnum):
    """How a host is connected."""

    UP = 0
    FROZEN = 1  # stopped or cut off alone, for as long as it likes
    OUTAGE = 2  # the broker is away; every host is back within an ack wait of the first one


class Host(NamedTuple):
    """A host with one slot. `mine` is "the record carries my claim"; `lost`: the broker gave the delivery away."""

    link: int = Link.UP
    fresh: int = 0
    phase: int = Phase.IDLE
    seq: int = 0
    n: int = 0
    turn: int = 0
    mine: int = 0
    note: tuple[object, ...] = ()
    seen: int = 0
    on: int = 0
    lost: int = 0
    froze: int = 0


class Msg(NamedTuple):
    """A trigger message. `holder`: 0 nobody yet, 1 or 2 a host, 3 open again, with its slot still taken."""

    seq: int
    turn: int
    n: int = 0
    holder: int = 0


class World(NamedTuple):
    """Everything there is. `record` is a number of `Records`; 0 is none."""

    client: int = 1
    msgs: tuple[Msg, ...] = ()
    waiting: tuple[int, ...] = ()
    again: int = 0
    record: int = 0
    hosts: tuple[Host, Host] = (Host(), Host())
    cancel: int = 0
    reaper: int = 0
    started: int = 0
    cancelled: int = 0
    died: int = 0
    faults: int = 0


class Move(NamedTuple):
    """One step. Progress may not depend on a `luck`; `wrong` names the rule that the step breaks."""

    label: str
    world: World
    luck: bool = False
    wrong: str | None = None


Decide = Callable[..., delivery.Action]


@dataclass(frozen=True)
class Setup:
    """Bounds of a search, and the rules under test: the product's, or one of them turned back."""

    max_attempts: int = 2
    slots: int = 2
    faults: int = 1
    cancels: bool = False
    endings: tuple[str, ...] = ("success", "failure")
    lingers: bool = False
    decide: Decide = delivery.decide
    settle: Callable[[RunRecord, Ending, CompletionRules, datetime], RunRecord] = settle
    reaper_waits: bool = True
    rereads: bool = True


def put(w: World, i: int, host: Host) -> World:
    """The world with another host `i`."""
    return w._replace(hosts=(host, w.hosts[1]) if i == 0 else (w.hosts[0], host))


def idle(w: World, i: int) -> World:
    """The world after host `i` let go of what it held."""
    return put(w, i, Host(link=w.hosts[i].link, fresh=w.hosts[i].fresh))


def fault(w: World) -> World:
    """The world with one fault less to come."""
    return w._replace(faults=w.faults - 1)


def new_seq(w: World) -> int:
    """The sequence of the next message stored."""
    return max([0, *(m.seq for m in w.msgs), *(h.seq for h in w.hosts)]) + 1


def holds_run(h: Host) -> bool:
    """Whether a host answers, when asked, that it holds the run."""
    return bool(h.mine) and h.phase != Phase.IDLE and h.link == Link.UP
