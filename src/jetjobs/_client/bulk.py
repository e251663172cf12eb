"""Many runs changed in one call: some at a time, each told of by itself, however the others fare."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final

from jetjobs._client.calls import Deadline
from jetjobs._client.choosing import Candidate
from jetjobs._core.run_changes import ChangeOutcome, RunChange
from jetjobs.errors import JetJobsError, RunNotFound

_AT_ONCE: Final = 64

Act = Callable[[Candidate, Deadline], Awaitable[RunChange | None]]
"""Changes one run within the time left; `None` when there was no reason to, after all."""


async def change_each(
    candidates: Iterable[Candidate], act: Act, patience: Deadline, *, limit: int | None = None
) -> list[RunChange]:
    """What became of each, in their order; of at most `limit`, not counting those there was no reason to change.

    `patience` begins anew with each run that is done: once nothing was for so long, what is left fails at once.
    """
    bulk = _Bulk(iter(candidates), act, patience, limit)
    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            if bulk.over:
                break
            group.create_task(bulk.work())
            await asyncio.sleep(0)
    return [done for done in bulk.done if done is not None]


class _Bulk:
    def __init__(self, candidates: Iterator[Candidate], act: Act, patience: Deadline, limit: int | None) -> None:
        self._candidates = candidates
        self._act = act
        self._patience = patience
        self._left = math.inf if limit is None else limit
        self.done: list[RunChange | None] = []
        self.over = False

    async def work(self) -> None:
        """Take candidates one after the other, until there are none left."""
        while self._left > 0 and (candidate := next(self._candidates, None)) is not None:
            self._left -= 1
            place = len(self.done)
            self.done.append(None)
            try:
                done = self.done[place] = await self._act(candidate, self._patience)
                self._patience.renew()
                self._left += done is None
            except JetJobsError as error:
                self.done[place] = failed(candidate, error)
        self.over = True


def failed(candidate: Candidate, error: JetJobsError) -> RunChange:
    """A run that could not be changed."""
    outcome = ChangeOutcome.NOT_FOUND if isinstance(error, RunNotFound) else ChangeOutcome.FAILED
    run = candidate.run
    module, job = (candidate.module, candidate.job) if run is None else run.address
    return RunChange(candidate.run_id, outcome, module, job, error=error)
