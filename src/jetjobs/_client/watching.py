"""Records as they change: looked for again and again from where the last look ended, so that an outage loses nothing.

A record is shown as it is when it is met: of changes in quick succession only the last is seen.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from typing import Final

from jetjobs._client.calls import read
from jetjobs._client.scanning import unroll, where
from jetjobs._client.scope import Scope
from jetjobs._core.models import RunRecord
from jetjobs._core.run_filter import RunFilter
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, ClientError

_SHORTEST: Final = 0.1
_LONGEST: Final = 0.5
_AT_ONCE: Final = 200


class Watch:
    """One watch of a client; `scope` raises once the client is closed, which ends it."""

    def __init__(self, scope: Callable[[], Scope], wanted: RunFilter, heartbeat: float | None) -> None:
        self._scope = scope
        self._wanted = wanted
        self._heartbeat = heartbeat
        self._revision = 0
        self._lost_sight = False
        self._pause = _SHORTEST
        self._told = 0.0

    async def batches(self, *, existing: bool) -> AsyncGenerator[list[RunRecord], None]:
        """Changed records, some at a time in the order of their changes; an empty list is a heartbeat.

        The first heartbeat says that the watch has begun. `existing` gives those that are there already, before.
        """
        scope = self._scope()
        held = await read(scope.backend.runs.holding, scope.deadline(), "watching runs")
        self._revision = held.last_revision
        if existing:
            async for batch in unroll(scope, self._wanted, scope.deadline()):
                yield batch
        self._told = time.monotonic()
        if self._heartbeat is not None:
            yield []
        while self._is_open():
            async for batch in self._look(scope):
                if batch or self._is_due():
                    self._told = time.monotonic()
                    yield batch
            await asyncio.sleep(self._next_pause())

    def _is_open(self) -> bool:
        try:
            self._scope().check_open()
        except ClientError:
            return False
        return True

    async def _look(self, scope: Scope) -> AsyncGenerator[list[RunRecord], None]:
        """What was written since the last look; an empty batch at its end."""
        job, module = where(self._wanted)
        batch: list[RunRecord] = []
        try:
            if self._lost_sight:
                await self._begin_again(scope)
            async for stored in scope.backend.runs.written_after(self._revision, job, module=module):
                self._revision = stored.revision
                self._pause = _SHORTEST
                if self._wanted.passes(stored.record):
                    batch.append(stored.record)
                if len(batch) >= _AT_ONCE:
                    yield batch
                    batch = []
        except (BrokerUnavailable, AnswerUnknown):
            self._lost_sight = True
        yield batch

    async def _begin_again(self, scope: Scope) -> None:
        """After an outage: a bucket that was made anew counts from the beginning."""
        held = await scope.backend.runs.holding()
        if held.last_revision < self._revision:
            self._revision = 0
        self._lost_sight = False

    def _is_due(self) -> bool:
        return self._heartbeat is not None and time.monotonic() - self._told >= self._heartbeat

    def _next_pause(self) -> float:
        pause, self._pause = self._pause, min(self._pause * 1.5, _LONGEST)
        if self._heartbeat is None:
            return pause
        return min(pause, max(0.0, self._told + self._heartbeat - time.monotonic()))
