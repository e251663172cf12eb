"""What `trigger` takes and what it gives, whoever the caller is."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol, TypedDict, TypeVar

from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.triggering import OnDuplicate

R = TypeVar("R", covariant=True)  # noqa: PLC0105 - users read TriggeredRun[R] in hovers and docs


class TriggerOptions(TypedDict, total=False):
    """Options of every `trigger`.

    Attributes:
        idempotency_key: At most one run for this key, however often it is triggered.
        on_duplicate: What happens when the key already has a run: return it, raise `DuplicateRun`, or retry it if
            it failed.
        delay: How long from now the run is due.
        at: The instant it is due; a past one is now. Not together with `delay`.
        start_within: How late after that it may still start; later it is MISSED.
        expires_in: How long after that it may still be started or retried.
        scheduled_for: The instant the run stands for, as data.
        allow_unknown: Trigger a job nobody described yet.
        timeout: Longest time of the call itself.
    """

    idempotency_key: str | None
    on_duplicate: OnDuplicate
    delay: timedelta | float | str | None
    at: datetime | float | None
    start_within: timedelta | float | str | None
    expires_in: timedelta | float | str | None
    scheduled_for: datetime | float | None
    allow_unknown: bool
    timeout: timedelta | float | str | None


class StoredTrigger(Protocol):
    """What is known of a run at once."""

    @property
    def run_id(self) -> str:
        """The run's id, known before it is stored."""
        ...

    @property
    def duplicate(self) -> bool:
        """True when the key already had a run, and this is that one."""
        ...

    @property
    def payload_differs(self) -> bool:
        """True when that run has another payload."""
        ...


class TriggeredRun(StoredTrigger, Protocol[R]):
    """What `trigger` gives: a handle on the run, whose result has the handler's type."""

    async def status(self) -> RunStatus:
        """Where the run is now."""
        ...

    async def wait(self, timeout: timedelta | float | str | None = None) -> RunRecord:
        """The terminal record, whatever the outcome."""
        ...

    async def result(self, timeout: timedelta | float | str | None = None) -> R:
        """What the handler returned, or `RunEnded` raised."""
        ...


class BlockingTriggeredRun(StoredTrigger, Protocol[R]):
    """What `trigger_blocking` gives: the same, for a caller that blocks."""

    def status(self) -> RunStatus:
        """Where the run is now."""
        ...

    def wait(self, timeout: timedelta | float | str | None = None) -> RunRecord:
        """The terminal record, whatever the outcome."""
        ...

    def result(self, timeout: timedelta | float | str | None = None) -> R:
        """What the handler returned, or `RunEnded` raised."""
        ...
