"""Waiting for a run's end: told by its announcement, which may be lost, or found by looking, ever more rarely."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta

from jetjobs._client.calls import Deadline
from jetjobs._client.reading import Reader
from jetjobs._client.scope import Scope
from jetjobs._core.models import RunKey, RunRecord
from jetjobs.errors import AnswerUnknown, BrokerUnavailable

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0

# A run just triggered has a message, and looking for it in the first moments would only slow everybody down.
_TRUSTED_LOOKS = 2

_Heard = Callable[[timedelta], Awaitable[bool]]


async def wait_for_end(scope: Scope, run: RunKey, limit: float | None) -> RunRecord:
    """The terminal record, without a large result.

    Raises:
        TimeoutError: not ended within `limit` seconds, the broker's outages included.
        RunNotFound: neither a record nor a message of the run.
        ClientError: the client or host is closed, perhaps meanwhile.
    """
    try:
        async with asyncio.timeout(limit), AsyncExitStack() as listening:
            return await _Wait(scope, run, listening).end()
    except TimeoutError:
        raise TimeoutError(f"run {run} has not ended within {limit:g} s") from None


class _Wait:
    def __init__(self, scope: Scope, run: RunKey, listening: AsyncExitStack) -> None:
        self._scope = scope
        self._run = run
        self._listening = listening
        self._reader = Reader(scope)
        self._heard: _Heard | None = None

    async def end(self) -> RunRecord:
        pause = _FIRST_PAUSE
        looks = 0
        while True:
            self._scope.check_open()
            # Listen before looking: an end between the two is found by one of them.
            await self._listen()
            record = await self._look(existing=looks < _TRUSTED_LOOKS)
            if record is not None and record.status.is_terminal:
                return record
            looks += 1
            if not await self._told_within(pause):
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _listen(self) -> None:
        if self._heard is None:
            try:
                self._heard = await self._listening.enter_async_context(self._scope.backend.broker.ended(self._run))
            except (BrokerUnavailable, AnswerUnknown):
                return

    async def _look(self, *, existing: bool) -> RunRecord | None:
        """The record, or what the run shows; `None` while it has no record or the broker is away."""
        deadline = Deadline(_LONGEST_PAUSE)
        try:
            if existing:
                stored = await self._reader.stored(self._run, deadline)
                return stored.record if stored is not None else None
            return await self._reader.known(self._run, deadline)
        except BrokerUnavailable:
            self._scope.check_open()
            return None

    async def _told_within(self, pause: float) -> bool:
        """Whether the end was announced; False after the pause, which real time ends whatever the port does."""
        heard = self._heard
        if heard is None:
            await asyncio.sleep(pause)
            return False
        try:
            async with asyncio.timeout(pause):
                if await heard(timedelta(seconds=pause)):
                    # Each announcement is heard once: from here on looking must do, so that a stale record
                    # (a follower's, a listener's before the write) can't make this loop spin.
                    self._heard = None
                    return True
        except TimeoutError:
            return False
        return False
