"""Letting a connection go whose server no longer reads."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import time

import pytest

from jetjobs._nats.connection import connect
from jetjobs._nats.tuned import drop_unsent
from tests.support.servers import RealServer

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("unsent", ["in nats-py", "in the socket"])
async def test_a_frozen_server_holds_nobody_up(own_server: RealServer, unsent: str) -> None:
    connection = await connect(own_server.url, name="closing")
    lost: list[str] = []
    connection.on_disconnect(lambda: lost.append("lost"))
    own_server.sigstop()
    try:
        for _ in range(64):  # more than socket buffers on both sides hold
            assert connection.post("anything", b"x" * 1_000_000)
        if unsent == "in the socket":
            transport = connection.client._transport
            assert transport is not None
            transport.writelines(connection.client._pending)
            drop_unsent(connection.client)
        began = time.monotonic()
        await connection.close()
        assert time.monotonic() - began < 20
    finally:
        own_server.sigcont()
    assert lost == ["lost"]
    assert connection.is_closed
