"""Messages of the jobs stream: as stored, as to be stored, and understood as triggers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, Self

from jetjobs._core.bodies import Body
from jetjobs._core.models import BY_HAND, NOTHING, RunKey, TriggerInfo

_set: Final = object.__setattr__  # past the guard of a frozen class, while it is made


@dataclass(frozen=True, slots=True)
class Message:
    """A message as the jobs stream holds it. `num_delivered` is 0 when it was read, not delivered."""

    subject: str
    headers: Mapping[str, str]
    data: bytes
    sequence: int
    stored_at: datetime
    num_delivered: int = 0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to store."""

    subject: str
    headers: Mapping[str, str] = NOTHING
    data: bytes = b""


@dataclass(frozen=True)
class Trigger:
    """A trigger message understood: which run, by what, until when.

    `subject_kind` tells a run's own subject from a schedule's shared tick subject. `expires_in` counts from
    `stored_at`. Without slots, for the reason that `RunRecord` has none.
    """

    key: RunKey
    body: Body | None
    sequence: int
    stored_at: datetime
    num_delivered: int
    turn: int = 1
    subject_kind: Literal["run", "tick"] = "run"
    info: TriggerInfo = BY_HAND
    idempotency_key: str | None = None
    scheduled_for: datetime | None = None
    start_deadline: datetime | None = None
    expires_in: timedelta | None = None
    expires_at: datetime | None = None
    payload_schema: str | None = None
    traceparent: str | None = None

    @classmethod
    def of(cls, **fields: Any) -> Self:
        """A trigger with these fields, unchecked: the five without a default must be among them."""
        made = object.__new__(cls)
        _set(made, "__dict__", fields)
        return made


@dataclass(frozen=True, slots=True)
class BadTrigger:
    """A message on a trigger subject that can't be understood.

    `key` is there when the subject named a run, so that a FAILED record can tell about it.
    """

    reason: str
    key: RunKey | None
    sequence: int
    stored_at: datetime
    num_delivered: int
