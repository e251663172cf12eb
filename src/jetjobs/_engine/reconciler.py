"""Schedules as declared, as recorded and as the stream fires them: brought in line, and kept so.

::

    code ──ensure──▶ record ──mend──▶ message in the stream ──(broker)──▶ tick ──▶ decide
                       ▲                                                             │
                       └──────────────── reconcile: what no tick came for ───────────┘

At its start, before it takes anything, a host writes the schedules it declares where they are missing or differ, and
removes those that its code no longer has. Of hosts that start together one writes; the others lose the compare-and-set,
read, and find it done. What another host's word forbids now is tried again while this host lives: when that host has
gone, a rollout without releases is complete.

After that it looks whether the schedules of its jobs come to what they should:

* at the start, at each upkeep, and within a minute of each reconnect, all of them: decided, open occurrences given
  their trigger, the message published when it is missing and removed when it must not be there;
* at each reconnect and in between, those that are overdue. A broker that crashed can lose the ticks of its last
  minutes, and with an interval of an hour nobody would come by for long. A tick can also wait for a slot that another
  run of its job has; decided meanwhile, it doesn't use up its grace. So a short grace is looked at more often.

A list shows candidates; each is then read from the leader, decided and written under its revision. Schedules whose job
no live host has are made DISABLED after a week in which nobody decided what was due.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from jetjobs._core.declared import Declarer, declared_schedule, ensure, may_remove
from jetjobs._core.occurrences import Decision
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._core.schedules import delete, disable, resume
from jetjobs._core.triggers import Cron, Every
from jetjobs._engine.schedules import UNREADABLE, Schedules
from jetjobs._engine.tasks import in_batches
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet

    from jetjobs._core.descriptors import HostPresence
    from jetjobs._core.models import JobAddress
    from jetjobs._engine.engine import Engine
    from jetjobs._ports import StoredSchedule
    from jetjobs.job import Job

log = get_logger("jetjobs.engine")

PASS_EVERY: Final = 2.0  # only asks whether this host has reconnected
LOOK_EVERY: Final = 20.0
SETTLE_EVERY: Final = 5.0  # whether the host whose word stands has gone, where that would change anything
AFTER_RECONNECT: Final = 60.0
OVERDUE: Final = timedelta(seconds=3)
ABANDONED_AFTER: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a host says of schedules: its jobs' triggers, its modules, and the jobs it leaves to others."""

    jobs: tuple[Job[Any, Any], ...]
    modules: frozenset[str]
    spared: frozenset[JobAddress] = frozenset()

    def triggers(self) -> Iterable[tuple[JobAddress, Cron | Every]]:
        """Each schedule that code declares, with the name it goes by."""
        return ((job.origin, trigger) for job, trigger in self.pairs())

    def pairs(self) -> Iterable[tuple[Job[Any, Any], Cron | Every]]:
        """The same with its job."""
        for job in self.jobs:
            for trigger in job.triggers:
                if isinstance(trigger, Cron | Every):
                    yield job, trigger


class _Hosts:
    """Who lives, as last read."""

    def __init__(self, me: str, hosts: Iterable[HostPresence]) -> None:
        others = [host for host in hosts if host.host_id != me]
        self.ids = {host.host_id for host in others}
        self.jobs = {job for host in others for job in host.jobs}


def _patience(schedule: ScheduleRecord) -> timedelta:
    """How long a tick may take before somebody looks for it."""
    grace = schedule.misfire_grace
    return OVERDUE if grace is None else min(OVERDUE, grace / 3)


def _look_every(schedules: Iterable[ScheduleRecord]) -> float:
    graces = [each.misfire_grace for each in schedules if each.is_active and each.misfire_grace is not None]
    shortest = min(graces, default=None)
    return LOOK_EVERY if shortest is None else min(LOOK_EVERY, max(shortest.total_seconds() / 3, PASS_EVERY))


class Reconciler:
    """One host's care for the schedules of its jobs."""

    def __init__(self, engine: Engine, declared: Declared) -> None:
        self._engine = engine
        self._schedules = Schedules(engine)
        self._triggers = {trigger.schedule_id(address): (address, trigger) for address, trigger in declared.triggers()}
        self._schemas = {
            trigger.schedule_id(job.origin): job.payload_schema_digest for job, trigger in declared.pairs()
        }
        self._spared = declared.spared
        addresses = frozenset(job.address for job in declared.jobs)
        self._me = Declarer(engine.host_id, engine.version, addresses, declared.modules)
        self._unsettled: set[str] = set()  # declared here, and another host's word stands
        self._leftover: set[str] = set()  # not declared here any more, and not to be removed yet
        self._warned: set[tuple[str, str]] = set()
        self._connected_since: float | None = None
        self._next_look = self._next_pass = self._next_settle = float("-inf")

    # ------------------------------------------------------------------------------------------- at the start

    async def start(self) -> None:
        """Write the schedules declared here where they are missing or differ, remove those that were.

        Raises:
            BrokerError: the broker is away.
            ScheduleError: it refuses a schedule; says which and why.
        """
        hosts = await self._hosts()
        await in_batches(self._ensure(schedule_id, hosts) for schedule_id in self._triggers)
        stored = await self._engine.backend.schedules.all()
        self._leftover = {each.schedule.schedule_id for each in stored if self._is_leftover(each.schedule)}
        await in_batches(self._remove(schedule_id, hosts) for schedule_id in list(self._leftover))

    async def _hosts(self) -> _Hosts:
        return _Hosts(self._engine.host_id, await self._engine.backend.catalog.hosts())

    def _is_leftover(self, schedule: ScheduleRecord) -> bool:
        return (
            schedule.schedule_id not in self._triggers
            and schedule.address not in self._spared
            and may_remove(schedule, self._signed(schedule), declarer_lives=False, job_lives=False)
        )

    def _signed(self, schedule: ScheduleRecord) -> Declarer:
        """This host as one whose release forbids nothing: whose it is, is all that is asked."""
        return Declarer(self._me.host_id, schedule.version, self._me.jobs, self._me.modules)

    async def _ensure(self, schedule_id: str, hosts: _Hosts) -> None:
        """Write one declared schedule, and its message."""
        address, trigger = self._triggers[schedule_id]
        try:
            schedule = await self._ensure_record(address, trigger, hosts)
        except UNREADABLE as error:
            self._warn("schedule_left_alone", f"{address}/{trigger.name}", str(error))
            return
        if schedule is not None:
            await self._schedules.start_open(schedule)
            await self._schedules.mend(schedule)

    async def _ensure_record(self, address: JobAddress, trigger: Cron | Every, hosts: _Hosts) -> ScheduleRecord | None:
        backend, schedules = self._engine.backend, self._schedules
        schedule_id = trigger.schedule_id(address)
        while True:
            stored = await backend.schedules.get(schedule_id)
            found = stored.schedule if stored is not None else None
            now, schema = backend.broker.now(), self._schemas[schedule_id]
            ensured = ensure(
                declared_schedule(trigger, address, self._me, now, payload_schema=schema),
                found,
                backend.broker.now(),
                declarer_lives=found is not None and found.declared_by in hosts.ids,
                runs=await schedules.runs_of(found) if found is not None else None,
                rules=schedules.rules,
            )
            if ensured.warning is not None:
                self._unsettled.add(schedule_id)
                self._warn("schedule_declared_differently", f"{address}/{trigger.name}", ensured.warning)
            if ensured.decision is None:
                return found
            written = await schedules.write(stored, ensured.decision)
            if written is not None and not ensured.decision.more:
                self._unsettled.discard(schedule_id)
                log.info("schedule_written", schedule=written.schedule.name, state=written.schedule.state.value)
                return written.schedule

    async def _remove(self, schedule_id: str, hosts: _Hosts) -> None:
        """Make a schedule that code no longer has a tombstone, if this host may."""
        backend = self._engine.backend
        while (stored := await backend.schedules.get(schedule_id)) is not None:
            found = stored.schedule
            if found.state is ScheduleState.DELETED:
                break
            if not may_remove(
                found,
                self._me,
                declarer_lives=found.declared_by in hosts.ids,
                job_lives=str(found.address) in hosts.jobs,
            ):
                return
            # Signed: an older release that starts again must not wake what this one removed.
            gone = replace(delete(found, backend.broker.now()), version=self._me.version, declared_by=self._me.host_id)
            written = await self._schedules.write(stored, Decision(gone))
            if written is not None:
                log.info("schedule_removed", schedule=found.name)
                await self._schedules.mend(written.schedule)
                break
        self._leftover.discard(schedule_id)

    # ------------------------------------------------------------------------------------------- while it lives

    async def one_pass(self) -> None:
        """All schedules of this host's jobs when it is time for that, else the overdue ones, else nothing."""
        engine = self._engine
        since, now = engine.backend.broker.connected_since, engine.clock.monotonic()
        if since is None:
            return
        upkeep = engine.settings.upkeep_every.total_seconds()
        if since != self._connected_since and self._connected_since is not None:
            # Every host is back at this moment, and each would read every schedule: those that are overdue come first.
            soon = now + engine.roll() * min(AFTER_RECONNECT, upkeep)
            self._next_look, self._next_pass = now, min(self._next_pass, soon)
        self._connected_since = since
        everything = now >= self._next_pass
        if self._me.version is None and now >= self._next_settle:
            await self._settle()
            self._next_settle = now + SETTLE_EVERY
        if not everything and now < self._next_look:
            return
        if everything:
            await engine.backend.broker.measure_clock()  # a machine that was asleep reckons what is overdue not due yet
        await self._settle()
        mine = self._me.jobs - engine.paused
        known = await engine.backend.schedules.all()
        await self._restore(self._triggers.keys() - {each.schedule.schedule_id for each in known})
        stored = [each for each in known if each.schedule.address in mine]
        await in_batches(self._reconcile(each) for each in stored if everything or self._is_overdue(each.schedule))
        self._next_look = now + min(upkeep, _look_every(each.schedule for each in stored))
        if everything:
            await self._disable_abandoned()
            self._next_pass = now + upkeep

    async def _settle(self) -> None:
        """Try again what another host's word forbade."""
        if not (self._unsettled or self._leftover):
            return
        hosts = await self._hosts()
        await in_batches(self._guarded(self._ensure(each, hosts), each) for each in list(self._unsettled))
        await in_batches(self._guarded(self._remove(each, hosts), each) for each in list(self._leftover))

    async def _restore(self, lost: AbstractSet[str]) -> None:
        """Write anew what is declared here and was removed from the store: nothing else would ever fire it again."""
        if not lost:
            return
        hosts = await self._hosts()
        for schedule_id in lost:
            address, trigger = self._triggers[schedule_id]
            self._warn("schedule_restored", f"{address}/{trigger.name}", "its record was removed")
        await in_batches(self._guarded(self._ensure(each, hosts), each) for each in lost)

    def _is_overdue(self, schedule: ScheduleRecord) -> bool:
        before = self._engine.backend.broker.now() - _patience(schedule)
        if schedule.is_active and schedule.next_run_at is not None and schedule.next_run_at < before:
            return True
        return bool(schedule.open) and schedule.open[0] < before

    async def _reconcile(self, stored: StoredSchedule) -> None:
        await self._guarded(self._reconciled(stored.schedule), stored.schedule.name)

    async def _reconciled(self, listed: ScheduleRecord) -> None:
        schedules = self._schedules
        if listed.state is ScheduleState.DISABLED:
            await self._wake(listed.schedule_id)
        schedule = await schedules.decide(listed.schedule_id)
        if schedule is not None:
            await schedules.start_open(schedule)
            await schedules.mend(schedule)

    async def _guarded(self, work: Any, which: str) -> None:
        """Do it; one schedule that can't be judged here keeps nobody from the others."""
        try:
            await work
        except UNREADABLE as error:
            self._warn("schedule_left_alone", which, str(error))

    def _warn(self, event: str, which: str, why: str) -> None:
        if (which, why) not in self._warned:
            self._warned.add((which, why))
            log.warning(event, schedule=which, reason=why)

    # ------------------------------------------------------------------------------------------- nobody's schedules

    async def _wake(self, schedule_id: str) -> None:
        """ACTIVE again: its job is hosted here."""
        backend = self._engine.backend
        while (stored := await backend.schedules.get(schedule_id)) is not None:
            if stored.schedule.state is not ScheduleState.DISABLED:
                return
            runs = await self._schedules.runs_of(stored.schedule)
            decision = resume(stored.schedule, backend.broker.now(), runs=runs, rules=self._schedules.rules)
            await self._schedules.write(stored, decision)

    async def _disable_abandoned(self) -> None:
        """Stop the schedules for which nobody did anything in a week, and whose job nobody has."""
        backend = self._engine.backend
        before = backend.broker.now() - ABANDONED_AFTER
        candidates = [
            each.schedule
            for each in await backend.schedules.all()
            if each.schedule.is_active
            and each.schedule.address not in self._me.jobs
            and each.schedule.next_run_at is not None
            and each.schedule.next_run_at < before
        ]
        if not candidates:
            return
        hosts = await self._hosts()
        for schedule in candidates:
            if str(schedule.address) not in hosts.jobs:
                try:
                    await self._guarded(self._disable(schedule.schedule_id), schedule.name)
                except BrokerError as error:
                    log.warning("schedule_not_disabled", schedule=schedule.name, error=str(error))

    async def _disable(self, schedule_id: str) -> None:
        backend = self._engine.backend
        stored = await backend.schedules.get(schedule_id)
        if stored is None:
            return
        written = await self._schedules.write(stored, Decision(disable(stored.schedule, backend.broker.now())))
        if written is not None:
            log.warning("schedule_disabled", schedule=written.schedule.name, reason="no host has its job")
            await self._schedules.mend(written.schedule)
