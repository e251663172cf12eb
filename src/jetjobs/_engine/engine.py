"""What all the loops of one host share: its ports, its settings, the runs in hand, and who it is."""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jetjobs._core.retention import RetentionRules
from jetjobs._engine.children import ChildProcesses

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetjobs._clock import Clock
    from jetjobs._core.models import JobAddress
    from jetjobs._core.policy import JobRetention
    from jetjobs._engine.asking import Asking
    from jetjobs._engine.held import HeldRuns
    from jetjobs._engine.slots import Slots
    from jetjobs._engine.tasks import Tasks
    from jetjobs._engine.threads import HandlerThreads
    from jetjobs._ports import Backend
    from jetjobs.config import HostSettings


@dataclass(slots=True)
class Engine:
    """One host's engine room. `host_id` is new at every start, so that a restarted host is another owner."""

    backend: Backend
    settings: HostSettings
    clock: Clock
    held: HeldRuns
    tasks: Tasks
    threads: HandlerThreads
    slots: Slots
    thread_slots: Slots
    host_id: str
    version: str | None = None
    draining: bool = False
    asking: Asking | None = None
    paused: set[JobAddress] = field(default_factory=set["JobAddress"])  # their ticks are left undecided
    children: ChildProcesses = field(default_factory=ChildProcesses)
    own_retention: Mapping[JobAddress, JobRetention] = field(default_factory=dict["JobAddress", "JobRetention"])
    not_stored: tuple[float, str] | None = None  # until when it counts, and what the broker said to a run's last write
    _claims: int = 0
    _claim_prefix: str = field(default_factory=lambda: secrets.token_hex(6))

    def new_claim(self) -> str:
        """A claim no other start has: a random prefix of this host and a counter."""
        self._claims += 1
        return f"{self._claim_prefix}{self._claims:x}"

    @property
    def retention(self) -> RetentionRules:
        """How long finished runs are kept: by what this host's jobs say, else by its settings."""
        return RetentionRules(self.settings.retention, self.own_retention)

    def drain_within(self, shortest: float, longest: float) -> float:
        """Seconds that something may take to end while the host drains: the drain time, within these bounds."""
        return max(shortest, min(longest, self.settings.drain.total_seconds()))

    @property
    def unwritten(self) -> str | None:
        """Why a run in hand can't go on, when the broker, connected as it is, refuses a write of it."""
        noted = self.not_stored
        refused = noted is not None and self.clock.monotonic() < noted[0]
        return noted[1] if noted is not None and refused and self.backend.broker.connected_since is not None else None

    def roll(self) -> float:
        """The dice for backoff jitter."""
        return random.random()  # noqa: S311 - spreads load, guards nothing

    def shuffle(self, items: list[str]) -> None:
        """Put what can't all be done now into another order each time."""
        random.shuffle(items)
