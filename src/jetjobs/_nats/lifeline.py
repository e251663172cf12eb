"""`_ports.Lifeline` over NATS: a short-lived second connection, on an event loop of its own, in the caller's thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jetjobs._core.blocking import others_can
from jetjobs._log import get_logger
from jetjobs._nats.broker import NatsBroker
from jetjobs._nats.catalog import NatsCatalog
from jetjobs._nats.connection import Connection, Target, connect
from jetjobs._nats.delivery import NatsDelivery
from jetjobs._nats.link import Link
from jetjobs._nats.writer import PipelinedWriter
from jetjobs._ports import Delivery, Keeping
from jetjobs.errors import BrokerError

_log = get_logger("jetjobs.nats")


class NatsLifeline:
    """Keeps a host's deliveries in its loop's place. `target` is `None` when the client in use was given open.

    `first` is the connection of the blocked loop. What the broker gives it now lies there until the loop runs again,
    or for a whole ack wait; where another host has one of its jobs, that one is to get it instead.
    """

    def __init__(self, target: Target | None, project: str, first: Connection, *, name: str) -> None:
        self._target = target
        self._first = first
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
        link = Link(connection, writer)
        broker = NatsBroker(link, self._project)
        try:
            await broker.answer_asks(keeping.host_id, keeping.holds)
            if await self._others_can(link, keeping.host_id):
                self._first.hang_up()
                _log.warning("blocked_host_hung_up", reason="another host has its jobs")
            while not keeping.over():
                await asyncio.gather(*(_renew(writer, *due) for due in keeping.due()))
                await asyncio.sleep(keeping.pause)
        finally:
            await broker.close()

    async def _others_can(self, link: Link, host_id: str) -> bool:
        """Whether another host lives that has a job of this one; not when that can't be told."""
        try:
            return others_can(await NatsCatalog(link, self._project).hosts(), host_id)
        except BrokerError as error:
            _log.debug("other_hosts_unknown", error=str(error))
            return False


async def _renew(writer: PipelinedWriter, delivery: Delivery, confirm: Callable[[], None]) -> None:
    if isinstance(delivery, NatsDelivery):
        try:
            await delivery.renew_through(writer)
        except BrokerError as error:
            _log.debug("renewal_failed", error=str(error))
        else:
            confirm()
