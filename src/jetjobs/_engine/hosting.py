"""The order in which a host starts and stops, over ports only.

Start: claims to be judged need consumers and descriptors first, and asks must be answered before the first run is
held. Stop is the reverse, with one addition: running handlers get the drain time, are then told to stop, and
what ignores that is left to redelivery.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jetjobs._engine.controls import Controls
from jetjobs._engine.describing import Describing
from jetjobs._engine.draining import Draining
from jetjobs._engine.engine import Engine
from jetjobs._engine.event_bridge import EventBridge
from jetjobs._engine.gateway import Gateway
from jetjobs._engine.health import Findings, events_health, jobs_health
from jetjobs._engine.heartbeat import Heartbeat, Renewal
from jetjobs._engine.held import HeldRuns
from jetjobs._engine.hosted import NameSlots, host_job
from jetjobs._engine.presence import Presence
from jetjobs._engine.pruner import Pruner
from jetjobs._engine.reaper import Reaper
from jetjobs._engine.reconciler import PASS_EVERY, Declared, Reconciler
from jetjobs._engine.runner import Runner
from jetjobs._engine.schedules import Schedules
from jetjobs._engine.service import Service
from jetjobs._engine.slots import Slots
from jetjobs._engine.tasks import Tasks, in_batches, seen_through
from jetjobs._engine.threads import HandlerThreads
from jetjobs._engine.watchdog import Watchdog
from jetjobs._log import get_logger
from jetjobs.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jetjobs._clock import Clock, Timer
    from jetjobs._core.descriptors import JobDescriptor
    from jetjobs._core.models import JobAddress
    from jetjobs._core.policy import JobRetention
    from jetjobs._engine.asking import Asking
    from jetjobs._engine.health import State
    from jetjobs._ports import Backend
    from jetjobs.config import HostSettings
    from jetjobs.job import Job
    from jetjobs.module import Module

log = get_logger("jetjobs.engine")

AFTER_INTERRUPT = 2.0


@dataclass(frozen=True, slots=True)
class Served:
    """A module and those of its jobs that this host runs."""

    module: Module
    jobs: tuple[Job[Any, Any], ...]

    def with_old_names(self) -> Served:
        """The same with each renamed job once more for each of its old names."""
        old = (each for each in self.module.old_names.values() if each.now_called in self.jobs)
        return Served(self.module, (*self.jobs, *old))


class Hosting:
    """One host's life between `start` and `close`."""

    def __init__(
        self,
        backend: Backend,
        served: Sequence[Served],
        settings: HostSettings,
        *,
        clock: Clock,
        host_id: str,
        version: str | None,
        schedules: bool = True,
        asking: Asking | None = None,
        on_drain: Callable[[], object] | None = None,
    ) -> None:
        self._served = served = [each.with_old_names() for each in served]
        self._states = AsyncExitStack()
        self._runners: list[Runner] = []
        self.engine = Engine(
            backend=backend,
            settings=settings,
            clock=clock,
            held=HeldRuns(),
            tasks=Tasks(),
            threads=HandlerThreads(),
            slots=Slots(settings.capacity),
            thread_slots=Slots(settings.threads),
            host_id=host_id,
            version=version,
            asking=asking,
            own_retention=_own_retention(served),
        )
        descriptors = self._descriptors()
        self.presence = Presence(self.engine, descriptors)
        self._describing = Describing(self.engine, descriptors)
        self._reconciler = Reconciler(self.engine, self._declared()) if schedules else None
        every = [job for each in served for job in each.jobs]
        self._controls = Controls(self.engine, every, self._describing.limits)
        self._draining = Draining(self.engine, self._stop_and_say, on_drain)
        self._services = self._loops()
        self.bridge = EventBridge(self.engine, [job for each in served for job in each.jobs])
        self.gateway = Gateway(self.engine, [job for each in served for job in each.jobs])
        self._watchdog = Watchdog(self.engine)

    def _loops(self) -> list[Service]:
        engine, clock = self.engine, self.engine.clock
        renewal, self._heartbeat, reaper = Renewal(engine), Heartbeat(engine), Reaper(engine)
        pruner = Pruner(engine, engine.retention, Schedules(engine).live_runs)
        upkeep = engine.settings.upkeep_every.total_seconds()
        loops = [
            Service("renewal", renewal.one_pass, renewal.interval, clock=clock),
            Service("heartbeat", self._heartbeat.one_pass, self._heartbeat.interval, clock=clock),
            Service("presence", self.presence.one_pass, self.presence.interval, clock=clock),
            Service("clock", self._measure_clock, min(upkeep, 60.0), clock=clock),
            Service("reaper", reaper.one_pass, upkeep, clock=clock, at_once=True),
            Service("pruner", pruner.one_pass, upkeep, clock=clock, at_once=True),
        ]
        controls = Service("controls", self._controls.one_pass, self._controls.interval, clock=clock)
        self._controls.wake = controls.wake
        again = Service("descriptions", self._describe_again, self._describing.interval, clock=clock)
        consumers = Service("consumers", self._controls.mend, upkeep, clock=clock)
        loops += [controls, again, consumers]
        if self._reconciler is not None:
            loops.append(Service("schedules", self._reconciler.one_pass, PASS_EVERY, clock=clock, at_once=True))
        return loops

    def _declared(self) -> Declared:
        jobs = tuple(job for each in self._served for job in each.jobs)
        modules_jobs = [(*each.module.jobs.values(), *each.module.old_names.values()) for each in self._served]
        every = {job.address for of_module in modules_jobs for job in of_module}
        modules = frozenset(each.module.name for each in self._served)
        return Declared(jobs, modules, frozenset(every - {job.address for job in jobs}))

    def _descriptors(self) -> list[JobDescriptor]:
        return [
            job.descriptor(self.engine.version, self.engine.host_id) for served in self._served for job in served.jobs
        ]

    async def prepare(self, *, update: bool) -> None:
        """Make stream, buckets, consumers and descriptors exist; nothing is taken or scheduled."""
        broker = self.engine.backend.broker
        await broker.ensure_project()
        await self._measure_clock()  # before anything is written that says when
        await self._describing.describe()
        await self._controls.prepare(update=update)
        if update:
            # A newer release may have described a job between the two: its limit is the last word.
            await self._controls.bring_in_line(await self._describing.look())
            await self.presence.appear()

    async def _describe_again(self) -> None:
        await self._controls.bring_in_line(await self._describing.one_pass())

    async def start(self) -> None:
        """Serve."""
        engine = self.engine
        for served in self._served:
            state = await self._states.enter_async_context(served.module.open_state())
            # Each name of a renamed job has the job's limit at the broker; on one host they share it.
            shared = {job: NameSlots(job.policy.max_concurrency) for job in served.jobs if job.policy.aliases}
            for job in served.jobs:
                if job.policy.timeout is None and job.now_called is None:
                    log.warning("job_without_timeout", job=str(job.address))
                slots = shared.get(job.now_called or job)
                self._runners.append(Runner(engine, host_job(engine, served.module, job, state=state, shared=slots)))
        await engine.backend.broker.answer_asks(engine.host_id, engine.held.holds)
        await engine.backend.broker.hear_cancels(self._heartbeat.heard_cancel)
        await engine.backend.broker.hear_controls(self._controls.rung)
        await engine.backend.broker.answer_drains(engine.host_id, self._draining.asked)
        self._controls.attach(self._runners)
        await self.presence.compare()
        if self._reconciler is not None:
            await self._reconciler.start()
        await self.bridge.start()
        for service in self._services:
            service.start()
        self._watchdog.start()
        await in_batches(runner.start() for runner in self._runners)
        await self.gateway.start()
        log.info("host_started", host=engine.host_id, jobs=len(self._runners), project=engine.backend.broker.project)

    async def _measure_clock(self) -> None:
        await self.engine.backend.broker.measure_clock()  # which warns of a clock that is far off

    def findings(self, state: State) -> Findings:
        """What its parts say of themselves; from any thread."""
        engine, died = self.engine, self.died
        return Findings(
            state=state,
            connected=engine.backend.broker.connected_since is not None,
            died=None if died is None else repr(died),
            unwritten=self.presence.problem or engine.unwritten,
            blocked_for=self._watchdog.blocked_for,
            jobs=jobs_health(self._runners, engine.held, engine.paused),
            events=events_health(self.bridge.routes),
        )

    @property
    def died(self) -> BaseException | None:
        """What ended a loop against its will, if anything did."""
        services = (*self._services, self.bridge.service)
        return next((error for service in services if (error := service.died) is not None), None)

    async def close(self) -> bool:
        """Take nothing more, drain, interrupt, let go; False when a handler still runs.

        Whoever has no patience for that cancels it: then the runs in hand are let go at once.
        """
        try:
            await self._stop_taking()
            return await self._drain()
        finally:
            try:
                await seen_through(self._let_go())
            finally:
                await self._close_states()  # in the caller's task, in which most were entered

    async def _let_go(self) -> None:
        engine = self.engine
        try:
            await self._stop_taking(patience=0)  # again, should somebody have cut that short
        except BrokerError as error:
            log.debug("taking_not_stopped", error=str(error))
        self._watchdog.stop()
        for service in self._services:
            await service.stop()
        await engine.tasks.cancel_all()
        engine.threads.close()
        if engine.children.used:
            await asyncio.to_thread(engine.children.close)
        try:
            await self.presence.leave()
        except BrokerError as error:
            log.debug("presence_not_removed", error=str(error))

    async def _close_states(self) -> None:
        """Leave the modules' lifespans. One that waits for what never comes is cancelled after the drain time."""
        limit = self.engine.settings.drain.total_seconds()
        try:
            async with asyncio.timeout(limit):
                await self._states.aclose()
        except TimeoutError:
            modules = ", ".join(sorted({each.module.name for each in self._served}))
            log.error("lifespan_not_left", within=limit, modules=modules)  # noqa: TRY400 - nobody's traceback helps

    async def _stop_taking(self, patience: float | None = None) -> None:
        await self.gateway.stop(patience)  # first: other hosts are to hear what is called from now on
        await self.bridge.stop(patience)  # then, and while runs are taken: what it stores now needs no slot here
        self.engine.draining = True
        for runner in self._runners:
            await runner.stop()

    async def _stop_and_say(self) -> None:
        """Take nothing more, and let others see it."""
        await self._stop_taking()
        try:
            await self.presence.one_pass()
        except BrokerError as error:
            log.debug("draining_not_said", error=str(error))  # the next pass says it

    async def _drain(self) -> bool:
        """Wait for running handlers, then tell them to stop; every run gets its job's own drain time or the host's."""
        engine = self.engine
        clock, began = engine.clock, engine.clock.monotonic()
        default = engine.settings.drain
        patience = {runner.hosted.address: runner.hosted.job.policy.drain for runner in self._runners}
        timers: list[Timer] = []
        longest = 0.0
        for held in engine.held:
            drain = patience.get(held.key.address)
            left = (default if drain is None else drain).total_seconds() - (clock.monotonic() - began)
            if held.early is not None:
                left = 0.0  # It ignores an earlier order to stop, and its outcome is saved: nothing to wait for.
            longest = max(longest, left)
            timers.append(clock.call_later(max(left, 0.0), lambda held=held: held.stop("shutdown")))
        grace = engine.settings.interrupt_grace.total_seconds()
        # A child process gets a second one, between SIGTERM and SIGKILL.
        patient_for = longest + grace * (2 if engine.children.busy else 1) + AFTER_INTERRUPT
        try:
            ended = await engine.tasks.wait_idle(patient_for)
        finally:
            for timer in timers:
                timer.cancel()
        if not ended:
            log.error("handlers_left_behind", runs=[str(held.key) for held in engine.held])
        return ended


def _own_retention(served: Sequence[Served]) -> Mapping[JobAddress, JobRetention]:
    jobs = [job for each in served for job in each.jobs]
    return {job.address: job.policy.retention for job in jobs if job.policy.retention is not None}
