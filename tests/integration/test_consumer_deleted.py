"""A consumer that somebody removes under a host is made again, and whole."""

from __future__ import annotations

import nats
import pytest
from nats.js.errors import NotFoundError

from jetjobs._core import names
from jetjobs._core.models import JobAddress
from tests.support.worlds import NatsWorld, eventually

pytestmark = pytest.mark.integration

JOB = JobAddress("shop", "mail")


async def test_it_can_be_changed_afterwards(nats_url: str, project: str):
    world = NatsWorld(project, nats_url)
    backend = await world.connect()
    await backend.broker.ensure_project()
    await backend.broker.ensure_consumer(JOB, 1)
    (await backend.broker.consume(JOB, lambda delivery: delivery.ack())).allow(1)
    client = await nats.connect(nats_url)
    js, stream = client.jetstream(), names.stream(project)

    async def is_pulled() -> bool:
        try:
            return (await js.consumer_info(stream, names.consumer(JOB))).num_waiting == 1
        except NotFoundError:
            return False

    for limit in range(2, 10):
        await eventually(world, is_pulled)
        await js.delete_consumer(stream, names.consumer(JOB))
        await eventually(world, is_pulled)
        await backend.broker.ensure_consumer(JOB, limit)  # the server writes its files
    await client.close()
    await world.close()
