"""Brokers that let nobody in, or serve no jobs: B83, B85.

Host, client and command line each say so, in one line and within ten seconds: the cause is named, nothing is
half-made, the exit code is not 0, and no secret shows.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from jetjobs import JobHost
from jetjobs.errors import AccessDenied, JetStreamDisabled
from tests.support.doors import SECRET, Doors, shop
from tests.support.impostors import bare_server
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.integration

OPENSSL = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]


def connections(monitor: int) -> list[dict[str, Any]]:
    """What a server says of its clients."""
    with urlopen(f"http://127.0.0.1:{monitor}/connz", timeout=5) as answer:
        return json.load(answer)["connections"]


class TestLogin:
    async def test_b83_wrong_password(self, doors: Doors, guarded: RealServer):
        target = {"servers": guarded.url, "user": "boss", "password": SECRET + "x"}
        await doors.all_refuse(target, AccessDenied, "uthorization")

    async def test_b83_wrong_token(self, doors: Doors, tmp_path: Path):
        """Also when the token is in the URL."""
        conf = f"jetstream {{ store_dir: '{tmp_path}/js' }}\nauthorization {{ token: right }}"
        with bare_server(tmp_path / "bare", conf=conf) as url:
            await doors.all_refuse({"servers": url, "token": SECRET}, AccessDenied, "uthorization")
            in_url = url.replace("nats://", f"nats://{SECRET}@")
            await doors.all_refuse({"servers": in_url}, AccessDenied, "uthorization")

    async def test_b83_no_login_at_all(self, doors: Doors, guarded: RealServer):
        await doors.all_refuse({"servers": guarded.url}, AccessDenied, "uthorization")

    async def test_b83_missing_credentials_file(self, doors: Doors, nats_url: str, tmp_path: Path):
        missing = str(tmp_path / "missing.creds")
        target = {"servers": nats_url, "user_credentials": missing}
        await doors.all_refuse(target, AccessDenied, missing, "No such file")

    async def test_b83_expired_credentials_file(self, doors: Doors, tmp_path: Path):
        """A user's JWT that ran out an hour ago."""
        pytest.importorskip("nkeys", reason="credentials files need the extra `nkeys`")
        from tests.support.jwts import Operator

        operator = Operator(tmp_path)
        conf = f"jetstream {{ store_dir: '{tmp_path}/js' }}\n{operator.conf}"
        with bare_server(tmp_path / "bare", conf=conf) as url:
            good = {"servers": url, "user_credentials": str(operator.credentials(expires_in=3600))}
            async with JobHost([shop()], project=doors.project, nats=good):
                pass
            expired = {"servers": url, "user_credentials": str(operator.credentials(expires_in=-3600))}
            await doors.all_refuse(expired, AccessDenied, "uthorization")


class TestTls:
    @pytest.fixture
    def certificate(self, tmp_path: Path) -> tuple[Path, Path]:
        cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
        alt = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
        subprocess.run([*OPENSSL, *alt, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
        return cert, key

    async def test_b83_tls_and_its_ca(self, doors: Doors, tmp_path: Path, certificate: tuple[Path, Path]):
        """Required but not used, an unknown CA, a CA file that isn't there, one that is no certificate."""
        cert, key = certificate
        options = ["--tls", f"--tlscert={cert}", f"--tlskey={key}", "-js", "-sd", str(tmp_path / "js")]
        with bare_server(tmp_path / "bare", *options) as url:
            async with JobHost([shop()], project=doors.project, nats={"servers": url, "tls_ca": str(cert)}):
                pass
            await doors.all_refuse({"servers": url}, AccessDenied, "CA")
            await doors.all_refuse({"servers": url.replace("nats://", "tls://")}, AccessDenied, "CA")
            no_file = {"servers": url, "tls_ca": str(tmp_path / "no.pem")}
            await doors.all_refuse(no_file, AccessDenied, "no.pem")
            await doors.all_refuse({"servers": url, "tls_ca": str(key)}, AccessDenied, "key.pem")

    async def test_b83_tls_asked_for_where_there_is_none(self, doors: Doors, nats_url: str):
        """`tls://` must never fall back to plain text."""
        await doors.all_refuse({"servers": nats_url.replace("nats://", "tls://")}, AccessDenied, "TLS")

    async def test_b83_tls_offered_and_asked_for(self, doors: Doors, tmp_path: Path, certificate: tuple[Path, Path]):
        """A server that leaves the choice to its clients: whoever gave a CA is never served in plain text."""
        cert, key = certificate
        conf = f"tls {{ cert_file: '{cert}', key_file: '{key}' }}\nallow_non_tls: true"
        options = ["-js", "-sd", str(tmp_path / "js"), "-m", str(monitor := free_port())]
        with bare_server(tmp_path / "bare", *options, conf=conf) as url:
            await doors.client_refuses({"servers": url.replace("nats://", "tls://")}, AccessDenied, "CA")
            async with JobHost([shop()], project=doors.project, nats={"servers": url, "tls_ca": str(cert)}):
                found = await asyncio.to_thread(connections, monitor)
            assert [each.get("tls_version") is not None for each in found] == [True]


class TestJetStream:
    async def test_b85_a_server_without_jetstream(self, doors: Doors, tmp_path: Path):
        """A server that wasn't given -js."""
        with bare_server(tmp_path / "bare") as url:
            await doors.all_refuse({"servers": url}, JetStreamDisabled, "JetStream", "-js")

    async def test_b85_an_account_without_jetstream(self, doors: Doors, guarded: RealServer):
        """It is on, but not for us."""
        target = {"servers": guarded.url, "user": "plain", "password": SECRET}
        await doors.all_refuse(target, JetStreamDisabled, "JetStream", "account")

    async def test_b85_a_leaf_node_with_the_wrong_domain(self, doors: Doors, tmp_path: Path):
        """The hub has JetStream, in a domain of its own; a leaf that asks for it by that name serves."""
        login = {"user": "boss", "password": SECRET}
        with bare_server(tmp_path / "hub", conf=hub(leaves := free_port(), tmp_path / "js")):
            with bare_server(tmp_path / "good", conf=leaf(leaves, "hub")) as url:
                async with JobHost([shop()], project=doors.project, nats={"servers": url, **login}):
                    pass
            with bare_server(tmp_path / "leaf", conf=leaf(leaves, "elsewhere")) as url:
                await doors.all_refuse({"servers": url, **login}, JetStreamDisabled, "JetStream", "domain")


BOSS = "{ user: boss, password: " + SECRET + " }"


def hub(port: int, store: Path) -> str:
    """A configuration with JetStream in the domain `hub`, for leaf nodes at that port."""
    return f"""
        jetstream {{ store_dir: '{store}', domain: hub }}
        leafnodes {{ listen: '127.0.0.1:{port}' }}
        accounts {{ A {{ jetstream: enabled, users: [ {BOSS} ] }} }}
        no_auth_user: boss
    """


def leaf(port: int, domain: str) -> str:
    """A configuration without JetStream that hands its calls to a domain of the hub's."""
    return f"""
        accounts {{ A {{ users: [ {BOSS} ] }} }}
        default_js_domain: {{ A: {domain} }}
        leafnodes {{ remotes: [ {{ url: "nats://boss:{SECRET}@127.0.0.1:{port}", account: A }} ] }}
    """
