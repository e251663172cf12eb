"""What is kept of one schedule: its definition, what was decided of its occurrences, and counts.

Instants are aware UTC. Nothing here decides: what is due becomes runs in `occurrences`, edits are in `schedules`,
declarations in `declared`, bytes in `wire`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Literal

from jetjobs._core.bodies import Body
from jetjobs._core.models import NOTHING, JobAddress, TriggerInfo
from jetjobs._core.run_ids import run_id_for_tick
from jetjobs._core.triggers import Coalesce, Overlap

ScheduleKind = Literal["cron", "every"]
Origin = Literal["code", "api"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class ScheduleState(StrEnum):
    """Whether a schedule fires. DELETED is the tombstone that keeps late ticks from starting anything."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    DISABLED = "DISABLED"
    DELETED = "DELETED"


@dataclass(frozen=True, slots=True)
class Counters:
    """What became of all occurrences decided so far; each is in exactly one of the four but `failures`.

    `runs` counts those decided to run, `failures` how many of these ended FAILED or TIMED_OUT.
    """

    runs: int = 0
    failures: int = 0
    missed: int = 0
    coalesced: int = 0
    overlap_skips: int = 0

    @property
    def decided(self) -> int:
        """How many occurrences were decided."""
        return self.runs + self.missed + self.coalesced + self.overlap_skips


@dataclass(frozen=True, slots=True)
class Stretch:
    """Occurrences next to each other that came to the same end."""

    first: datetime
    last: datetime
    count: int

    def joined(self, later: Stretch) -> Stretch:
        """This stretch and the one that follows it as one."""
        return Stretch(self.first, later.last, self.count + later.count)


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """Everything known of one schedule, as stored in the schedules bucket.

    Attributes:
        line: The cron expression as the user wrote it, or the interval as text, `20s`.
        interval: What `Every` waits; `None` for cron.
        origin: Who made it: a declaration in code, or a call.
        anchor: An instant on the grid of an interval: when the broker stored the schedule, or the last tick by which
            it showed that its rhythm has moved.
        cursor: Everything at or before it is decided.
        last_occurrence: The last occurrence decided; `None` after a (re)start of the rhythm.
        open: Occurrences decided to run whose record nobody has seen yet, oldest first.
        active: Those whose record was seen and had not ended, oldest first.
        skipping: A stretch of skipped occurrences that still grows; it becomes a record when it ends.
        revision: Counts the definitions that need another message in the stream.
        state_at: Since when `state` holds; occurrences after it fall away unless ACTIVE.
        payload_schema: Digest of the model that the payload was declared for.
        version: Release of the code that declared it last; `declared_by` that host.
    """

    schedule_id: str
    name: str
    module: str
    job: str
    kind: ScheduleKind
    line: str
    interval: timedelta | None = None
    timezone: str = "UTC"
    payload_body: Body | None = None
    payload_schema: str | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    misfire_grace: timedelta | None = None
    coalesce: Coalesce = "latest"
    overlap: Overlap = "skip"
    max_instances: int = 1
    jitter: timedelta | None = None
    origin: Origin = "code"
    state: ScheduleState = ScheduleState.ACTIVE
    state_at: datetime = _EPOCH
    anchor: datetime = _EPOCH
    cursor: datetime = _EPOCH
    last_occurrence: datetime | None = None
    open: tuple[datetime, ...] = ()
    active: tuple[datetime, ...] = ()
    skipping: Stretch | None = None
    last_run_at: datetime | None = None
    last_ended_at: datetime | None = None
    next_run_at: datetime | None = None
    counters: Counters = Counters()
    last_error: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    revision: int = 1
    version: str | None = None
    declared_by: str | None = None
    extra: Mapping[str, Any] = NOTHING

    @property
    def address(self) -> JobAddress:
        """The job it fires."""
        return JobAddress(self.module, self.job)

    @property
    def live(self) -> tuple[datetime, ...]:
        """Occurrences decided to run and not known to have ended."""
        return self.active + self.open

    @property
    def is_active(self) -> bool:
        """Whether new occurrences become due."""
        return self.state is ScheduleState.ACTIVE

    def run_id(self, occurrence: datetime) -> str:
        """The one run id of an occurrence."""
        return run_id_for_tick(self.schedule_id, (occurrence - _EPOCH) // _MILLISECOND)

    def info(self, occurrence: datetime | None = None) -> TriggerInfo:
        """What its triggers say of themselves; `occurrence` in the zone that handlers shall see."""
        return TriggerInfo(self.kind, self.schedule_id, occurrence)
