"""A broker that can't serve: host, client and command line each say so, in one line and within ten seconds.

Cases B27, B83, B85, B91 and B129 of the collection: whatever is wrong is named, nothing is half-made, the
exit code is not 0, and no secret shows.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import nats
import pytest
from structlog.testing import capture_logs

from jetjobs import JobClient, JobContext, JobHost, Module
from jetjobs._core import names
from jetjobs._nats.provision import ProvisionSettings, wanted_streams
from jetjobs.errors import (
    AccessDenied,
    BrokerUnavailable,
    JetStreamDisabled,
    PermissionMissing,
    ServerTooOld,
    StreamMismatch,
)
from tests.support.commands import APP, Done, Terminal
from tests.support.impostors import OldServer, bare_server, black_hole
from tests.support.links import until
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.integration

SECRET = "hunter2-hunter2"
WITHIN = 10.0
VARIABLES = {
    "servers": "NATS_URL",
    "user": "NATS_USER",
    "password": "NATS_PASSWORD",
    "token": "NATS_TOKEN",
    "user_credentials": "NATS_CREDS",
    "tls_ca": "NATS_CA",
}
DENIED = {
    "nostream": 'publish: { deny: ["$JS.API.STREAM.CREATE.>"] }',
    "noconsumer": 'publish: { deny: ["$JS.API.CONSUMER.CREATE.>"] }',
    "nokv": 'publish: { deny: ["$KV.>"] }',
    "notrigger": 'publish: { deny: ["jetjobs.*.trigger.>"] }',
    "noinbox": 'subscribe: { deny: ["_INBOX.>"] }',
    "nopull": 'publish: { deny: ["$JS.API.CONSUMER.MSG.NEXT.>"] }',
    "noack": 'publish: { deny: ["$JS.ACK.>"] }',
}
USERS = "\n".join(
    [
        "accounts {",
        "  JS { jetstream: enabled, users: [",
        f"    {{ user: boss, password: {SECRET} }}",
        *(f"    {{ user: {who}, password: {SECRET}, permissions: {{ {what} }} }}" for who, what in DENIED.items()),
        "  ] }",
        f"  PLAIN {{ users: [ {{ user: plain, password: {SECRET} }} ] }}",
        "}",
    ]
)
OPENSSL = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with users of few rights, and an account without JetStream."""
    server = RealServer(tmp_path_factory.mktemp("guarded"), extra_conf=USERS)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def terminal(tmp_path: Path, project: str) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, project=project)


def shop() -> Module:
    module = Module("shop")

    @module.job(timeout="30s")
    async def mail(ctx: JobContext, to: str = "") -> str:
        return to

    return module


class Doors:
    """The three ways in, tried one after the other; each must end with the same error."""

    def __init__(self, terminal: Terminal, project: str) -> None:
        self.terminal = terminal
        self.project = project

    async def all_refuse(self, target: Mapping[str, Any], kind: type[Exception], *words: str) -> Exception:
        await self.client_refuses(target, kind, *words)
        await self.command_refuses("run app", target, *words)
        return await self.host_refuses(target, kind, *words)

    async def host_refuses(self, target: Mapping[str, Any], kind: type[Exception], *words: str) -> Exception:
        async def start() -> None:
            await JobHost([shop()], project=self.project, nats=target).start()

        return await self._refused(start(), kind, words)

    async def client_refuses(self, target: Mapping[str, Any], kind: type[Exception], *words: str) -> Exception:
        async def trigger() -> None:
            async with JobClient(target, project=self.project) as client:
                await client.get_job("shop", "mail").trigger({"to": "x"})

        return await self._refused(trigger(), kind, words)

    async def command_refuses(self, command: str, target: Mapping[str, Any], *words: str) -> Done:
        env = {VARIABLES[name]: str(value) for name, value in target.items()}
        done = await asyncio.to_thread(partial(self.terminal.run, *command.split(), env=env))
        assert done.code == 3, done.err
        assert done.took < WITHIN
        assert done.last_line.startswith("error: ")
        assert all(word in done.last_line for word in words), done.err
        assert "Traceback" not in done.err
        assert SECRET not in done.err + done.out
        return done

    async def _refused(self, start: Any, kind: type[Exception], words: tuple[str, ...]) -> Exception:
        before = asyncio.all_tasks()
        begun = time.monotonic()
        with capture_logs() as logs, pytest.raises(kind) as raised:
            async with asyncio.timeout(2 * WITHIN):
                await start
        assert time.monotonic() - begun < WITHIN
        message = str(raised.value)
        assert all(word in message for word in words), message
        assert "\n" not in message
        assert SECRET not in message + repr(logs)
        await until(lambda: not asyncio.all_tasks() - before, within=2)  # the connection and its loops went with it
        return raised.value


@pytest.fixture
def doors(terminal: Terminal, project: str) -> Doors:
    return Doors(terminal, project)


def connections(monitor: int) -> list[dict[str, Any]]:
    """What a server says of its clients."""
    with urlopen(f"http://127.0.0.1:{monitor}/connz", timeout=5) as answer:
        return json.load(answer)["connections"]


async def streams_of(url: str, project: str, **login: str) -> set[str]:
    """The project's streams and buckets, as they are now."""
    client = await nats.connect(url, **login)
    try:
        answer = json.loads((await client.request("$JS.API.STREAM.NAMES", timeout=5)).data)
    finally:
        await client.close()
    return {name for name in answer.get("streams") or () if project in name}


class TestAddress:
    async def test_nobody_there(self, doors: Doors):
        """B129: a closed port."""
        port = free_port()
        await doors.all_refuse({"servers": f"nats://me:{SECRET}@127.0.0.1:{port}"}, BrokerUnavailable, f":{port}")

    async def test_somebody_who_never_answers(self, doors: Doors):
        """B129: a black hole."""
        with black_hole() as url:
            await doors.all_refuse({"servers": url}, BrokerUnavailable, url.removeprefix("nats://"), "no answer")

    async def test_four_black_holes_take_no_longer_than_ten_seconds(self, doors: Doors):
        with black_hole() as one, black_hole() as two, black_hole() as three, black_hole() as four:
            target = {"servers": f"{one},{two},{three},{four}"}
            await doors.command_refuses("run app", target, one.removeprefix("nats://"))


class TestServer:
    async def test_without_jetstream(self, doors: Doors, tmp_path: Path):
        """B85: a server that wasn't given -js."""
        with bare_server(tmp_path / "bare") as url:
            await doors.all_refuse({"servers": url}, JetStreamDisabled, "JetStream", "-js")

    async def test_account_without_jetstream(self, doors: Doors, guarded: RealServer):
        """B85: it is on, but not for us."""
        target = {"servers": guarded.url, "user": "plain", "password": SECRET}
        await doors.all_refuse(target, JetStreamDisabled, "JetStream", "account")

    async def test_too_old(self, doors: Doors):
        """B27: no schedules before 2.14; both versions are named."""
        with OldServer("2.9.10") as url:
            error = await doors.all_refuse({"servers": url}, ServerTooOld, "2.9.10", "2.14")
        assert isinstance(error, ServerTooOld)
        assert (error.found, error.needed) == ("2.9.10", "2.14")


class TestExistingStream:
    async def make(self, url: str, project: str, **changes: Any) -> None:
        wanted = wanted_streams(project, ProvisionSettings())[0]
        config = {name: value for name, value in {**wanted.config, **changes}.items() if value is not None}
        client = await nats.connect(url)
        answer = await client.request(f"$JS.API.STREAM.CREATE.{wanted.name}", json.dumps(config).encode())
        await client.close()
        assert "error" not in json.loads(answer.data)

    async def test_without_schedules_is_brought_up_to_date(self, nats_url: str, project: str):
        """B27: fixed, and said so; never runs with schedules silently off."""
        await self.make(nats_url, project, allow_msg_schedules=None, allow_msg_ttl=None)
        with capture_logs() as logs:
            async with JobHost([shop()], project=project, nats=nats_url):
                client = await nats.connect(nats_url)
                info = json.loads((await client.request(f"$JS.API.STREAM.INFO.{names.stream(project)}")).data)
                await client.close()
        assert info["config"]["allow_msg_schedules"] is True
        told = next(line for line in logs if line["event"] == "stream adapted")
        assert "allow_msg_schedules" in told["changed"]

    async def test_of_another_kind_is_named_and_left_alone(self, doors: Doors, nats_url: str, project: str):
        """B27: a difference the broker never changes."""
        await self.make(nats_url, project, retention="limits")
        words = (names.stream(project), "retention", "'limits'", "'workqueue'")
        await doors.host_refuses({"servers": nats_url}, StreamMismatch, *words)
        await doors.command_refuses("run app", {"servers": nats_url}, *words)
        assert await streams_of(nats_url, project) == {names.stream(project)}

    async def test_with_discard_new_is_explained(self, doors: Doors, nats_url: str, project: str):
        """The broker refuses schedules on such a stream: its reason and the stream are told."""
        await self.make(nats_url, project, allow_msg_schedules=None, discard="new", max_msgs=5)
        await doors.host_refuses({"servers": nats_url}, StreamMismatch, names.stream(project), "allow_msg_schedules")
        assert await streams_of(nats_url, project) == {names.stream(project)}

    async def test_a_bucket_of_another_kind(self, doors: Doors, nats_url: str, project: str):
        bucket = names.bucket_stream(names.runs_bucket(project))
        client = await nats.connect(nats_url)
        config = {"name": bucket, "subjects": [f"elsewhere.{project}.>"], "storage": "memory"}
        await client.request(f"$JS.API.STREAM.CREATE.{bucket}", json.dumps(config).encode())
        await client.close()
        await doors.host_refuses({"servers": nats_url}, StreamMismatch, bucket, "storage", "'memory'", "'file'")


class TestLogin:
    async def test_wrong_password(self, doors: Doors, guarded: RealServer):
        """B83."""
        target = {"servers": guarded.url, "user": "boss", "password": SECRET + "x"}
        await doors.all_refuse(target, AccessDenied, "uthorization")

    async def test_wrong_token(self, doors: Doors, tmp_path: Path):
        """B83: also when the token is in the URL."""
        conf = f"jetstream {{ store_dir: '{tmp_path}/js' }}\nauthorization {{ token: right }}"
        with bare_server(tmp_path / "bare", conf=conf) as url:
            await doors.all_refuse({"servers": url, "token": SECRET}, AccessDenied, "uthorization")
            in_url = url.replace("nats://", f"nats://{SECRET}@")
            await doors.all_refuse({"servers": in_url}, AccessDenied, "uthorization")

    async def test_no_login_at_all(self, doors: Doors, guarded: RealServer):
        await doors.all_refuse({"servers": guarded.url}, AccessDenied, "uthorization")

    async def test_missing_credentials_file(self, doors: Doors, nats_url: str, tmp_path: Path):
        """B83."""
        missing = str(tmp_path / "missing.creds")
        target = {"servers": nats_url, "user_credentials": missing}
        await doors.all_refuse(target, AccessDenied, missing, "No such file")

    async def test_expired_credentials_file(self, doors: Doors, tmp_path: Path):
        """B83: a user's JWT that ran out an hour ago."""
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

    async def test_ca(self, doors: Doors, tmp_path: Path, certificate: tuple[Path, Path]):
        """B83: required but not used, an unknown CA, a CA file that isn't there, one that is no certificate."""
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

    async def test_asked_for_where_there_is_none(self, doors: Doors, nats_url: str):
        """`tls://` must never fall back to plain text."""
        await doors.all_refuse({"servers": nats_url.replace("nats://", "tls://")}, AccessDenied, "TLS")

    async def test_offered_and_asked_for(self, doors: Doors, tmp_path: Path, certificate: tuple[Path, Path]):
        """A server that leaves the choice to its clients: whoever gave a CA is never served in plain text."""
        cert, key = certificate
        conf = f"tls {{ cert_file: '{cert}', key_file: '{key}' }}\nallow_non_tls: true"
        options = ["-js", "-sd", str(tmp_path / "js"), "-m", str(monitor := free_port())]
        with bare_server(tmp_path / "bare", *options, conf=conf) as url:
            await doors.client_refuses({"servers": url.replace("nats://", "tls://")}, AccessDenied, "CA")
            async with JobHost([shop()], project=doors.project, nats={"servers": url, "tls_ca": str(cert)}):
                found = await asyncio.to_thread(connections, monitor)
            assert [each.get("tls_version") is not None for each in found] == [True]


class TestRights:
    def target(self, guarded: RealServer, user: str) -> dict[str, str]:
        return {"servers": guarded.url, "user": user, "password": SECRET}

    async def test_to_create_streams(self, doors: Doors, guarded: RealServer, project: str):
        """The subject is named, and nothing was made."""
        target = self.target(guarded, "nostream")
        subject = f"$JS.API.STREAM.CREATE.{names.stream(project)}"
        error = await doors.host_refuses(target, PermissionMissing, subject)
        assert isinstance(error, PermissionMissing)
        assert error.subject == subject
        await doors.command_refuses("run app", target, subject)
        assert await streams_of(guarded.url, project, user="boss", password=SECRET) == set()

    async def test_to_create_consumers(self, doors: Doors, guarded: RealServer, project: str):
        target = self.target(guarded, "noconsumer")
        subject = f"$JS.API.CONSUMER.CREATE.{names.stream(project)}.shop=_mail"
        await doors.host_refuses(target, PermissionMissing, subject)

    async def test_to_write_records(self, doors: Doors, guarded: RealServer, project: str):
        target = self.target(guarded, "nokv")
        subject = f"$KV.{names.jobs_bucket(project)}.shop.mail"
        await doors.host_refuses(target, PermissionMissing, subject)
        await doors.command_refuses("run app", target, subject)

    async def test_to_trigger(self, doors: Doors, guarded: RealServer, project: str):
        async with JobHost([shop()], project=project, nats=self.target(guarded, "boss")):
            target = self.target(guarded, "notrigger")
            await doors.client_refuses(target, PermissionMissing, f"jetjobs.{project}.trigger.shop.mail.run.")
            await doors.command_refuses("trigger shop.mail", target, f"jetjobs.{project}.trigger.shop.mail.run.")

    async def test_to_hear_answers(self, doors: Doors, guarded: RealServer):
        await doors.all_refuse(self.target(guarded, "noinbox"), PermissionMissing, "_INBOX.")

    @pytest.mark.parametrize("user, subject", [("nopull", "$JS.API.CONSUMER.MSG.NEXT."), ("noack", "$JS.ACK.")])
    async def test_to_take_and_retire_deliveries(
        self, doors: Doors, guarded: RealServer, project: str, user: str, subject: str
    ):
        """Such a host must not look healthy and be deaf."""
        target = self.target(guarded, user)
        named = f"{subject}{names.stream(project)}.shop=_mail"
        error = await doors.host_refuses(target, PermissionMissing, named)
        assert isinstance(error, PermissionMissing)
        assert (error.subject or "").startswith(named)
        await doors.command_refuses("run app", target, named)


class TestUnprepared:
    async def test_a_project_no_host_prepared(self, doors: Doors, nats_url: str):
        """Nothing is made by a client, and it says what to do."""
        done = await doors.command_refuses("trigger shop.mail", {"servers": nats_url}, "jetjobs init")
        assert done.took < WITHIN
        assert await streams_of(nats_url, doors.project) == set()
