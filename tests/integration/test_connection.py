"""Connecting: one clear error for every way it can fail, and the truth about a connection that went away."""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs._nats.connection import connect
from jetjobs._nats.faults import redact
from jetjobs._nats.server import find_server
from jetjobs.errors import (
    AccessDenied,
    BrokerUnavailable,
    ConfigError,
    JetStreamDisabled,
    ServerTooOld,
)
from tests.support.impostor import impostor
from tests.support.links import until_it
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

    await until_it(open_now)


async def refusal(target: Any, kind: type[Exception], within: float = 20) -> str:
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
        message = await refusal(f"nats://me:{SECRET}@127.0.0.1:{port}", BrokerUnavailable, within=6)
        assert f"127.0.0.1:{port}" in message

    async def test_of_several_servers_one_is_enough(self, nats_url: str):
        connection = await connect(f"nats://127.0.0.1:{free_port()},{nats_url}", name="test")
        assert connection.is_connected
        await connection.close()

    async def test_all_of_several_servers_away(self):
        ports = [free_port(), free_port()]
        target = {"servers": [f"nats://127.0.0.1:{port}" for port in ports]}
        message = await refusal(target, BrokerUnavailable, within=6)
        assert all(f"127.0.0.1:{port}" in message for port in ports)

    async def test_unknown_host(self):
        assert "no-such-host.invalid:4222" in await refusal("nats://no-such-host.invalid", BrokerUnavailable)

    async def test_something_that_is_not_nats(self):
        async with impostor(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
            await refusal(f"nats://127.0.0.1:{port}", BrokerUnavailable, within=6)

    async def test_something_silent(self):
        async with impostor(b"") as port:
            await refusal({"servers": f"nats://127.0.0.1:{port}", "connect_timeout": 0.3}, BrokerUnavailable, within=6)

    async def test_server_too_old(self):
        async with impostor(info(version="2.9.25", jetstream=True), answer=b"PONG\r\n") as port:
            with pytest.raises(ServerTooOld) as raised:
                await connect(f"nats://127.0.0.1:{port}", name="test")
        assert (raised.value.found, raised.value.needed) == ("2.9.25", "2.14")

    async def test_server_without_jetstream(self, tmp_path: Path):
        with bare_server(tmp_path) as port:
            await until_listening(port)
            message = await refusal(f"nats://127.0.0.1:{port}", JetStreamDisabled, within=6)
        assert "-js" in message

    async def test_option_that_does_not_exist(self, nats_url: str):
        assert "pasword" in await refusal({"servers": nats_url, "pasword": "x"}, ConfigError)


class TestAccess:
    @pytest.fixture
    def locked(self, tmp_path: Path) -> Iterator[RealServer]:
        with RealServer(tmp_path / "locked", extra_conf=USERS) as server:
            yield server

    async def test_right_and_wrong_passwords(self, locked: RealServer):
        address = f"127.0.0.1:{locked.port}"
        right = await connect(f"nats://me:{SECRET}@{address}", name="test")
        await right.close()
        await refusal(f"nats://you:{SECRET}@{address}", AccessDenied, within=6)
        await refusal({"servers": f"nats://{address}", "user": "me", "password": SECRET + "x"}, AccessDenied, within=6)
        await refusal(f"nats://{address}", AccessDenied, within=6)

    async def test_account_without_jetstream(self, locked: RealServer):
        await refusal(f"nats://plain:{SECRET}@127.0.0.1:{locked.port}", JetStreamDisabled, within=6)

    async def test_a_user_of_few_rights_connects_at_once(self, locked: RealServer):
        begun = time.monotonic()
        connection = await connect(f"nats://little:{SECRET}@127.0.0.1:{locked.port}", name="test")
        assert time.monotonic() - begun < 2.9  # it does not wait for an answer that never comes
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
            assert "CA" in await refusal(f"nats://localhost:{port}", AccessDenied, within=6)
            trusted = await connect({"servers": f"tls://localhost:{port}", "tls_ca": str(cert)}, name="test")
            await trusted.close()
            context = ssl.create_default_context(cafile=str(cert))
            named = {"servers": f"tls://127.0.0.1:{port}", "tls": context}
            await refusal(named, AccessDenied, within=6)
            other_name = await connect({**named, "tls_hostname": "localhost"}, name="test")
            await other_name.close()
            assert "no.pem" in await refusal({"servers": f"localhost:{port}", "tls_ca": "no.pem"}, AccessDenied)


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
