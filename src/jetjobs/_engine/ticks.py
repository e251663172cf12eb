"""A schedule's tick in hand: decided first, then gone on with as a delivery of its occurrence's run, or retired.

All ticks of a schedule share one subject, so which run a tick stands for is told by its own headers. Whether that run
may start is told by the schedule's record, never by the tick: a broker that crashed repeats ticks and loses others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from jetjobs._core.models import JobAddress
from jetjobs._core.occurrences import Tick
from jetjobs._core.run_ids import run_id_for_tick
from jetjobs._core.schedule_messages import read_tick, tick_trigger
from jetjobs._core.starting import tick_verdict
from jetjobs._core.timetables import timetable_of
from jetjobs._engine.schedules import UNREADABLE
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError

if TYPE_CHECKING:
    from jetjobs._core.messages import Trigger
    from jetjobs._core.schedule_record import ScheduleRecord
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.schedules import Schedules
    from jetjobs._ports import Delivery

log = get_logger("jetjobs.engine")

_BACK: Final = timedelta(seconds=1)
_ELSEWHERE: Final = timedelta(seconds=5)


class Ticks:
    """Judges the ticks of one job."""

    __slots__ = ("_address", "_engine", "_schedules", "_warned")

    def __init__(self, engine: Engine, schedules: Schedules, address: JobAddress) -> None:
        self._engine = engine
        self._schedules = schedules
        self._address = address
        self._warned: set[str] = set()

    async def judge(self, delivery: Delivery, trigger: Trigger) -> Trigger | None:
        """The trigger of the run that this tick is to start or has started; `None` when it was dealt with."""
        tick = read_tick(delivery.message)
        try:
            try:
                if isinstance(tick, Tick):
                    return await self._judged(delivery, trigger, tick)
                await self._refuse(delivery, trigger, tick)
            except UNREADABLE as error:
                await self._set_aside(delivery, trigger, tick, error)
        except BrokerError as error:
            log.warning("tick_given_back", schedule=trigger.key.run_id, error=str(error))
            delivery.nak(_BACK)
        return None

    async def _set_aside(self, delivery: Delivery, trigger: Trigger, tick: Tick | str, error: Exception) -> None:
        """Leave it to a host that can read the schedule: of a newer release, or one that knows its zone.

        The occurrence isn't lost with the message, as the schedule's record tells what is due. Given back, a tick would
        hold a slot of the job while it waits, and there may be one each second. Only one that may be running stays.
        """
        log.warning("tick_set_aside", schedule=trigger.key.run_id, error=str(error))
        if isinstance(tick, Tick):
            milliseconds = round(tick.occurrence.timestamp() * 1000)
            run = trigger.key._replace(run_id=run_id_for_tick(trigger.key.run_id, milliseconds))
            if await self._engine.backend.runs.get(run) is None:
                delivery.ack()
                return
        delivery.nak(_ELSEWHERE)

    async def _judged(self, delivery: Delivery, trigger: Trigger, tick: Tick) -> Trigger | None:
        backend, message = self._engine.backend, delivery.message
        schedule = await self._schedules.decide(trigger.key.run_id, tick=tick, now=message.stored_at)
        if schedule is None:
            await self._refuse(delivery, trigger, "there is no schedule of this id")
            return None
        if schedule.address != self._address:
            # It fires another job now; what was due before was decided with that edit.
            await self._schedules.start_open(schedule)
            delivery.ack()
            return None
        if tick.zone_differs and schedule.name not in self._warned:
            self._warned.add(schedule.name)
            log.warning(
                "schedule_zone_differs",
                schedule=schedule.name,
                timezone=tick.timezone,
                reason="this host's time zone database has other rules than the broker's: update the older tzdata",
            )
        # By the broker's own word it isn't earlier than that, whatever our estimate of its clock.
        verdict = tick_verdict(schedule, tick, max(backend.broker.now(), message.stored_at))
        found = tick_trigger(schedule, tick, trigger)
        await self._schedules.start_open(schedule, but=tick.occurrence if verdict == "run" else None)
        if verdict == "purge":
            await self._schedules.mend(schedule)
        if verdict == "run" or await backend.runs.get(found.key) is not None:
            return found  # a record, too: this may be the very message that runs it
        delivery.ack()
        return None

    async def _refuse(self, delivery: Delivery, trigger: Trigger, why: str) -> None:
        """Retire a tick that stands for no occurrence; unless it is this machine that can't tell."""
        schedule = await self._known(trigger)
        if schedule is not None:
            timetable_of(schedule)  # raises where the zone or the line is unknown here
        log.warning("bad_tick", subject=delivery.message.subject[:200], reason=why)
        if schedule is None:
            await self._schedules.drop_orphan(trigger.key)
        delivery.term(why)

    async def _known(self, trigger: Trigger) -> ScheduleRecord | None:
        stored = await self._engine.backend.schedules.get(trigger.key.run_id)
        return stored.schedule if stored is not None else None
