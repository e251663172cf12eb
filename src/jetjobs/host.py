"""`JobHost`: a process's own job runner. Wires ports to the engine and owns the order of start and drain."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Self

from jetjobs._client.asking import HostAsking
from jetjobs._client.binding import ClientBinding
from jetjobs._client.handle import JobHandle
from jetjobs._client.lookup import JobLookup
from jetjobs._client.scope import Scope
from jetjobs._clock import SystemClock
from jetjobs._core.policy import check_age
from jetjobs._core.renames import served_names
from jetjobs._core.versions import check_version
from jetjobs._engine.health import EventHealth as EventHealth
from jetjobs._engine.health import Findings, State
from jetjobs._engine.health import HostHealth as HostHealth
from jetjobs._engine.health import JobHealth as JobHealth
from jetjobs._engine.hosting import Hosting, Served
from jetjobs._engine.isolation import check_isolation
from jetjobs._engine.leaving import everything_ended, leave, take_over_executor, to_its_end
from jetjobs._engine.presence import fresh_host_id
from jetjobs._engine.probes import Probes
from jetjobs._engine.signals import EXIT_OK, StopSignals, first_of
from jetjobs._engine.tasks import seen_through
from jetjobs._given import modules_given, refuse_collisions
from jetjobs._log import get_logger
from jetjobs._nats import OpenClient, open_backend
from jetjobs._nats.provision import ProvisionSettings
from jetjobs.config import (
    HostSettings,
    HostSwitches,
    connect_options,
    resolve_host_settings,
    resolve_project,
    resolve_switches,
)
from jetjobs.errors import BrokerError, HostError
from jetjobs.module import Module

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from jetjobs._clock import Clock
    from jetjobs._ports import Backend
    from jetjobs.job import Job

log = get_logger("jetjobs.host")

CALL_TIMEOUT = 10.0
GC_THRESHOLD = 10_000


class JobHost:
    """Runs the jobs of some modules in this process.

    `project` names the project (or `JETJOBS_PROJECT`); `nats` is a URL, connect options or an open nats-py client,
    which stays open. `version` (PEP 440) is the release of the user's code. `enabled=False` binds the modules for
    calling and writes nothing. `disable` holds patterns of `module.job` names that this host doesn't run,
    `schedules=False` lets it write and remove no schedules.

    ```python
    async with JobHost([billing], project="shop") as host:
        await host.wait_closed()
    ```
    """

    def __init__(
        self,
        modules: Module | Iterable[Module] = (),
        *,
        project: str | None = None,
        nats: Any = None,
        settings: HostSettings | None = None,
        version: str | None = None,
        enabled: bool = True,
        disable: Iterable[str] = (),
        schedules: bool = True,
        backend: Backend | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.modules = modules_given(modules, "JobHost")
        refuse_collisions(self.modules)
        self.project = backend.broker.project if backend is not None else resolve_project(project)
        self.settings = resolve_host_settings(settings)
        # One pattern without its comma is a text, and would be taken letter by letter.
        patterns = (disable,) if isinstance(disable, str) else tuple(disable)
        self.switches = resolve_switches(HostSwitches(enabled=enabled, disable=patterns, schedules=schedules))
        self.version = check_version(version)
        self.host_id = fresh_host_id()
        for module in self.modules:
            for job in module.jobs.values():
                check_age(job.policy, self.settings.max_age)
        self._nats = nats
        self._given = backend
        self._clock = clock or SystemClock()
        self._backend: Backend | None = None
        self._hosting: Hosting | None = None
        self._binding: ClientBinding | None = None
        self._scope: Scope | None = None
        self._closed = asyncio.Event()
        self._turn = asyncio.Lock()
        self._closing = False
        self._started = False
        self._on_drain: Callable[[], object] | None = None

    # ------------------------------------------------------------- lifetime

    async def prepare(self) -> None:
        """Make stream, descriptors and missing consumers exist, and nothing else.

        A rollout calls this before it serves, so that new jobs can be triggered already. A host that is switched off
        writes nothing here either.
        """
        async with self._turn:  # one connection is made, and what is being closed opens none any more
            if self._closing:
                raise HostError("this host is closed; make another JobHost to prepare again")
            if not self.switches.enabled:
                log.info("host_not_enabled", project=self.project)
                return
            await (await self._open()).prepare(update=False)

    async def start(self) -> None:
        """Connect, make things exist, serve. Within 10 s either that or an error that says what to do.

        Raises:
            BrokerError: not reachable, not let in, too old, or without JetStream.
            ConfigError: a job can't be run in the process it asks for.
            HostError: it was started before.
        """
        async with self._turn:
            await self._start()

    async def _start(self) -> None:
        if self._started or self._closing:
            state = "closed" if self._closing else "started already"
            raise HostError(f"this host is {state}, and starts once; make another JobHost to start again")
        if self.switches.enabled:
            check_isolation((served.module, served.jobs) for served in self._served())
        backend = await self._connect()
        self._bind(backend)
        if not self.switches.enabled:
            log.info("host_not_enabled", project=self.project)
            self._started = True
            return
        try:
            hosting = await self._open()
            await hosting.prepare(update=True)
            await hosting.start()
        except BaseException:
            hosting, self._hosting = self._hosting, None  # whoever starts it again starts anew
            if hosting is not None:
                with suppress(BrokerError):
                    await hosting.close()
            await self._let_go()
            raise
        self._started = True

    async def close(self) -> None:
        """Stop taking, drain, interrupt, let go. Idempotent."""
        if self._closing:
            await self._closed.wait()
            return
        self._closing = True
        try:
            async with self._turn:  # what has begun to start must be there to be closed
                if self._hosting is not None:
                    await self._hosting.close()
        finally:
            try:
                await seen_through(self._let_go())
            finally:
                self._closed.set()

    async def wait_closed(self) -> None:
        """Wait until the host is closed.

        Raises:
            HostError: one of its loops died.
        """
        while not self._closed.is_set():
            try:
                async with asyncio.timeout(1):
                    await self._closed.wait()
            except TimeoutError:
                self._check_loops()
        self._check_loops()

    def _check_loops(self) -> None:
        if self._hosting is not None and (died := self._hosting.died) is not None:
            raise HostError(f"a loop of host {self.host_id} died: {died!r}") from died

    def health(self) -> HostHealth:
        """How the host is right now; no round trip, from any thread."""
        found, engine = self._findings(), None if self._hosting is None else self._hosting.engine
        return HostHealth(
            live=found.died is None,
            ready=found.ready,
            ok=found.ready and not found.problems,
            state=found.state,
            connected=found.connected,
            project=self.project,
            host_id=self.host_id,
            running=0 if engine is None else len(engine.held),
            threads_busy=0 if engine is None else engine.threads.busy,
            threads_limit=self.settings.threads,
            jobs=found.jobs,
            events=found.events,
            events_lost=0 if self._hosting is None else self._hosting.bridge.counts.gone,
            problems=found.problems,
        )

    def _findings(self) -> Findings:
        state = self._state()
        if self._hosting is not None:
            return self._hosting.findings(state)
        return Findings(state, self._backend is not None and self._backend.broker.connected_since is not None)

    def _state(self) -> State:
        if self._closing:
            return "closed" if self._closed.is_set() else "draining"
        if not self._started:
            return "new"
        if self._hosting is not None and self._hosting.engine.draining:
            return "draining"
        return "serving" if self.switches.enabled else "off"

    def run(self, *, loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None) -> int:
        """Serve until SIGTERM or SIGINT, drain, and return the exit code: 0, or 130 after Ctrl-C.

        A second signal ends the process at once. The only place that touches signals; they are as before afterwards.
        A closed terminal (SIGHUP) is taken as SIGTERM where it would end the process, and is never the second signal.
        Answers probes at `settings.probes`. `loop_factory` makes another event loop, as `uvloop.new_event_loop` does.

        Raises:
            HostError: this isn't the main thread, its event loop runs already, or one of the host's loops died.
            ConfigError: probes can't be answered at their address.
        """
        with StopSignals() as signals, asyncio.Runner(loop_factory=loop_factory) as runner:
            return to_its_end(runner.get_loop(), self._run(signals))

    async def _run(self, signals: StopSignals) -> int:
        async with Probes(self.settings.probes, self.health):
            return await self._serve(signals.stop())

    async def _serve(self, stop: asyncio.Future[int]) -> int:
        executor = take_over_executor()
        self._on_drain = lambda: stop.done() or stop.set_result(EXIT_OK)
        if not await first_of(self.start(), stop):
            await self.close()
            return stop.result()
        # This process is the host's: what it imported stays, and what runs make goes without the collector's help.
        gc.collect()
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
        if await first_of(self.wait_closed(), stop):
            return EXIT_OK
        log.info("host_draining", running=self.health().running)
        await self.close()
        if not await everything_ended(executor):
            leave(stop.result())
        return stop.result()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --------------------------------------------------------------- wiring

    def _served(self) -> list[Served]:
        return [
            Served(module, tuple(job for job in module.jobs.values() if not self._is_disabled(job)))
            for module in self.modules
        ]

    def _is_disabled(self, job: Job[Any, Any]) -> bool:
        every = [str(name) for name in served_names(job.address, job.policy.aliases)]
        return any(fnmatchcase(name, pattern) for pattern in self.switches.disable for name in every)

    async def _connect(self) -> Backend:
        if self._backend is None:
            settings = self.settings
            self._backend = self._given or await open_backend(
                self._nats if isinstance(self._nats, OpenClient) else connect_options(self._nats),
                self.project,
                ProvisionSettings(
                    ack_wait=settings.ack_wait,
                    max_age=settings.max_age,
                    replicas=settings.replicas,
                    max_payload=settings.max_payload,
                ),
                name=f"jetjobs host {self.host_id}",
                clock=self._clock,
            )
        return self._backend

    async def _open(self) -> Hosting:
        if self._hosting is None:
            backend = await self._connect()
            self._hosting = Hosting(
                backend,
                self._served(),
                self.settings,
                clock=self._clock,
                host_id=self.host_id,
                version=self.version,
                schedules=self.switches.schedules,
                asking=HostAsking(self._scope_over(backend)),
                on_drain=self._on_drain,
            )
        return self._hosting

    def _bind(self, backend: Backend) -> None:
        if self._binding is None:
            scope = self._scope_over(backend)
            self._binding = ClientBinding(scope, lambda job: JobHandle(scope, job.address, job))
            for module in self.modules:
                module.bind(self._binding)

    def _scope_over(self, backend: Backend) -> Scope:
        if self._scope is None:
            lookup = JobLookup(backend.catalog, self.project)
            self._scope = Scope(backend, self.project, CALL_TIMEOUT, self.settings.max_payload, lookup)
        return self._scope

    async def _let_go(self) -> None:
        if self._binding is not None:
            for module in self.modules:
                module.unbind(self._binding)
            self._binding = None
        if self._scope is not None:
            self._scope.life.over = True
        backend, self._backend, self._scope = self._backend, None, None
        if backend is not None and self._given is None:
            await backend.close()
