"""The ports over NATS; the only package that imports nats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nats.aio.client import Client
from nats.aio.client import Client as OpenClient

from jetjobs._clock import Clock
from jetjobs._core import names
from jetjobs._nats.broker import NatsBroker
from jetjobs._nats.catalog import NatsCatalog
from jetjobs._nats.connection import connect
from jetjobs._nats.dial import LONGEST_WAIT
from jetjobs._nats.event_source import NatsEventSource
from jetjobs._nats.lifeline import NatsLifeline
from jetjobs._nats.link import Link
from jetjobs._nats.payload_store import NatsPayloadStore
from jetjobs._nats.provision import ProvisionSettings
from jetjobs._nats.run_store import NatsRunStore
from jetjobs._nats.schedule_store import NatsScheduleStore
from jetjobs._nats.writer import PipelinedWriter
from jetjobs._ports import Backend

__all__ = ["OpenClient", "open_backend"]


async def open_backend(
    target: str | Mapping[str, Any] | Client,
    project: str,
    settings: ProvisionSettings | None = None,
    *,
    name: str,
    clock: Clock | None = None,
) -> Backend:
    """One project's ports over one connection; nothing is created. `name` is what `nats` tools show of it.

    `clock` is this machine's, which broker time is measured against.

    Raises:
        BrokerUnavailable, AccessDenied, ServerTooOld, JetStreamDisabled: within 8 s at most.
    """
    names.check_project(project)
    settings = settings or ProvisionSettings()
    # After an outage the others wait one ack wait for a run's owner: it must be back long before.
    longest_wait = min(LONGEST_WAIT, settings.ack_wait.total_seconds() / 5)
    connection = await connect(target, name=name, longest_wait=longest_wait)
    link = Link(connection, PipelinedWriter(connection))
    broker = NatsBroker(link, project, settings, clock=clock)
    events = NatsEventSource(link, project, broker.now, ack_wait=settings.ack_wait)

    async def close() -> None:
        await events.close()
        await broker.close()

    return Backend(
        broker=broker,
        runs=NatsRunStore(link, project),
        payloads=NatsPayloadStore(link, project, max_payload=settings.max_payload),
        catalog=NatsCatalog(link, project),
        events=events,
        schedules=NatsScheduleStore(link, project),
        close=close,
        lifeline=NatsLifeline(None if isinstance(target, Client) else target, project, connection, name=name),
    )
