"""Keeping running runs alive: renewal and heartbeat, two loops that can't stop each other.

Renewal tells the *broker* that the delivery is worked on; its answer proves that the broker is reachable, not that
the run is still this host's. The heartbeat writes the *record*, and a compare-and-set that loses tells that
the run was taken over. Each run's request and write is a task of its own: one that hangs delays no other.

A host that can't confirm a renewal for two thirds of the ack wait stops the handler: from then on the broker may
hand the run to somebody else. The exception is a broker that refuses every connection: it can't hand
out anything to anybody, and when it is back every other host waits one ack wait before it takes a run over.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jetjobs._core.lifecycle import Event, advance
from jetjobs._core.models import RunStatus
from jetjobs._log import get_logger
from jetjobs.errors import AnswerUnknown, BrokerError, PayloadInvalidError, WrongRevision

if TYPE_CHECKING:
    from jetjobs._core.models import RunKey
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.held import HeldRun

log = get_logger("jetjobs.engine")


class Renewal:
    """Renews every claimed delivery each third of the ack wait, and fences runs that can't be renewed."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        ack_wait = engine.settings.ack_wait.total_seconds()
        self._every = ack_wait / 3
        self._fence_after = ack_wait * 2 / 3
        self._give_up_after = ack_wait / 6  # so that one lost answer leaves time for a second try
        self.interval = ack_wait / 12

    async def one_pass(self) -> None:
        """Start the renewals that are due; fence what has been without one for too long."""
        engine, broker = self._engine, self._engine.backend.broker
        since = broker.connected_since
        if since is None and len(engine.held) and await broker.out_for_everybody():
            # At every pass: when the broker is back, nearly all of the time before the fence is left to reconnect.
            self._nobody_can_renew()
            return
        now = engine.clock.monotonic()
        # Only handlers can be stopped. A claim still in question is confirmed before its handler starts, and what has
        # ended keeps being renewed until it is saved: the compare-and-set decides whether it was in time.
        late = [
            held
            for held in engine.held
            if held.execution is not None and not held.ending and now - held.confirmed_at > self._fence_after
        ]
        for held in late:
            if not held.fenced:
                log.error("run_fenced", run=str(held.key), unconfirmed_s=round(now - held.confirmed_at, 1))
                held.stop("fenced")
        for held in engine.held:
            if held.claim is None or held.fenced or held.renewing is not None:
                continue
            was_cut = since is not None and held.confirmed_at < since
            if was_cut or now - held.confirmed_at >= self._every - self.interval:
                held.renewing = engine.tasks.start(self._renew(held))

    async def _renew(self, held: HeldRun) -> None:
        began = self._engine.clock.monotonic()
        try:
            async with asyncio.timeout(self._give_up_after):
                await held.delivery.renew()
            held.confirmed_at = max(held.confirmed_at, began)
        except (BrokerError, TimeoutError) as error:
            log.debug("renewal_failed", run=str(held.key), error=str(error))
        finally:
            held.renewing = None

    def _nobody_can_renew(self) -> None:
        """The broker hands out nothing to anybody now, and whoever comes back to it takes no run over at once."""
        now = self._engine.clock.monotonic()
        for held in self._engine.held:
            if held.execution is not None:
                held.confirmed_at = now


class Heartbeat:
    """Writes logs, progress, checkpoint and the time to the records of running runs; hears there of cancels."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._every = engine.settings.heartbeat_every.total_seconds()
        self.interval = self._every / 5

    async def one_pass(self) -> None:
        """Start the heartbeats that are due."""
        now = self._engine.clock.monotonic()
        for held in self._engine.held:
            if held.execution is not None and now - held.beat_at >= self._every:
                self.beat(held)

    def beat(self, held: HeldRun) -> None:
        """Write one run's heartbeat now, unless one is under way or the run is ending."""
        if held.beat is None and not held.ending and not held.fenced and held.record is not None:
            held.beat_at = self._engine.clock.monotonic()
            held.beat = self._engine.tasks.start(self._beat(held))

    def heard_cancel(self, run: RunKey) -> None:
        """The doorbell rang: look at the record now instead of at the next heartbeat."""
        held = self._engine.held.get(run)
        if held is None:
            return
        if held.beat is not None:
            # The write under way may have passed the broker before the cancel did.
            held.beat.add_done_callback(lambda _: self.beat(held))
        else:
            self.beat(held)

    async def _beat(self, held: HeldRun) -> None:
        try:
            await self._write(held)
        except BrokerError as error:
            if held.journal is not None:
                held.journal.changed = True
            log.debug("heartbeat_failed", run=str(held.key), error=str(error))
        except PayloadInvalidError as error:
            log.warning("record_unreadable", run=str(held.key), error=str(error))
        finally:
            held.beat = None

    async def _write(self, held: HeldRun) -> None:
        runs = self._engine.backend.runs
        while held.record is not None:
            journal = held.journal
            said = held.said() if held.has_said else {}
            if journal is not None:
                journal.changed = False
            wanted = advance(held.record, Event.BEAT, heartbeat_at=self._engine.backend.broker.now(), **said)
            try:
                held.revision = await runs.update(wanted, held.revision)
                held.record = wanted
                return
            except (WrongRevision, AnswerUnknown):
                if journal is not None and said:
                    journal.changed = True
                stored = await runs.get(held.key)
            record = stored.record if stored is not None else None
            if stored is None or record is None or record.claim != held.claim or record.status is not RunStatus.RUNNING:
                log.warning("run_taken_over", run=str(held.key))
                held.stop("fenced")
                return
            held.record, held.revision = record, stored.revision
            if record.cancel_asked:
                held.stop("cancel")
                return
