"""What a host's log says of an attempt that failed: whoever watches hosts shouldn't have to look at records for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jetjobs._core.models import RunStatus
from jetjobs._log import get_logger

if TYPE_CHECKING:
    from jetjobs._core.models import RunRecord

log = get_logger("jetjobs.engine")


def tell_failure(record: RunRecord) -> None:
    """Log the failure of the record's last attempt, if it is one: a warning, and an error once the run is over.

    The traceback comes with the error only: twenty attempts say the same twenty times.
    """
    error = record.error
    if error is None or not record.attempts or record.attempts[-1].error is None:
        return  # What the record shows is an earlier attempt's: this one snoozed.
    run, attempt = str(record.run_key), f"{record.attempt}/{record.max_attempts}"
    match record.status:
        case RunStatus.FAILED | RunStatus.TIMED_OUT:
            trace = {"exception": error.traceback} if error.traceback else {}
            log.error("run_failed", run=run, attempt=attempt, error=str(error), status=record.status.value, **trace)
        case RunStatus.RETRYING:
            at = record.retry_at.isoformat(timespec="seconds") if record.retry_at is not None else None
            log.warning("attempt_failed", run=run, attempt=attempt, error=str(error), retry_at=at)
        case _:
            log.warning("attempt_failed", run=run, attempt=attempt, error=str(error), status=record.status.value)
