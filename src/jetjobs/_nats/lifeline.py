"""`_ports.Lifeline` over NATS: a short-lived second connection, on an event loop of its own, in the caller's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from jetjobs._nats.broker import NatsBroker
from jetjobs._nats.connection import Target, connect
from jetjobs._nats.delivery import NatsDelivery
from jetjobs._nats.link import Link
from jetjobs._nats.writer import PipelinedWriter
from jetjobs._ports import Delivery, Keeping
from jetjobs.errors import BrokerError

_log = structlog.get_logger("jetjobs.nats")


class NatsLifeline:
    """Keeps a host's deliveries in its loop's place. `target` is `None` when the client in use was given open."""

    def __init__(self, target: Target | None, project: str, *, name: str) -> None:
        self._target = target
        self._project = project
        self._name = f"{name} (its loop is blocked)"

    def keep(self, keeping: Keeping) -> None:
        """Renew and answer until it is over; blocks the calling thread.

        Raises:
            BrokerError: no second connection: the broker is out of reach, or an open client was given.
        """
        if self._target is None:
            raise BrokerError(
                "the host was given an open client, so it can open no second connection: runs in hand may be "
                "started again elsewhere; give it a URL or connect options, or don't block its event loop"
            )
        asyncio.run(self._keep(self._target, keeping))

    async def _keep(self, target: Target, keeping: Keeping) -> None:
        connection = await connect(target, name=self._name)
        writer = PipelinedWriter(connection)
        broker = NatsBroker(Link(connection, writer), self._project)
        try:
            await broker.answer_asks(keeping.host_id, keeping.holds)
            while not keeping.over():
                await asyncio.gather(*(_renew(writer, *due) for due in keeping.due()))
                await asyncio.sleep(keeping.pause)
        finally:
            await broker.close()


async def _renew(writer: PipelinedWriter, delivery: Delivery, confirm: Callable[[], None]) -> None:
    if isinstance(delivery, NatsDelivery):
        try:
            await delivery.renew_through(writer)
        except BrokerError as error:
            _log.debug("renewal_failed", error=str(error))
        else:
            confirm()
