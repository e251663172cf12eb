"""A host that is asked from outside to stop taking runs, over core NATS.

`run()` owns its process, so there it does what SIGTERM does. A host inside somebody else's program stops taking, lets
its runs finish, and stays for the program to close: it goes on renewing, answering and telling that it drains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jetjobs._log import get_logger
from jetjobs._ports import DrainAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from jetjobs._engine.engine import Engine

log = get_logger("jetjobs.engine")


class Draining:
    """`close` ends the host's process once its runs have ended; `None` where that isn't ours to do."""

    def __init__(
        self, engine: Engine, stop_taking: Callable[[], Coroutine[Any, Any, None]], close: Callable[[], object] | None
    ) -> None:
        self._engine = engine
        self._stop_taking = stop_taking
        self._close = close
        self._asked = False

    def asked(self, actor: str | None) -> DrainAnswer:
        """Begin to drain, unless that has begun; what to answer."""
        engine = self._engine
        again, self._asked = self._asked or engine.draining, True
        if not again:
            log.info("host_drain_asked", actor=actor, running=len(engine.held), closes=self._close is not None)
            if self._close is not None:
                self._close()
            else:
                engine.tasks.start(self._stop_taking())
        return DrainAnswer(len(engine.held), closes=self._close is not None, again=again)
