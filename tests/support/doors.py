"""The three ways in, tried against a broker that can't serve: each must end with the same error, in one line."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import nats
import pytest
from structlog.testing import capture_logs

from jetjobs import JobClient, JobContext, JobHost, Module
from tests.support.commands import Done, Terminal
from tests.support.links import until

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
# A server whose users have few rights, and an account without JetStream.
GUARDED = "\n".join(
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
        failed(done, 3, *words)
        return done

    async def _refused(self, start: Any, kind: type[Exception], words: tuple[str, ...]) -> Exception:
        before = asyncio.all_tasks()
        begun = time.monotonic()
        with capture_logs() as logs, pytest.raises(kind) as raised:
            async with asyncio.timeout(2 * WITHIN):
                await start
        assert time.monotonic() - begun < WITHIN + 5
        message = str(raised.value)
        assert all(word in message for word in words), message
        assert "\n" not in message
        assert SECRET not in message + repr(logs)
        await until(lambda: not asyncio.all_tasks() - before, within=2)  # the connection and its loops went with it
        return raised.value


def failed(done: Done, code: int, *words: str) -> None:
    """A command that failed as it should: in one line that has the words, in time, and without the password."""
    assert done.code == code, done.err
    assert done.in_time
    assert done.last_line.startswith("error: ")
    assert all(word in done.last_line for word in words), done.err
    assert "Traceback" not in done.err
    assert SECRET not in done.err + done.out


async def streams_of(url: str, project: str, **login: str) -> set[str]:
    """The project's streams and buckets, as they are now."""
    client = await nats.connect(url, **login)
    try:
        answer = json.loads((await client.request("$JS.API.STREAM.NAMES", timeout=5)).data)
    finally:
        await client.close()
    return {name for name in answer.get("streams") or () if project in name}
