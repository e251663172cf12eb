"""Call gateways through an outage of the broker."""

from __future__ import annotations

import asyncio
from typing import Any

from jetjobs import JobContext, JobHost, Module, RunStatus
from jetjobs._core import signal_subjects
from jetjobs.client import JobClient
from jetjobs.config import HostSettings
from tests.faults.rig import eventually
from tests.support.field import QUICK
from tests.support.raw_caller import NoResponders, RawCaller
from tests.support.raw_socket import head
from tests.support.servers import RealServer


async def test_calls_are_answered_again_after_a_restart_of_the_broker(own_server: RealServer, project: str) -> None:
    module = Module("billing")

    @module.job(timeout="20s", max_concurrency=4)
    async def send(ctx: JobContext[Any], number: int) -> int:
        return number

    nats = {"servers": own_server.url, "reconnect_time_wait": 0.1}
    subject = signal_subjects.call_subject(project, send.address)
    host = JobHost(module, project=project, nats=nats, settings=HostSettings(**QUICK))
    async with host, JobClient(nats, project=project) as client:
        async with RawCaller(own_server.port) as caller:
            first = await caller.call(subject, b"1", head(Jetjobs_Key="one"))
        for crash in (own_server.kill9, own_server.sigterm):
            await asyncio.to_thread(crash)
            await eventually(lambda: not host.health().connected, what="the loss of the connection")
            await asyncio.to_thread(own_server.start)

            async def answered() -> Any:
                try:
                    async with RawCaller(own_server.port) as caller:
                        return await caller.call(subject, b"1", head(Jetjobs_Key="one"))
                except NoResponders:  # the host isn't back yet
                    return None

            again = await eventually(answered, what="an answer")
            assert again == {**first, "duplicate": True}
        record = await client.run("billing", "send", first["run_id"]).wait(45)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
