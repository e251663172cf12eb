"""Events heard by several hosts: an id is one run, equal bodies without ids are as many as were sent."""

from __future__ import annotations

import pytest

from jetjobs import RunStatus
from tests.support.events import Orders, jetstream_of, runs_of, thanks
from tests.support.field import Field

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kept", [False, True], ids=["core", "stream"])
async def test_b37_ids_sent_twice_to_three_hosts_and_bodies_without_ids(field: Field, *, kept: bool):
    """From a stream, too, whose own window forgets the ids at once."""
    orders = Orders(field)
    if kept:
        await orders.add_stream(duplicate_window=0.1)
    for _ in range(3):
        await field.host(thanks(orders.trigger(stream=orders.stream if kept else None)))
    for number in range(10):
        await orders.publish({"n": number}, Nats_Msg_Id=f"o-{number}")
    if kept:  # the broker takes each id again, so that our rule is what tells
        await forgotten(orders)
    for number in range(10):
        await orders.publish({"n": number}, Nats_Msg_Id=f"o-{number}")
    await orders.publish({"n": -1}, times=5)
    runs = await runs_of(field, 15)
    assert all(run.status is RunStatus.SUCCEEDED for run in runs)
    assert sorted(run.result["n"] for run in runs) == [-1] * 5 + list(range(10))
    if kept:
        assert (await jetstream_of(field).stream_info(orders.stream)).state.last_seq >= 27


async def forgotten(orders: Orders) -> None:
    """Return once the broker takes an id of before as a new message."""
    jetstream = jetstream_of(orders.field)
    subject = f"{orders.prefix}.other.unheard"
    headers = {"Nats-Msg-Id": "probe"}
    await jetstream.publish(subject, b"", headers=headers)
    while (await jetstream.publish(subject, b"", headers=headers)).duplicate:
        pass
