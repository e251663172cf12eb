"""The end of an attempt: saved, announced, its retry published or its schedule told, and then acked."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from jetjobs._core.models import RunStatus
from jetjobs._engine.telling import tell_failure
from jetjobs._log import get_logger

if TYPE_CHECKING:
    from jetjobs._core.completion import Ending
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.held import HeldRun
    from jetjobs._engine.schedules import Schedules
    from jetjobs._engine.settling import Settling

log = get_logger("jetjobs.engine")


class Finishing:
    """Finishes the runs of one job whose code has gone."""

    __slots__ = ("_engine", "_schedules", "_settling")

    def __init__(self, engine: Engine, settling: Settling, schedules: Schedules) -> None:
        self._engine = engine
        self._settling = settling
        self._schedules = schedules

    async def finish(self, held: HeldRun, ending: Ending) -> None:
        """The code has gone: save unless that was done early, publish the retry if it becomes one, ack."""
        if held.early is not None:
            await asyncio.wait([held.early])
        else:
            await self.save(held, ending)
        saved = held.saved
        if saved is None:
            log.warning("run_lost_to_another_host", run=str(held.key))
            return
        if saved.status is RunStatus.RETRYING:
            await self._settling.publish_retry(saved, held.trigger)
        elif saved.schedule_id is not None:
            await self._schedules.note_end(saved)
        held.delivery.ack()
        if saved.error is not None:
            tell_failure(saved)

    async def save(self, held: HeldRun, ending: Ending) -> None:
        """Save the outcome into `held.saved`, which stays `None` when the run is no longer this host's."""
        held.ending = True
        if held.beat is not None:
            await asyncio.wait([held.beat])
        if held.fenced:
            return
        saved = held.saved = await self._settling.save(held, ending)
        if saved is not None and saved.status.is_terminal:
            self._engine.backend.broker.announce_end(saved)
