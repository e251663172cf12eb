"""From a delivery to a claimed run, or to its retirement: the loop around `decide`.

Read, decide, act; on a conflict read again; after an unknown answer read again and recognise the own write
by its claim. Nothing is sent for a delivery whose run turns out to be another's.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, assert_never

from jetjobs._core.delivery import Ack, Action, Ask, DeliveryRules, Drop, Help, ReadAgain, Situation, Write, decide
from jetjobs._core.models import RunStatus
from jetjobs._log import get_logger
from jetjobs.errors import AnswerUnknown, BrokerError, PayloadInvalidError, WrongRevision

if TYPE_CHECKING:
    from jetjobs._core.messages import Trigger
    from jetjobs._core.models import RunRecord
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.held import HeldRun
    from jetjobs._engine.schedules import Schedules
    from jetjobs._engine.settling import Settling
    from jetjobs._ports import Stored

log = get_logger("jetjobs.engine")

RETURN_DELAYS = (0.25, 1.0, 2.0, 5.0)
READ_AGAIN_LIMIT = 3
_NO_AGE = timedelta(0)


class Undecided(BrokerError):
    """A write was tried and what stands now can't be read, so a claim may: nothing is sent for the delivery.

    A nak would take the message from whoever owns it by now.
    """


class Claiming:
    """Claims runs of one job."""

    __slots__ = ("_engine", "_rules", "_schedules", "_settling")

    def __init__(self, engine: Engine, rules: DeliveryRules, settling: Settling, schedules: Schedules) -> None:
        self._engine = engine
        self._rules = rules
        self._settling = settling
        self._schedules = schedules

    def give_back(self, held: HeldRun) -> None:
        """Nak an unclaimed delivery, later each time."""
        nth = min(max(held.trigger.num_delivered, 1), len(RETURN_DELAYS)) - 1
        held.delivery.nak(timedelta(seconds=RETURN_DELAYS[nth]))

    def first(self, digest: str | None, trigger: Trigger) -> RunRecord | None:
        """The record that claims a run nobody has a record of, to be created; `None` when it isn't to be started."""
        action = self._decide(None, trigger, self._engine.new_claim(), digest)
        return action.record if isinstance(action, Write) and action.then == "start" else None

    async def after(self, held: HeldRun, wanted: RunRecord, error: BrokerError) -> bool:
        """`claim` from where creating the record of `first` failed with `error`.

        Raises:
            BrokerError: nothing was written; `Undecided`: redelivery has to sort it out.
        """
        if isinstance(error, AnswerUnknown):
            if await self._recognise(held, wanted):
                return True
        elif not isinstance(error, WrongRevision):
            raise error
        held.claim = None
        stored = await self._read_again(held, tried=True)
        return await self.claim(held, stored, wanted.payload_digest, tried=True)

    async def claim(self, held: HeldRun, stored: Stored | None, digest: str | None, *, tried: bool = False) -> bool:
        """True when the run is claimed and its handler may start; else the delivery was dealt with.

        `stored` is the record if it was read already, `tried` whether a write was tried before.

        Raises:
            BrokerError: the store can't be reached and nothing was written; the delivery may go back.
            PayloadInvalidError: the record is of a newer version; a newer host can read it.
            Undecided: redelivery has to sort it out.
        """
        engine = self._engine
        claim = engine.new_claim()
        holds: bool | None = None
        behind = 0
        while True:
            record = stored.record if stored is not None else None
            action = self._decide(record, held.trigger, claim, digest, holds=holds)
            if isinstance(action, Ask):
                holds = await engine.backend.broker.ask_owner(action.host_id, held.key, action.claim)
                continue
            if isinstance(action, Write):
                if await self._write(held, action.record, stored):
                    return action.then == "start" or await self._retired(held, action.record)
                tried = True
            elif isinstance(action, ReadAgain):
                behind += 1
                if behind > READ_AGAIN_LIMIT:
                    if not tried:
                        self.give_back(held)
                    return False
            else:
                await self._leave(held, action)
                return False
            stored, holds = await self._read_again(held, tried=tried), None

    async def _read_again(self, held: HeldRun, *, tried: bool) -> Stored | None:
        try:
            return await self._engine.backend.runs.get(held.key)
        except (BrokerError, PayloadInvalidError) as error:
            if tried:
                raise Undecided(str(error)) from error
            raise

    def _decide(
        self, record: RunRecord | None, trigger: Trigger, claim: str, digest: str | None, *, holds: bool | None = None
    ) -> Action:
        # Without a record nobody owns the run, and the age of the connection decides nothing.
        age = _NO_AGE if record is None else self._connected_for()
        situation = Situation(claim, age, digest, owner_holds=holds)
        return decide(record, trigger, situation, rules=self._rules, now=self._engine.backend.broker.now())

    def _connected_for(self) -> timedelta:
        since = self._engine.backend.broker.connected_since
        return _NO_AGE if since is None else timedelta(seconds=self._engine.clock.monotonic() - since)

    async def _write(self, held: HeldRun, record: RunRecord, stored: Stored | None) -> bool:
        """Create or update; False when somebody else wrote first."""
        runs = self._engine.backend.runs
        if record.status is RunStatus.RUNNING:
            held.claim = record.claim
        ttl = self._ttl(record)
        try:
            revision = await (
                runs.create(record, ttl=ttl) if stored is None else runs.update(record, stored.revision, ttl=ttl)
            )
        except WrongRevision:
            held.claim = None
            return False
        except AnswerUnknown:
            return await self._recognise(held, record)
        held.record, held.revision = record, revision
        return True

    def _ttl(self, record: RunRecord) -> timedelta | None:
        return self._settling.ttl(record) if record.status.is_terminal else None

    async def _recognise(self, held: HeldRun, wanted: RunRecord) -> bool:
        """Whether the write whose answer was lost stands. Never guesses: waits until the record can be read."""
        try:
            stored = await self._settling.read_until_known(held.key)
        except PayloadInvalidError as error:
            raise Undecided(str(error)) from error
        if stored is None or stored.record.claim != wanted.claim or stored.record.status is not wanted.status:
            held.claim = None
            return False
        held.record, held.revision = stored.record, stored.revision
        return True

    async def _retired(self, held: HeldRun, ended: RunRecord) -> bool:
        """The run ended without a start: tell its schedule, then let the message go. Always False."""
        await self._schedules.note_end(ended)
        held.delivery.ack()
        self._engine.backend.broker.announce_end(ended)
        return False

    async def _leave(self, held: HeldRun, action: Action) -> None:
        match action:
            case Ack(why):
                log.debug("delivery_retired", run=str(held.key), why=why)
                held.delivery.ack()
            case Drop(why):
                log.debug("delivery_dropped", run=str(held.key), why=why)
            case Help(record):
                await self._settling.publish_retry(record, held.trigger)
                held.delivery.ack()
            case Ask() | Write() | ReadAgain():
                raise AssertionError(action)
            case _:
                assert_never(action)
