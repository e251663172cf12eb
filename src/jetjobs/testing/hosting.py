"""A host beside a test: in a thread, on a loop of its own, so that the test may block or await as it likes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from jetjobs.config import HostSettings
from jetjobs.host import JobHost
from jetjobs.module import Module

_SETTINGS = HostSettings(drain=2)


@contextmanager
def host_in_thread(
    modules: Module | Iterable[Module], *, project: str, nats: Any, settings: HostSettings | None = None
) -> Generator[JobHost]:
    """A host that serves within the block, its jobs bound for `trigger_blocking`. Running handlers get 2 s at the end.

    Raises:
        BrokerError: not reachable, not let in, too old, or without JetStream.
    """
    serving = _Serving(modules, project=project, nats=nats, settings=settings or _SETTINGS)
    with ThreadPoolExecutor(1, "jetjobs-host") as pool:
        ended = pool.submit(asyncio.run, serving.serve())
        try:
            yield serving.ready(ended)
        finally:
            serving.stop()
        ended.result()


class _Serving:
    def __init__(self, modules: Module | Iterable[Module], **options: Any) -> None:
        self._modules = modules
        self._options = options
        self._began = threading.Event()
        self._host: JobHost | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None

    async def serve(self) -> None:
        """Serve until `stop`; in the thread."""
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        async with JobHost(self._modules, **self._options) as self._host:
            self._began.set()
            await self._over.wait()

    def ready(self, ended: Future[None]) -> JobHost:
        """The host once it serves; raises what kept it from that."""
        ended.add_done_callback(lambda _: self._began.set())
        self._began.wait()
        if self._host is None or ended.done():
            ended.result()
        assert self._host is not None
        return self._host

    def stop(self) -> None:
        """Have it drain and end; one that never began has ended."""
        if self._loop is not None and self._over is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._over.set)
