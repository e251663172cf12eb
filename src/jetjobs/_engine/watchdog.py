"""Keeps the runs of a host whose event loop is blocked, from a thread of its own.

A handler that blocks the loop (`time.sleep` in an `async def`, a long computation) stops renewals and the answers to
other hosts' asks, and after one ack wait another host would start the run a second time. This thread notices that
the loop no longer ticks, names the job whose handler it is in, and renews and answers in the loop's place until
it ticks again. Only then does it open a connection: a healthy host has one.

What it can't help: C code that holds the interpreter lock, a process that is frozen as a whole. A run whose last
renewal is too old when this thread gets to it is left alone, because somebody else may own it already.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING

from jetjobs._core.blocking import Watch
from jetjobs._engine.execution import TaskExecution
from jetjobs._log import get_logger
from jetjobs._ports import Keeping
from jetjobs.errors import JetJobsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetjobs._clock import Timer
    from jetjobs._engine.engine import Engine
    from jetjobs._engine.held import HeldRun
    from jetjobs._ports import Delivery, Lifeline

log = get_logger("jetjobs.engine")


class Watchdog:
    """Watches the loop it is started on; does nothing for a backend without a lifeline."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._rules = Watch.over(engine.settings.ack_wait)
        self._ticked_at = engine.clock.monotonic()
        self._timer: Timer | None = None
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to watch."""
        lifeline = self._engine.backend.lifeline
        if lifeline is not None:
            self._tick()
            threading.Thread(target=self._watch, args=(lifeline,), name="jetjobs watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._ticked_at = self._engine.clock.monotonic()
        self._timer = self._engine.clock.call_later(self._rules.tick_every, self._tick)

    @property
    def blocked_for(self) -> float:
        """Seconds since the loop last ticked, once that is long; for threads beside it. 0: it ticks."""
        return self._blocked_for() if self._timer is not None else 0.0

    def _blocked_for(self) -> float:
        if self._stopped.is_set():
            return 0.0
        return self._rules.blocked_for(ticked_at=self._ticked_at, now=self._engine.clock.monotonic())

    # ------------------------------------------------- in the watching thread

    def _watch(self, lifeline: Lifeline) -> None:
        looked_at = self._engine.clock.monotonic()
        while not self._stopped.wait(self._rules.tick_every):
            now = self._engine.clock.monotonic()
            # Standing still itself, it gives the loop a chance to tick first.
            still, looked_at = self._rules.stood_still(looked_at=looked_at, now=now), now
            if not still and self._blocked_for() and len(self._engine.held):
                self._keep(lifeline)

    def _keep(self, lifeline: Lifeline) -> None:
        engine, since = self._engine, self._ticked_at
        jobs, at = self._culprits()
        log.warning("loop_blocked", jobs=jobs, at=at, seconds=round(engine.clock.monotonic() - since, 1))
        keeping = Keeping(
            host_id=engine.host_id,
            due=self._due,
            holds=engine.held.holds,
            over=lambda: not self._blocked_for(),
            pause=self._rules.tick_every,
        )
        while self._blocked_for():
            try:
                lifeline.keep(keeping)
            except JetJobsError as error:
                log.error("blocked_runs_not_kept", jobs=jobs, error=str(error))  # noqa: TRY400 - an outage, not a bug
                self._stopped.wait(self._rules.renew_every)
            except Exception:
                log.exception("watchdog_broke")
                self._stopped.wait(self._rules.renew_every)
        log.warning("loop_runs_again", jobs=jobs, seconds=round(engine.clock.monotonic() - since, 1))

    def _due(self) -> list[tuple[Delivery, Callable[[], None]]]:
        """The deliveries to renew now, each with what to call once the broker confirmed it."""
        now = self._engine.clock.monotonic()
        return [
            (held.delivery, partial(_confirm, held, now))
            for held in self._engine.held
            if held.claim is not None
            and not held.fenced
            and self._rules.may_renew(confirmed_at=held.confirmed_at, now=now)
        ]

    def _culprits(self) -> tuple[list[str], str]:
        """The jobs whose handler the loop is in (all that run, if that can't be told), and the line it is at."""
        task = asyncio.current_task(self._loop)
        running = [held for held in self._engine.held if isinstance(held.execution, TaskExecution)]
        inside = [held for held in running if isinstance(held.execution, TaskExecution) and held.execution.is_in(task)]
        return sorted({str(held.key.address) for held in inside or running}), self._line()

    def _line(self) -> str:
        """The line the loop's thread is at."""
        frames = sys._current_frames()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - no other way
        if (frame := frames.get(self._loop_thread)) is None:
            return "unknown"
        place = traceback.extract_stack(frame, limit=1)[-1]
        return f"{place.filename}:{place.lineno} in {place.name}"


def _confirm(held: HeldRun, began: float) -> None:
    held.confirmed_at = max(held.confirmed_at, began)
