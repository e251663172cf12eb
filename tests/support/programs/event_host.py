"""`event_host.py URL PROJECT SUBJECT STREAM ACKS`: a host that dies by SIGKILL where it would ack that many events."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any, cast

from jetjobs import HostSettings, JobContext, JobHost, Module, OnEvent
from jetjobs._nats import open_backend
from jetjobs._nats.provision import ProvisionSettings
from jetjobs._ports import Delivery, OnDelivery

ACK_WAIT = 2


def thanks(subject: str, stream: str) -> Module:
    module = Module("billing")

    @module.job(max_concurrency=8, max_attempts=3, timeout="5s", triggers=[OnEvent(subject, stream=stream)])
    async def thank(ctx: JobContext[Any], order: Any) -> Any:
        return order

    return module


class Mortal:
    """An event's delivery whose ack is the process's end, once it is the n-th."""

    acks_left = 0

    def __init__(self, delivery: Delivery) -> None:
        self._delivery = delivery

    def __getattr__(self, name: str) -> Any:
        return getattr(self._delivery, name)

    def ack(self) -> None:
        Mortal.acks_left -= 1
        if Mortal.acks_left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._delivery.ack()


async def main() -> None:
    url, project, subject, stream, acks = sys.argv[1:]
    Mortal.acks_left = int(acks)
    settings = HostSettings(ack_wait=ACK_WAIT, heartbeat_every=0.5, lost_after=5, upkeep_every=1)
    backend = await open_backend(url, project, ProvisionSettings(ack_wait=settings.ack_wait), name="mortal")
    consume = backend.events.consume

    async def mortal(stream: str, subject: str, durable: str, on_delivery: OnDelivery) -> Any:
        return await consume(stream, subject, durable, lambda each: on_delivery(cast("Delivery", Mortal(each))))

    cast("Any", backend.events).consume = mortal
    async with JobHost([thanks(subject, stream)], backend=backend, settings=settings) as host:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await host.wait_closed()


if __name__ == "__main__":
    asyncio.run(main())
