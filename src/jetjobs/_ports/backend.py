"""One project's ports over one connection, and the second way to the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from jetjobs._core.models import RunKey
from jetjobs._ports.broker import Broker
from jetjobs._ports.catalog import Catalog
from jetjobs._ports.delivery import Delivery
from jetjobs._ports.events import EventSource
from jetjobs._ports.stores import PayloadStore, RunStore, ScheduleStore


@dataclass(frozen=True, slots=True)
class Keeping:
    """What a lifeline does in the place of a blocked event loop. All of it is called from the lifeline's thread.

    `due` gives deliveries to renew, each with what to call when the broker has confirmed it. `over` says that the
    loop is back; it is asked every `pause` seconds.
    """

    host_id: str
    due: Callable[[], Sequence[tuple[Delivery, Callable[[], None]]]]
    holds: Callable[[RunKey, str | None], bool]
    over: Callable[[], bool]
    pause: float


class Lifeline(Protocol):
    """A second way to the broker for the time in which the event loop is blocked."""

    def keep(self, keeping: Keeping) -> None:
        """Renew what is due and answer asks until it is over. Blocks; call it from a thread of its own.

        Raises:
            BrokerError: it can't.
        """
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """One project's ports over one connection, and how to let go of it; `lifeline` where there can be one."""

    broker: Broker
    runs: RunStore
    payloads: PayloadStore
    catalog: Catalog
    events: EventSource
    schedules: ScheduleStore
    close: Callable[[], Awaitable[None]]
    lifeline: Lifeline | None = None
