"""A context as a handler gets it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from jetjobs import JobContext
from jetjobs._core.models import RunRecord, RunStatus, TriggerInfo
from jetjobs.context import Journal

NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)


RECORD = RunRecord(
    run_id="r1",
    module="billing",
    job="send",
    status=RunStatus.RUNNING,
    starts=4,
    snoozes=1,
    interruptions=1,
    max_attempts=5,
    trigger=TriggerInfo("cron", schedule_id="s1", scheduled_for=NOON),
)


def make(journal: Journal | None = None, record: RunRecord = RECORD, **options: Any) -> JobContext[Any]:
    journal = Journal() if journal is None else journal
    options = {"payload": {"id": 7}, "state": "state", **options}
    return JobContext(record, journal=journal, clock_now=lambda: NOON, **options)


def context() -> JobContext[Any]:
    """That of a run of which nothing else is known, without payload and state."""
    return make(record=RunRecord("r", "billing", "send", RunStatus.RUNNING), payload=None, state=None)
