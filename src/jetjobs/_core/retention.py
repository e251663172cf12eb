"""How long a finished run's record stays."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jetjobs._core.models import RunRecord, RunStatus

if TYPE_CHECKING:
    from jetjobs._core.policy import JobRetention

TTL_SLACK = timedelta(minutes=10)


def record_ttl(record: RunRecord, retention: JobRetention) -> timedelta:
    """After how long a terminal record goes by itself, whether or not any host runs then.

    Never before the run's messages are past: a record that went earlier could start its run again. A key's promise
    holds for `retention.keys`.
    """
    keep = retention.skipped if record.status is RunStatus.SKIPPED else retention.finished
    if record.key is not None:
        keep = max(keep, retention.keys)
    if record.expires_at is not None and record.finished_at is not None:
        keep = max(keep, record.expires_at - record.finished_at)
    return keep + TTL_SLACK
