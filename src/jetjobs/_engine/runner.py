"""One job's deliveries on one host: taken, claimed, executed, settled; one slot each.

::

    delivery ─▶ read the message ─▶ prepare the payload ─▶ claim (decide, write) ─▶ execute ─▶ save ─▶ ack ─▶ slot
                     │                    │                     │                      │
                     ▼                    ▼                     ▼                      ▼
               not a trigger:       other schema:        not this host's:      not mine any more:
               FAILED or TERM       comes again later    ack, drop, ask        silent

Taken and claimed here (`claiming`), executed in `calling`, saved and acked in `finishing`.

The slot is the handler's code: it is free again only when no code of the attempt runs any more, whatever the record
says. A handler that ignores its order to stop therefore keeps its slot and its message, and its
outcome is saved at once when it is terminal; RETRYING waits until the code has gone, or two attempts could live
side by side.

A delivery whose run this process already holds is dropped without a word, and so is everything about a run that
turns out to be somebody else's: the broker applies acks, naks and renewals of an old delivery to the new one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jetjobs._core import headers
from jetjobs._core.messages import BadTrigger
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.run_ids import is_fresh
from jetjobs._engine.calling import Calling
from jetjobs._engine.claiming import Claiming, Undecided
from jetjobs._engine.execution import describe
from jetjobs._engine.finishing import Finishing
from jetjobs._engine.held import HeldRun
from jetjobs._engine.parking import Parking
from jetjobs._engine.payloads import Prepared, fetch, prepare, refusal
from jetjobs._engine.rejecting import reject
from jetjobs._engine.schedules import Schedules
from jetjobs._engine.settling import Settling
from jetjobs._engine.slots import Admission
from jetjobs._engine.ticks import Ticks
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError, PayloadInvalidError

if TYPE_CHECKING:
    from jetjobs._core.messages import Trigger
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.hosted import HostedJob
    from jetjobs._ports import Consumption, Delivery

log = get_logger("jetjobs.engine")

MOST_PATIENCE = 1.0  # seconds a delivery waits here for a slot; its ack wait is running


class Seat:
    """Tells a coroutine which task runs it: asking the loop costs more than a handler that does nothing."""

    __slots__ = ("task",)

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None


class Runner:
    """Runs one job on this host. Made and used on the event loop's thread."""

    __slots__ = (
        "_ack_wait",
        "_admission",
        "_calling",
        "_claiming",
        "_consumption",
        "_engine",
        "_finishing",
        "_limit",
        "_owed",
        "_parking",
        "_project",
        "_settling",
        "_ticks",
        "hosted",
    )

    def __init__(self, engine: Engine, hosted: HostedJob) -> None:
        self._engine = engine
        self.hosted = hosted
        self._settling = Settling(engine, hosted.job.policy)
        schedules = Schedules(engine)
        self._claiming = Claiming(engine, hosted.rules, self._settling, schedules)
        self._ticks = Ticks(engine, schedules, hosted.address)
        self._parking = Parking(engine, hosted)
        self._finishing = Finishing(engine, self._settling, schedules)
        self._calling = Calling(engine, hosted, self._settling, self._finishing)
        self._consumption: Consumption | None = None
        self._limit = hosted.job.policy.max_concurrency
        self._owed = 0  # slots to give up, after the limit was lowered
        self._project = engine.backend.broker.project
        self._ack_wait = engine.settings.ack_wait.total_seconds()
        needed = (engine.slots,) if hosted.job.is_async else (engine.thread_slots, engine.slots)
        self._admission = Admission(
            needed if hosted.shared is None else (hosted.shared, *needed),
            engine.clock,
            admit=self._admitted,
            refuse=self._refused,
            patience=min(MOST_PATIENCE, self._ack_wait / 6),
            job=str(hosted.address),
        )

    async def start(self) -> None:
        """Begin to take deliveries, as many at once as the job's limit."""
        self._consumption = await self._engine.backend.broker.consume(self.hosted.address, self.on_delivery)
        self._consumption.allow(self._limit)

    @property
    def limit(self) -> int:
        """Runs at once, as far as the job is concerned."""
        return self._limit

    def resize(self, limit: int) -> None:
        """Take so many at once from now on. What runs goes on: slots too many go as it ends."""
        more, self._limit = limit - self._limit, limit
        if self.hosted.shared is not None:
            self.hosted.shared.resize(limit)
        if self._consumption is None:
            return  # `start` allows what the limit is then
        self._owed -= more
        if self._owed < 0:
            more, self._owed = -self._owed, 0
            if not self._engine.draining:
                self._consumption.allow(more)

    async def stop(self) -> None:
        """Take nothing more. What runs goes on."""
        if self._consumption is not None:
            await self._consumption.stop()
        self._admission.close()

    @property
    def waiting(self) -> int:
        """Deliveries that wait for a place on this host."""
        return self._admission.waiting

    @property
    def problem(self) -> str | None:
        """Why the broker delivers nothing, if that is known."""
        return None if self._consumption is None else self._consumption.problem

    def on_delivery(self, delivery: Delivery) -> None:
        """Serve a delivery; returns at once."""
        if self._engine.draining:
            delivery.nak()
        else:
            self._admission.ask(delivery)

    def _admitted(self, delivery: Delivery) -> None:
        seat = Seat()
        seat.task = self._engine.tasks.start_served(self._serve(delivery, seat))

    def _refused(self, delivery: Delivery) -> None:
        """This host has no room: another one may."""
        delivery.nak()
        self._allow_one()

    def _allow_one(self) -> None:
        if self._owed:
            self._owed -= 1
        elif self._consumption is not None and not self._engine.draining:
            self._consumption.allow(1)

    async def _serve(self, delivery: Delivery, seat: Seat) -> None:
        try:
            arrived = self._engine.clock.monotonic()
            found = headers.read_trigger(self._project, delivery.message)
            if isinstance(found, BadTrigger):
                await reject(self._engine, self._settling, delivery, found)
                return
            if found.subject_kind == "tick":
                found = await self._ticks.judge(delivery, found)
                if found is None:
                    return
            held = HeldRun(found.key, found, delivery, arrived)
            held.task = seat.task
            if not self._engine.held.take(held):
                return
            try:
                await self._run(held, found)
            finally:
                self._engine.held.release(held)
        except Exception as fault:  # noqa: BLE001
            # A fence: a fault of ours in one run must neither end the host nor pass in silence. The record stays as
            # it is, and redelivery takes the run over. As text: a log that shows local variables would show payloads.
            log.error("run_broke", subject=delivery.message.subject, error=describe(fault).traceback)  # noqa: TRY400
        finally:
            self._admission.give_back()
            self._allow_one()
            self._engine.tasks.served(seat.task)

    async def _run(self, held: HeldRun, trigger: Trigger) -> None:
        prepared = self._at_hand(trigger)
        record = None if prepared is None else self._claiming.first(prepared.digest, trigger)
        if record is None:
            prepared = await self._claim(held, trigger)
        else:
            # Every run comes this way, and a coroutine for each step would cost it a tenth.
            held.claim = record.claim
            try:
                held.revision = await self._engine.backend.runs.create(record)
                held.record = record
            except BrokerError as error:
                if not await self._claimed_after(held, record, error):
                    return
        if prepared is None:
            return
        slow = self._engine.clock.monotonic() - held.confirmed_at > self._ack_wait / 3
        if slow and not await self._still_mine_after_a_delay(held):
            return
        refused = prepared.refused
        ending = await self._calling.call(held, prepared.value) if refused is None else refusal(refused)
        await self._finishing.finish(held, ending)

    # ---------------------------------------------------------------- claim

    def _at_hand(self, trigger: Trigger) -> Prepared | None:
        """The payload of a first delivery that brings it along and can be run with it."""
        body = trigger.body
        if trigger.num_delivered > 1 or trigger.turn > 1 or self._engine.draining:
            return None  # a redelivery has a record more often than not, and its payload is the record's business
        if body is not None and body.claim is not None:
            return None
        prepared = prepare(self.hosted.job, body, with_digest=self._is_repeatable(trigger))
        return prepared if prepared.refused is None else None

    def _is_repeatable(self, trigger: Trigger) -> bool:
        """Whether the id can be asked for twice: only then it matters whether another payload comes with it."""
        return trigger.idempotency_key is not None or not is_fresh(trigger.key.run_id)

    async def _claimed_after(self, held: HeldRun, record: RunRecord, error: BrokerError) -> bool:
        try:
            return await self._claiming.after(held, record, error)
        except (BrokerError, PayloadInvalidError) as why:
            self._give_back(held, why)
            return False

    async def _claim(self, held: HeldRun, trigger: Trigger) -> Prepared | None:
        """The prepared payload of a run that is now this host's, or `None`."""
        backend = self._engine.backend
        try:
            again = trigger.num_delivered > 1 or trigger.turn > 1
            stored = await backend.runs.get(held.key) if again else None
            body = trigger.body if stored is None else stored.record.payload_body
            twice = self._is_repeatable(trigger)
            if body is None or body.claim is None:
                prepared = prepare(self.hosted.job, body, with_digest=twice)
            else:
                prepared = await fetch(self.hosted.job, body, backend.payloads, with_digest=twice)
                held.fetched = prepared.fetched
            if prepared.refused is not None and await self._parking.left_to_another(held, prepared.refused, stored):
                return None
            if self._engine.draining:
                held.delivery.nak()
                return None
            return prepared if await self._claiming.claim(held, stored, prepared.digest) else None
        except (BrokerError, PayloadInvalidError) as error:
            self._give_back(held, error)
            return None

    def _give_back(self, held: HeldRun, why: Exception) -> None:
        if isinstance(why, Undecided):
            log.warning("run_undecided", run=str(held.key), error=str(why))
            return
        # Its slot is lost to the others until a host can read the record, which waits for somebody to act. It isn't put
        # aside as another release's payload is: that acks it, and the record may say RUNNING with this very message as
        # its owner's, or wait for it to publish a retry; a run could lose its slot or its next attempt.
        say = log.error if isinstance(why, PayloadInvalidError) else log.warning
        say("run_given_back", run=str(held.key), error=str(why))
        held.claim = None
        self._claiming.give_back(held)

    async def _still_mine_after_a_delay(self, held: HeldRun) -> bool:
        """Renew and read again before the handler is called: a claim this slow may be another's by now."""
        clock = self._engine.clock
        while clock.monotonic() - held.confirmed_at > self._ack_wait / 3:
            began = clock.monotonic()
            try:
                await held.delivery.renew()
                stored = await self._engine.backend.runs.get(held.key)
            except BrokerError as error:
                log.warning("claim_not_confirmed", run=str(held.key), error=str(error))
                await clock.sleep(1)
                continue
            if stored is None or stored.record.claim != held.claim or stored.record.status is not RunStatus.RUNNING:
                return False
            held.record, held.revision, held.confirmed_at = stored.record, stored.revision, began
        return True
