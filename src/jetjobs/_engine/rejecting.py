"""Messages on a job's subjects that no host can run, retired so that somebody notices."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from jetjobs._core.lifecycle import Event, begin
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.texts import run_error
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError, PayloadInvalidError, WrongRevision

if TYPE_CHECKING:
    from jetjobs._core.messages import BadTrigger
    from jetjobs._core.models import RunKey
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.settling import Settling
    from jetjobs._ports import Delivery

log = get_logger("jetjobs.engine")

BUSY_DELAY = timedelta(seconds=1)


async def reject(engine: Engine, settling: Settling, delivery: Delivery, bad: BadTrigger) -> None:
    """Retire a message nobody can run: with a FAILED record when it names a run, else with TERM."""
    log.warning("bad_trigger", subject=delivery.message.subject[:200], reason=bad.reason)
    if bad.key is None:
        delivery.term(bad.reason)
        return
    try:
        record = _rejected(engine, bad, bad.key)
        try:
            await engine.backend.runs.create(record, ttl=settling.ttl(record))
        except WrongRevision:  # the id has a record already, to which this message may mean more than to this host
            if await _serves(engine, bad, bad.key):
                return
    except (BrokerError, PayloadInvalidError) as error:
        log.warning("run_given_back", run=str(bad.key), error=str(error))
        delivery.nak(BUSY_DELAY)
        return
    delivery.ack()


async def _serves(engine: Engine, bad: BadTrigger, key: RunKey) -> bool:
    """Whether a run that hasn't ended was started by this very message: a host of a newer release can read it.

    Acked, it would free the slot under a live handler, and nothing would start the run again after a crash.
    """
    stored = await engine.backend.runs.get(key)
    owner = None if stored is None or stored.record.status.is_terminal else stored.record.owner
    return owner is not None and owner.is_message(bad.sequence, bad.stored_at)


def _rejected(engine: Engine, bad: BadTrigger, key: RunKey) -> RunRecord:
    now = engine.backend.broker.now()
    record = RunRecord(
        run_id=key.run_id,
        module=key.module,
        job=key.job,
        status=RunStatus.FAILED,
        error=run_error("BadTrigger", bad.reason),
        fired_at=bad.stored_at,
        created_at=bad.stored_at,
        finished_at=now,
        version=engine.version,
    )
    return begin(Event.FAIL, record)
