"""A broker that can't serve: host, client and command line each say so, in one line and within ten seconds.

Other such brokers are in `tests/field`: B27, B83, B85, B91. Whatever is wrong is named,
nothing is half-made, the exit code is not 0, and no secret shows.
"""

from __future__ import annotations

import json

import nats
import pytest

from jetjobs import JobHost
from jetjobs._core import names
from jetjobs.errors import (
    PermissionMissing,
    StreamMismatch,
)
from tests.support.doors import SECRET, Doors, shop, streams_of
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


class TestExistingBucket:
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
        assert done.in_time
        assert await streams_of(nats_url, doors.project) == set()
