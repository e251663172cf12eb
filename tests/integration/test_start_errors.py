"""A broker that can't serve: host, client and command line each say so, in one line and within ten seconds.

Cases B27, B91 and B129 of the collection; B83 and B85 are with the field cases. Whatever is wrong is named,
nothing is half-made, the exit code is not 0, and no secret shows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from structlog.testing import capture_logs

from jetjobs import JobHost
from jetjobs._core import names
from jetjobs._nats.provision import ProvisionSettings, wanted_streams
from jetjobs.errors import (
    BrokerUnavailable,
    PermissionMissing,
    ServerTooOld,
    StreamMismatch,
)
from tests.support.commands import APP, Terminal
from tests.support.doors import GUARDED, SECRET, WITHIN, Doors, shop, streams_of
from tests.support.impostors import OldServer, black_hole
from tests.support.servers import RealServer, free_port

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with users of few rights, and an account without JetStream."""
    server = RealServer(tmp_path_factory.mktemp("guarded"), extra_conf=GUARDED)
    server.start()
    yield server
    server.remove()


@pytest.fixture
def terminal(tmp_path: Path, project: str) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, project=project)


@pytest.fixture
def doors(terminal: Terminal, project: str) -> Doors:
    return Doors(terminal, project)


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
