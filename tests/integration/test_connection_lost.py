"""Connections that are lost, borrowed, and what goes out over them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from jetjobs._nats.connection import connect
from jetjobs._nats.tuned import TunedClient
from jetjobs.errors import (
    BrokerUnavailable,
    InvalidNameError,
)
from tests.support.impostor import impostor
from tests.support.links import until
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


class TestLoss:
    async def test_restart_is_noticed_and_healed(self, own_server: RealServer):
        connection = await connect({"servers": own_server.url, "reconnect_time_wait": 0.1}, name="test")
        news: list[str] = []
        connection.on_disconnect(lambda: news.append("lost"))
        connection.on_reconnect(lambda: news.append("back"))
        since = connection.connected_since
        assert since is not None
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: news == ["lost"])
        assert connection.connected_since is None
        assert not connection.post("some.subject", b"x")
        with pytest.raises(BrokerUnavailable):
            await connection.wait_connected(0.05)
        assert await connection.refused_everywhere()
        await asyncio.to_thread(own_server.start)
        await connection.wait_connected(10)
        assert news == ["lost", "back"]
        assert connection.connected_since is not None
        assert connection.connected_since > since
        assert not await connection.refused_everywhere()
        await connection.close()

    async def test_a_frozen_server_may_serve_others(self, own_server: RealServer):
        connection = await connect({"servers": own_server.url, "reconnect_time_wait": 0.1}, name="test")
        own_server.sigstop()
        await connection.client.force_reconnect()
        await until(lambda: connection.connected_since is None)
        assert not await connection.refused_everywhere()
        own_server.sigcont()
        await connection.wait_connected(10)
        await connection.close()

    async def test_one_refusing_and_one_open_port_prove_nothing(self, own_server: RealServer):
        async with impostor(b"") as port:
            targets = f"{own_server.url},nats://127.0.0.1:{port}"
            connection = await connect({"servers": targets, "connect_timeout": 0.3}, name="test")
            await asyncio.to_thread(own_server.kill9)
            await until(lambda: connection.connected_since is None)
            assert not await connection.refused_everywhere()
            await connection.close()

    async def test_waiting_ends_when_it_is_closed_for_good(self, own_server: RealServer):
        connection = await connect(own_server.url, name="test")
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: connection.connected_since is None)
        waiting = asyncio.create_task(connection.wait_connected(60))
        await asyncio.sleep(0)
        await connection.close()
        with pytest.raises(BrokerUnavailable, match="closed"):
            await asyncio.wait_for(waiting, 45)

    async def test_closing_while_it_reconnects_leaves_nothing_behind(self, own_server: RealServer):
        options = {"servers": own_server.url, "reconnect_time_wait": 0.001}
        connections = [await connect(options, name="test") for _ in range(40)]
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: all(connection.connected_since is None for connection in connections))
        with capture_logs():
            for connection in connections:
                await asyncio.wait_for(connection.close(), 45)
                await asyncio.sleep(0.0003)  # each at another moment of its attempt
            await until(lambda: len(asyncio.all_tasks()) == 1)

    async def test_an_expelled_client_comes_back(self, own_server: RealServer):
        # nats-py closes for ever on an error like this one; hosts must not.
        connection = await connect({"servers": own_server.url, "reconnect_time_wait": 0.1}, name="test")
        back = asyncio.Event()
        connection.on_reconnect(back.set)
        await connection.client.publish("x" * 5000, b"")  # a control line too long ends the connection
        await asyncio.wait_for(back.wait(), 45)
        assert connection.is_connected
        await connection.close()


class TestBorrowed:
    async def test_an_open_client_stays_open_and_gets_its_callbacks_back(self, own_server: RealServer):
        told: list[str] = []

        def teller(what: str) -> Callable[[], Awaitable[None]]:
            async def tell() -> None:
                told.append(what)

            return tell

        client = await nats.connect(
            own_server.url,
            reconnect_time_wait=0.1,
            disconnected_cb=teller("lost"),
            reconnected_cb=teller("back"),
        )
        connection = await connect(client, name="test")
        back = asyncio.Event()
        connection.on_reconnect(back.set)
        await asyncio.to_thread(own_server.restart)
        await asyncio.wait_for(back.wait(), 45)
        await until(lambda: told == ["lost", "back"])
        await connection.close()
        assert client.is_connected
        await client.force_reconnect()
        await until(lambda: told == ["lost", "back"] * 2)
        await client.close()

    async def test_a_handler_that_fails_harms_nobody(self, nats_url: str):
        connection = await connect(nats_url, name="test")
        heard: list[bytes] = []

        def fail_first(message: Any) -> None:
            heard.append(message.data)
            if len(heard) == 1:
                raise RuntimeError("boom")

        with capture_logs() as logs:
            await connection.listen("test.handler", fail_first)
            connection.post("test.handler", b"1")
            connection.post("test.handler", b"2")
            await until(lambda: heard == [b"1", b"2"])
        assert [line["event"] for line in logs] == ["nats handler failed"]
        await connection.close()


class TestWhatGoesOut:
    async def test_nothing_breaks_out_of_its_line(self, nats_url: str):
        connection = await connect(nats_url, name="test")
        heard: list[tuple[str, bytes, dict[str, str]]] = []
        await connection.listen("test.line.>", lambda m: heard.append((m.subject, m.data, dict(m.headers))))
        for subject in ("", "test.line.a b", "test.line.a\r\nPUB x 0", "test.line.\ta"):
            with pytest.raises(InvalidNameError):
                connection.post(subject, b"1")
        for name in ("", "A B", "A:", "A\r\nB", "é"):
            with pytest.raises(InvalidNameError):
                connection.post("test.line.a", b"2", "", {name: "x"})
        headers = {"A": "é: 1\r\nPUB test.line.b 0", "Empty": "", "Jetjobs-Turn": "2"}
        assert connection.post("test.line.c", b"\r\n3\x00", "", headers)
        await until(lambda: heard)
        assert heard == [
            ("test.line.c", b"\r\n3\x00", {"A": "é: 1  PUB test.line.b 0", "Empty": "", "Jetjobs-Turn": "2"})
        ]
        await connection.close()

    async def test_headers_are_read_as_nats_py_reads_them(self):
        blocks = [
            b"A: b\r\nC:d\r\n e : f\r\nno colon\r\nx y: 1\r\n\xff: 1\r\n\xc3\xa9: 2\r\n",
            b"U: \xc3\xa9 \xff\r\nT:\tv \r\n\r\n",
            b"",
            b"\r\n",
            b"A: 1\r\nA: 2\r\n: x\r\nB: a:b\r\n",
        ]
        for block in blocks:
            assert TunedClient._parse_header_lines(block) == Client._parse_header_lines(block)
