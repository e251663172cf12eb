"""What tests of the NATS adapter share: a link to a server, and waiting for what has no event."""

from collections.abc import Awaitable, Callable

from jetjobs._nats.connection import connect
from jetjobs._nats.link import Link
from jetjobs._nats.writer import PipelinedWriter
from tests.support.waiting import PATIENCE, eventually


async def open_link(url: str, *, outstanding: int = 4096) -> Link:
    """A connection of its own that is quick to come back, and its writer."""
    connection = await connect({"servers": url, "reconnect_time_wait": 0.1}, name="test")
    return Link(connection, PipelinedWriter(connection, outstanding=outstanding))


async def until(condition: Callable[[], object], within: float = PATIENCE) -> None:
    """Return once it holds; fail if it doesn't in time."""
    await eventually(condition, within)


async def until_it(condition: Callable[[], Awaitable[bool]], within: float = PATIENCE) -> None:
    """The same for a condition that must ask."""
    await eventually(condition, within)
