"""What tests of the NATS adapter share: a link to a server, and waiting for what has no event."""

import asyncio
from collections.abc import Awaitable, Callable

from jetjobs._nats.connection import connect
from jetjobs._nats.link import Link
from jetjobs._nats.writer import PipelinedWriter


async def open_link(url: str, *, outstanding: int = 4096) -> Link:
    """A connection of its own that is quick to come back, and its writer."""
    connection = await connect({"servers": url, "reconnect_time_wait": 0.1}, name="test")
    return Link(connection, PipelinedWriter(connection, outstanding=outstanding))


async def until(condition: Callable[[], object], within: float = 30.0) -> None:
    """Return once it holds; fail if it doesn't in time."""

    async def holds() -> bool:
        return bool(condition())

    await until_it(holds, within)


async def until_it(condition: Callable[[], Awaitable[bool]], within: float = 30.0) -> None:
    """The same for a condition that must ask."""
    async with asyncio.timeout(within):
        while not await condition():  # noqa: ASYNC110  # state of a server or a client, which raise no event
            await asyncio.sleep(0.005)
