"""Lets finished runs go: their records by age and number, then their large bodies, then bodies that nobody names.

One host of a project prunes at a time, by a lease that outlives it by less than an upkeep interval. Should two do it at
once, nothing is harmed: each record goes by a compare-and-set. What is in the stream decides last: a record whose run
still has a message there stays, because it is what keeps that message from starting the run again.

A pass holds no records. It counts them, removes what is too old on the way, and looks a second time at jobs that have
too many, holding the little that is needed of the oldest. Where nothing was written and nothing is due, it is one call.
"""

from __future__ import annotations

import asyncio
import zlib
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, cast

from jetjobs._core import names
from jetjobs._core.retention import ORPHAN_AGE, Doomed, Oldest, RetentionRules, Survey, stub, ttl_left
from jetjobs._engine.leftovers import anything_there
from jetjobs._log import get_logger
from jetjobs.errors import WrongRevision

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Iterable

    from jetjobs._core.models import JobAddress
    from jetjobs._engine.engine import Engine
    from jetjobs._ports import Holding, Stored

log = get_logger("jetjobs.engine")

_HELD: Final = 50_000  # of a job's surplus at once: some ten megabytes
_SUSPECTS: Final = 20_000  # runs with bodies that are looked at in one pass
_ORPHANS: Final = 200  # of them that are asked about one by one, which reads a chunk each
_LEASE_SHARE: Final = 0.8  # so that the holder's own next pass finds it free
_LEAST_LEASE: Final = timedelta(seconds=1)


async def _nobody() -> Collection[str]:
    return ()


class Pruner:
    """Upkeep of what has ended. `named` gives the ids of runs that schedules still wait for."""

    def __init__(
        self, engine: Engine, rules: RetentionRules, named: Callable[[], Awaitable[Collection[str]]] = _nobody
    ) -> None:
        self._engine = engine
        self._rules = rules
        self._named = named
        self._turn = 0
        self._parts = 1
        self._saw_all = True
        # What was there when a pass found nothing to do, and until when that holds if nobody writes.
        self._rested: tuple[int, int] | None = None
        self._rests_until: datetime | None = None

    async def one_pass(self) -> None:
        """Bring records and bodies within their limits, if no other host does."""
        engine = self._engine
        lease = max(engine.settings.upkeep_every * _LEASE_SHARE, _LEAST_LEASE)
        if not await engine.backend.catalog.lease("pruner", engine.host_id, lease):
            return
        records, bodies = await engine.backend.runs.holding(), await engine.backend.payloads.holding()
        if self._nothing_to_do(records, bodies):
            return
        rules = self._rules.described(await engine.backend.catalog.jobs())
        work = _Pass(engine, rules, await self._named(), await self._suspects(bodies))
        await work.run()
        did = work.deleted or work.shrunk or work.orphans
        rests = work.complete and self._saw_all and not did
        self._rested = (records.last_revision, bodies.last_revision) if rests else None
        self._rests_until = work.due_at
        if did:
            log.info("runs_pruned", deleted=work.deleted, shrunk=work.shrunk, orphaned_bodies=work.orphans)

    def _nothing_to_do(self, records: Holding, bodies: Holding) -> bool:
        if not records.entries and not bodies.entries:
            return True
        if self._rested != (records.last_revision, bodies.last_revision):
            return False
        return self._rests_until is None or self._engine.backend.broker.now() <= self._rests_until

    async def _suspects(self, bodies: Holding) -> set[str]:
        """Runs that have bodies, of which the survey strikes out those with a record: all, or a part each pass."""
        self._saw_all = True
        if not bodies.entries:
            return set()
        self._turn, parts, seen = self._turn + 1, self._parts, 0
        suspects: set[str] = set()
        async with aclosing(cast("AsyncGenerator[str]", self._engine.backend.payloads.run_ids())) as ids:
            async for run_id in ids:
                seen += 1
                if zlib.crc32(run_id.encode()) % parts == self._turn % parts and len(suspects) < _SUSPECTS:
                    suspects.add(run_id)
        self._saw_all = parts == 1 and seen <= _SUSPECTS
        self._parts = 1 if seen <= _SUSPECTS else 1 + 2 * seen // _SUSPECTS
        return suspects


class _Pass:
    """One pass: what it found, and what it did."""

    def __init__(self, engine: Engine, rules: RetentionRules, named: Collection[str], suspects: set[str]) -> None:
        self._engine = engine
        self._rules = rules
        self._named = named
        self._suspects = suspects
        self._batch = rules.default.max_deletes
        self.deleted = 0
        self.shrunk = 0
        self.orphans = 0
        self.complete = True
        self.due_at: datetime | None = None

    async def run(self) -> None:
        """Ages first, then numbers, then bodies without a run."""
        over = await self._by_age()
        for job, surplus in over.items():
            await self._by_number(job, surplus)
        await self._orphaned_bodies()

    async def _by_age(self) -> dict[JobAddress, int]:
        survey = self._survey()
        batch: list[Doomed] = []
        async with aclosing(self._scan(None)) as scan:
            async for record, revision, stored_at in scan:
                self._suspects.discard(record.run_id)
                doomed = survey.see(record, revision, stored_at)
                if doomed is not None:
                    batch.append(doomed)
                if len(batch) >= self._batch:
                    await self._let_go(batch)
                    batch = []
        await self._let_go(batch)
        self._due(survey.due_at)
        return survey.excess

    async def _by_number(self, job: JobAddress, surplus: int) -> None:
        while surplus > 0:
            surplus, found = await self._surplus(job, min(surplus, _HELD))
            if surplus and not found:
                self.complete = False  # all of them are too young, or a schedule waits for them
            gone = 0
            for start in range(0, len(found), self._batch):
                gone += await self._let_go(found[start : start + self._batch])
            surplus -= gone
            if gone < len(found) or not found:
                return  # what stayed has a message in the stream, or is another pruner's

    async def _surplus(self, job: JobAddress, most: int) -> tuple[int, list[Doomed]]:
        """How many a job has too many, and the oldest of them.

        Both come from one look. A number from an earlier look would be that of before another pruner was at work, and
        the oldest so many of what it left would be some that must stay.
        """
        survey, oldest = self._survey(), Oldest(most)
        async with aclosing(self._scan(job)) as scan:
            async for record, revision, stored_at in scan:
                aged = survey.see(record, revision, stored_at)
                doomed = survey.surplus(record, revision, stored_at) if aged is None else None
                if doomed is not None:
                    oldest.offer(doomed)
        surplus = survey.excess.get(job, 0)
        return surplus, list(oldest)[:surplus]

    async def _let_go(self, batch: list[Doomed]) -> int:
        """Delete or shrink those of which nothing is in the stream; how many there were."""
        if not batch:
            return 0
        engine = self._engine
        now = engine.backend.broker.now()
        waiting = await engine.backend.broker.in_stream([each.run for each in batch if not each.expired(now)])
        free = [each for each in batch if each.run not in waiting and each.run not in engine.held]
        went = sum(await _all(self._shrink(each) if each.shrinks else self._delete(each) for each in free))
        self.complete = self.complete and went == len(batch)
        await engine.clock.sleep(0)  # heartbeats and runs first
        return went

    async def _delete(self, doomed: Doomed) -> bool:
        backend = self._engine.backend
        if not await backend.runs.delete(doomed.run, doomed.revision):
            return False
        self.deleted += 1
        if doomed.bodies_outside:
            await backend.payloads.purge(doomed.run.run_id)
        return True

    async def _shrink(self, doomed: Doomed) -> bool:
        backend = self._engine.backend
        stored = await backend.runs.get(doomed.run)
        if stored is None or stored.revision != doomed.revision:
            return False
        small, now = stub(stored.record), backend.broker.now()
        ttl = ttl_left(small, self._rules.of(doomed.run.address), now)
        try:
            await backend.runs.update(small, stored.revision, ttl=ttl)
        except WrongRevision:
            return False
        self.shrunk += 1
        if doomed.bodies_outside:
            await backend.payloads.purge(doomed.run.run_id)
        return True

    async def _orphaned_bodies(self) -> None:
        """Bodies of runs that have no record: their message may be waiting, or be on its way here."""
        suspects = list(self._suspects)
        # Those whose runs wait in the stream are asked about in vain, so it is others each pass.
        self._engine.shuffle(suspects)
        for run_id in suspects[:_ORPHANS]:
            await self._judge_orphan(run_id)
        self.complete = self.complete and len(suspects) <= _ORPHANS

    async def _judge_orphan(self, run_id: str) -> None:
        backend = self._engine.backend
        now = backend.broker.now()
        if await self._waits(run_id):
            self._due(now + ORPHAN_AGE)
            return
        stored_at = await backend.payloads.newest(run_id)
        if stored_at is not None and now - stored_at < ORPHAN_AGE:
            self._due(stored_at + ORPHAN_AGE)
        # A run that has left the stream meanwhile has its record by now.
        elif stored_at is not None and not await backend.runs.find(run_id):
            await backend.payloads.purge(run_id)
            self.orphans += 1

    async def _waits(self, run_id: str) -> bool:
        """Whether a message of a run is in the stream, or becomes another one there."""
        broker = self._engine.backend.broker
        return await anything_there(broker, names.run_id_places(broker.project, run_id))

    def _scan(self, job: JobAddress | None) -> AsyncGenerator[Stored]:
        # Both stores' are generators, and one that is left in the middle should end then and there.
        return cast("AsyncGenerator[Stored]", self._engine.backend.runs.scan(job))

    def _survey(self) -> Survey:
        return Survey(self._rules, self._engine.backend.broker.now(), self._named)

    def _due(self, at: datetime | None) -> None:
        if at is not None and (self.due_at is None or at < self.due_at):
            self.due_at = at


async def _all(calls: Iterable[Coroutine[Any, Any, bool]]) -> list[bool]:
    """What calls made together came to; the first error once all have ended."""
    results: list[bool] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
