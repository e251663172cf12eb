"""What the broker does with acks of deliveries that a consumer made before it was deleted and made again."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import nats
import pytest
from nats.js.api import AckPolicy, ConsumerConfig

pytestmark = pytest.mark.integration

ACK_WAIT = 1.0


async def taken(client: Any, stream: str, count: int, within: float = 5.0) -> list[Any]:
    """The next deliveries, asked for raw, as a host asks."""
    inbox, found, enough = client.new_inbox(), list[Any](), asyncio.Event()

    async def hear(message: Any) -> None:
        if message.data:
            found.append(message)
        if len(found) == count:
            enough.set()

    sub = await client.subscribe(inbox, cb=hear)
    ask = json.dumps({"batch": count, "expires": int(within * 1e9)}).encode()
    await client.publish(f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c", ask, reply=inbox)
    await asyncio.wait_for(enough.wait(), within)
    await sub.unsubscribe()
    return found


@pytest.mark.parametrize("acked_before", [True, False])
async def test_an_old_ack_loses_no_older_message_in_flight(nats_url: str, project: str, *, acked_before: bool):
    """The delivery numbers begin anew, so an ack from before can carry the very number the floor waits for."""
    client = await nats.connect(nats_url)
    stream = client.jetstream()
    await stream.add_stream(name=project, subjects=[f"{project}.>"], retention="workqueue")
    shape = ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, ack_wait=ACK_WAIT, max_ack_pending=5)
    narrow = shape.evolve(max_ack_pending=1)
    await stream.add_consumer(project, shape)
    for number in range(3):
        await stream.publish(f"{project}.{number}", str(number).encode())
    old = await taken(client, project, 3)
    await stream.delete_consumer(project, "c")
    await stream.add_consumer(project, narrow)  # so that what goes back comes first
    (again,) = await taken(client, project, 1)
    await again.nak()
    (again,) = await taken(client, project, 1)  # delivery 2 of the new consumer
    await again.ack_sync()
    await stream.add_consumer(project, shape)
    new = await taken(client, project, 2)  # deliveries 3 and 4
    assert [message.data for message in (again, *new)] == [b"0", b"1", b"2"]
    assert old[2].metadata.sequence.consumer == new[0].metadata.sequence.consumer == 3
    if acked_before:
        await new[1].ack_sync()
    await client.publish(old[2].reply, b"+ACK")
    await client.flush()
    (left,) = await taken(client, project, 1)
    assert left.data == b"1", "its host died: it is redelivered"
    await left.ack_sync()
    assert (await stream.stream_info(project)).state.messages == 0
    await client.close()
