"""Connecting: one clear error for every way it can fail, and the truth about a connection that went away."""

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from jetjobs._nats.connection import connect
from jetjobs._nats.faults import redact
from jetjobs._nats.server import find_server
from jetjobs._nats.tuned import TunedClient
from jetjobs.errors import (
    AccessDenied,
    BrokerUnavailable,
    ConfigError,
    InvalidNameError,
    JetStreamDisabled,
    ServerTooOld,
)
from tests.support.links import until, until_it
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.integration

SECRET = "hunter2"
USERS = f"""
accounts {{
  JS {{ jetstream: enabled, users: [
    {{user: me, password: {SECRET}}}
    {{user: little, password: {SECRET}, permissions: {{publish: ["jetjobs.>"], subscribe: ["_INBOX.>"]}}}}
  ] }}
  PLAIN {{ users: [ {{user: plain, password: {SECRET}}} ] }}
}}
"""
OPENSSL = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]


@contextmanager
def bare_server(folder: Path, *options: str) -> Generator[int]:
    """A nats-server with just these options; its port."""
    port = free_port()
    command = [str(find_server().path), "-a", "127.0.0.1", "-p", str(port), "-l", str(folder / "log"), *options]
    with subprocess.Popen(command) as process:
        try:
            yield port
        finally:
            process.kill()


@asynccontextmanager
async def impostor(first: bytes, *, answer: bytes = b"") -> AsyncGenerator[int]:
    """Something that listens, says `first` and answers everything with `answer`; its port."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        with suppress(ConnectionError):
            while await reader.read(4096):
                writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def info(**more: Any) -> bytes:
    return b"INFO " + json.dumps({"server_id": "X", "max_payload": 1048576, **more}).encode() + b"\r\n"


async def until_listening(port: int) -> None:
    async def open_now() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        await writer.wait_closed()
        return True

    await until_it(open_now, within=5)


async def refusal(target: Any, kind: type[Exception], within: float = 8.5) -> str:
    """The message of the error that connecting ends with."""
    begun = time.monotonic()
    with capture_logs() as logs, pytest.raises(kind) as raised:
        await connect(target, name="test")
    assert time.monotonic() - begun < within
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(logs)
    return str(raised.value)


class TestFirstConnection:
    async def test_nobody_there_names_host_and_port(self):
        port = free_port()
        message = await refusal(f"nats://me:{SECRET}@127.0.0.1:{port}", BrokerUnavailable, within=2)
        assert f"127.0.0.1:{port}" in message

    async def test_of_several_servers_one_is_enough(self, nats_url: str):
        connection = await connect(f"nats://127.0.0.1:{free_port()},{nats_url}", name="test")
        assert connection.is_connected
        await connection.close()

    async def test_all_of_several_servers_away(self):
        ports = [free_port(), free_port()]
        target = {"servers": [f"nats://127.0.0.1:{port}" for port in ports]}
        message = await refusal(target, BrokerUnavailable, within=2)
        assert all(f"127.0.0.1:{port}" in message for port in ports)

    async def test_unknown_host(self):
        assert "no-such-host.invalid:4222" in await refusal("nats://no-such-host.invalid", BrokerUnavailable)

    async def test_something_that_is_not_nats(self):
        async with impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            await refusal(f"nats://127.0.0.1:{port}", BrokerUnavailable, within=4)

    async def test_something_silent(self):
        async with impostor(b"") as port:
            await refusal({"servers": f"nats://127.0.0.1:{port}", "connect_timeout": 0.3}, BrokerUnavailable, within=4)

    async def test_server_too_old(self):
        async with impostor(info(version="2.9.25", jetstream=True), answer=b"PONG\r\n") as port:
            with pytest.raises(ServerTooOld) as raised:
                await connect(f"nats://127.0.0.1:{port}", name="test")
        assert (raised.value.found, raised.value.needed) == ("2.9.25", "2.14")

    async def test_server_without_jetstream(self, tmp_path: Path):
        with bare_server(tmp_path) as port:
            await until_listening(port)
            message = await refusal(f"nats://127.0.0.1:{port}", JetStreamDisabled, within=4)
        assert "-js" in message

    async def test_option_that_does_not_exist(self, nats_url: str):
        assert "pasword" in await refusal({"servers": nats_url, "pasword": "x"}, ConfigError)


class TestAccess:
    @pytest.fixture
    def locked(self, tmp_path: Path) -> Iterator[RealServer]:
        server = RealServer(tmp_path / "locked", extra_conf=USERS)
        with suppress(Exception):
            server.start()
        yield server
        server.remove()

    async def test_right_and_wrong_passwords(self, locked: RealServer):
        address = f"127.0.0.1:{locked.port}"
        right = await connect(f"nats://me:{SECRET}@{address}", name="test")
        await right.close()
        await refusal(f"nats://you:{SECRET}@{address}", AccessDenied, within=4)
        await refusal({"servers": f"nats://{address}", "user": "me", "password": SECRET + "x"}, AccessDenied, within=4)
        await refusal(f"nats://{address}", AccessDenied, within=4)

    async def test_account_without_jetstream(self, locked: RealServer):
        await refusal(f"nats://plain:{SECRET}@127.0.0.1:{locked.port}", JetStreamDisabled, within=4)

    async def test_a_user_of_few_rights_connects_at_once(self, locked: RealServer):
        begun = time.monotonic()
        connection = await connect(f"nats://little:{SECRET}@127.0.0.1:{locked.port}", name="test")
        assert time.monotonic() - begun < 1.5
        await connection.close()

    async def test_credentials_file_missing_or_empty(self, nats_url: str, tmp_path: Path):
        missing = tmp_path / "missing.creds"
        assert str(missing) in await refusal({"servers": nats_url, "user_credentials": str(missing)}, AccessDenied)
        missing.write_text("nothing of use")
        assert "JWT" in await refusal({"servers": nats_url, "user_credentials": str(missing)}, AccessDenied)


class TestTls:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> tuple[Path, Path]:
        cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
        subprocess.run(
            [*OPENSSL, "-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(cert)],
            check=True,
            capture_output=True,
        )
        return cert, key

    async def test_ca_unknown_right_and_missing(self, tmp_path: Path, certificate: tuple[Path, Path]):
        cert, key = certificate
        tls = ["--tls", f"--tlscert={cert}", f"--tlskey={key}", "-js", "-sd", str(tmp_path / "js")]
        with bare_server(tmp_path, *tls) as port:
            await until_listening(port)
            assert "CA" in await refusal(f"nats://localhost:{port}", AccessDenied, within=4)
            trusted = await connect({"servers": f"tls://localhost:{port}", "tls_ca": str(cert)}, name="test")
            await trusted.close()
            context = ssl.create_default_context(cafile=str(cert))
            named = {"servers": f"tls://127.0.0.1:{port}", "tls": context}
            await refusal(named, AccessDenied, within=4)
            other_name = await connect({**named, "tls_hostname": "localhost"}, name="test")
            await other_name.close()
            assert "no.pem" in await refusal({"servers": f"localhost:{port}", "tls_ca": "no.pem"}, AccessDenied)


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
            await asyncio.wait_for(waiting, 2)

    async def test_closing_while_it_reconnects_leaves_nothing_behind(self, own_server: RealServer):
        options = {"servers": own_server.url, "reconnect_time_wait": 0.001}
        connections = [await connect(options, name="test") for _ in range(40)]
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: all(connection.connected_since is None for connection in connections))
        with capture_logs():
            for connection in connections:
                await asyncio.wait_for(connection.close(), 5)
                await asyncio.sleep(0.0003)  # each at another moment of its attempt
            await until(lambda: len(asyncio.all_tasks()) == 1, within=5)

    async def test_an_expelled_client_comes_back(self, own_server: RealServer):
        # nats-py closes for ever on an error like this one; hosts must not.
        connection = await connect({"servers": own_server.url, "reconnect_time_wait": 0.1}, name="test")
        back = asyncio.Event()
        connection.on_reconnect(back.set)
        await connection.client.publish("x" * 5000, b"")  # a control line too long ends the connection
        await asyncio.wait_for(back.wait(), 10)
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
        await asyncio.wait_for(back.wait(), 10)
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


@pytest.mark.parametrize(
    "text",
    [
        f"nats://me:{SECRET}@a:4222",
        f"cannot reach nats://{SECRET}@a:4222, tls://you:{SECRET}@b:4222",
        f"me:{SECRET}@a:4222",
        f"nats://me:p@{SECRET}@a:4222",
        f"nats://me:a,{SECRET}@a:4222",
    ],
)
def test_redact_leaves_no_password(text: str):
    assert SECRET not in redact(text)
    assert ":4222" in redact(text)


def test_connections_come_back_at_different_times():
    from jetjobs._nats.dial import _options

    for longest in (6.0, 0.4):
        waits = {_options("nats://a", "x", longest)["reconnect_time_wait"] for _ in range(20)}
        assert len(waits) == 20
        assert all(longest / 4 <= wait <= longest for wait in waits)


async def test_a_drained_subscription_is_over_for_the_server_before_it_is_asked_whether_all_was_sent(
    nats_url: str, monkeypatch: pytest.MonkeyPatch
):
    """What the server sends after it was asked would find nobody who could give it back."""
    connection = await connect(nats_url, name="drains")
    sub = await connection.listen("somewhere.>", lambda _: None)
    transport: Any = connection.client._transport
    sent: list[bytes] = []
    write, write_lines = transport.write, transport.writelines

    def note(data: bytes) -> None:
        sent.append(data)
        write(data)

    def note_lines(lines: list[bytes]) -> None:
        sent.extend(lines)
        write_lines(lines)

    monkeypatch.setattr(transport, "write", note)
    monkeypatch.setattr(transport, "writelines", note_lines)
    await connection.drain(sub)
    order = [data.split()[0] for data in sent]
    assert order.index(b"UNSUB") < order.index(b"PING"), order
    await connection.close()
