"""One host's obedience to what people ordered for its jobs: paused, or another limit.

::

    client ──orders, compare-and-set──▶ `_jobs` bucket ──doorbell, else within ten seconds──▶ every host
                                                                                               │
              the job's consumer: max_ack_pending, paused by the broker  ◀──────────────────────┤
              this host's own slots, and whether it decides the job's ticks  ◀─────────────────┘

The broker enforces both, so they hold for hosts that haven't heard yet, and for those that just start. Every host
brings the consumer in line, again at each pass while something is ordered: one that was made anew, or brought to the
limit that another release declares, is not left so.

While a job is paused no host decides its ticks. They wait, as they do while there is no host at all, and are judged
when the job goes on: by grace and coalescing, at that instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jetjobs._core.controls import Standing, standing
from jetjobs._engine.tasks import in_batches
from jetjobs._log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jetjobs._core.models import JobAddress
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.runner import Runner
    from jetjobs._ports import StoredControl
    from jetjobs.job import Job

log = get_logger("jetjobs.engine")

PASS_EVERY: Final = 10.0


class Controls:
    """Knows the orders for this host's jobs, and brings consumers and slots in line with them."""

    interval = PASS_EVERY

    def __init__(self, engine: Engine, jobs: Iterable[Job[Any, Any]], limits: Mapping[JobAddress, int]) -> None:
        self._engine = engine
        self._declared = limits  # of each job; another's word may change them
        # What is ordered for a job holds under its old names too.
        self._names = {job.address: (job.now_called.address,) if job.now_called else () for job in jobs}
        self._known: dict[JobAddress, StoredControl] = {}
        self._applied: dict[JobAddress, Standing] = {}
        self._ordered: set[JobAddress] = set()  # jobs to look after: what was ordered may have been removed since
        self._runners: dict[JobAddress, Runner] = {}
        self._rung: set[JobAddress] = set()
        self.wake: Callable[[], None] = _nothing

    async def prepare(self, *, update: bool) -> None:
        """Make the consumers exist, as it is declared and ordered; without `update` only those that are missing."""
        await self._learn(set())
        await in_batches(self._ensure(address, self._standing(address), update=update) for address in self._declared)

    async def bring_in_line(self, addresses: Iterable[JobAddress]) -> None:
        """Give the consumers of these jobs the limit that is declared and ordered now."""
        await in_batches(self._ensure(address, self._standing(address), update=True) for address in addresses)

    def attach(self, runners: Iterable[Runner]) -> None:
        """Have these take as many at once as is ordered, now and later."""
        self._runners = {runner.hosted.address: runner for runner in runners}
        for address, runner in self._runners.items():
            if self._orders(address):
                runner.resize(self._standing(address).limit)

    def rung(self, address: JobAddress) -> None:
        """Somebody ordered something for a job."""
        if any(address in (name, *others) for name, others in self._names.items()):
            self._rung.add(address)
            self.wake()

    async def mend(self) -> None:
        """Put right what somebody edited at the consumers by hand."""
        broker = self._engine.backend.broker
        await in_batches(broker.mend_consumer(address) for address in self._declared)

    async def one_pass(self) -> None:
        """Read the orders, and bring in line what they concern."""
        rung, self._rung = self._rung, set()
        await self._learn(rung)
        await in_batches(self._apply(address) for address in tuple(self._ordered))

    async def _learn(self, rung: set[JobAddress]) -> None:
        """What is ordered. A list may come late: the leader tells where a bell rang, and where one knows less."""
        catalog = self._engine.backend.catalog
        listed = {stored.control.address: stored for stored in await catalog.controls()}
        behind = {name for name, known in self._known.items() if not _as_new(listed.get(name), known)}
        self._known |= {name: stored for name, stored in listed.items() if name not in behind}
        for name in rung | behind:
            found = await catalog.control(name)
            if found is not None:
                self._known[name] = found
            else:
                self._known.pop(name, None)
        self._ordered.update(filter(self._orders, self._declared))

    def _orders(self, address: JobAddress) -> list[StoredControl]:
        return [self._known[name] for name in (*self._names[address], address) if name in self._known]

    def _standing(self, address: JobAddress) -> Standing:
        return standing(self._declared[address], *(stored.control for stored in self._orders(address)))

    async def _apply(self, address: JobAddress) -> None:
        now = self._standing(address)
        if all(stored.control.max_concurrency is None for stored in self._orders(address)):
            # No limit is ordered: that of the host that described the job last holds, for all of them the same.
            described = await self._engine.backend.catalog.job(address)
            if described is not None:
                now = now._replace(limit=described.max_concurrency)
            if now == self._applied.get(address) and not now.paused:
                self._let_be(address)
                return
        await self._ensure(address, now, update=True)
        if address in self._runners:
            self._runners[address].resize(now.limit)
        self._let_be(address)

    def _let_be(self, address: JobAddress) -> None:
        """What nobody orders anything for is left as it is from now on."""
        if not self._orders(address):
            self._ordered.discard(address)

    async def _ensure(self, address: JobAddress, now: Standing, *, update: bool) -> None:
        engine = self._engine
        before = self._applied.get(address)
        if now.paused:
            engine.paused.add(address)  # first: what is due from now on waits
        await engine.backend.broker.ensure_consumer(address, now.limit, paused=now.paused, update=update)
        if not now.paused:
            engine.paused.discard(address)
        self._applied[address] = now
        if before != now and (before is not None or now.paused):
            log.info("job_controlled", job=str(address), limit=now.limit, paused=now.paused)


def _as_new(listed: StoredControl | None, known: StoredControl) -> bool:
    return listed is not None and listed.revision >= known.revision


def _nothing() -> None:
    return
