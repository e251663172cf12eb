"""B123: a password or token is in no log, error, record, presence or command's output, at whatever level."""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jetjobs import JobClient, JobContext, JobHost, Module, RunStatus
from jetjobs.config import HostSettings
from jetjobs.errors import AccessDenied, BrokerUnavailable
from tests.support.commands import Terminal
from tests.support.field import QUICK
from tests.support.servers import RealServer, free_port
from tests.support.waiting import eventually

pytestmark = [pytest.mark.integration, pytest.mark.faults]

SECRET = "s3cr3t"
AUTH = {
    "user": f"authorization {{ user: ann, password: {SECRET} }}",
    "token": f"authorization {{ token: {SECRET} }}",
}

Target = Callable[[RealServer, str], Any]
TARGETS: dict[str, tuple[str, Target]] = {
    "url": ("user", lambda server, word: f"nats://ann:{word}@127.0.0.1:{server.port}"),
    "urls": ("user", lambda server, word: f"nats://ann:{word}@127.0.0.1:{server.port},nats://ann:{word}@localhost:1"),
    "token-in-url": ("token", lambda server, word: f"nats://{word}@127.0.0.1:{server.port}"),
    "options": ("user", lambda server, word: {"servers": server.url, "user": "ann", "password": word}),
    "token-option": ("token", lambda server, word: {"servers": [server.url], "token": word}),
}


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[[str], RealServer]]:
    made: list[RealServer] = []

    def make(auth: str) -> RealServer:
        server = RealServer(tmp_path / "nats", extra_conf=AUTH[auth])
        server.start()
        made.append(server)
        return server

    yield make
    for server in made:
        server.remove()


def shop() -> Module:
    module = Module("shop")

    @module.job(timeout="20s")
    async def fail(ctx: JobContext) -> None:
        ctx.log("of a run", ctx=ctx, state=ctx.state)
        raise ValueError(f"{ctx!r} {ctx.trigger!r}")

    return module


class Heard:
    """Everything said meanwhile, by whatever way."""

    def __init__(self, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
        self._capfd = capfd
        self._caplog = caplog
        self.texts: list[str] = []
        caplog.set_level(logging.DEBUG)

    def note(self, *things: object) -> None:
        for thing in things:
            lines = traceback.format_exception(thing) if isinstance(thing, BaseException) else [str(thing), repr(thing)]
            self.texts.append("\n".join(lines))

    def check(self) -> str:
        out, err = self._capfd.readouterr()
        self.texts += [out, err, self._caplog.text]
        whole = "\n".join(self.texts)
        assert SECRET not in whole, [line for line in whole.splitlines() if SECRET in line]
        return whole


@pytest.fixture
def heard(capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Heard:
    return Heard(capfd, caplog)


def stored_with_secret(server: RealServer) -> list[Path]:
    return [
        path for path in server.store.rglob("*")
        if path.is_file() and path.suffix not in {".log", ".conf"} and SECRET.encode() in path.read_bytes()
    ]  # fmt: skip


@pytest.mark.parametrize("kind", TARGETS)
async def test_b123_a_life_with_a_password(
    make_server: Callable[[str], RealServer], project: str, heard: Heard, kind: str
):
    """Connect, run, fail, lose the broker, come back, close."""
    auth, target = TARGETS[kind]
    server = make_server(auth)
    nats = target(server, SECRET)
    settings = HostSettings(**QUICK)
    host = JobHost(shop(), project=project, nats=nats, settings=settings)
    async with host, JobClient(nats, project=project) as client:
        run = await client.get_job("shop.fail").trigger()
        record = await run.wait(timeout=45)
        assert record.status is RunStatus.FAILED
        heard.note(
            host, client, settings, host.health(), record, run, await client.hosts.list(), *await client.jobs.list()
        )
        await asyncio.to_thread(server.kill9)
        await eventually(lambda: not host.health().connected)
        with pytest.raises(BrokerUnavailable) as away:
            await client.get_job("shop.fail").trigger(timeout=0.5)
        heard.note(away.value, host.health())
        await asyncio.to_thread(server.start)
        await eventually(lambda: host.health().connected)
        again = await client.get_job("shop.fail").trigger(timeout=15)
        heard.note(await again.wait(timeout=45), host.health())
    assert "host_started" in heard.check()
    assert stored_with_secret(server) == []


@pytest.mark.parametrize("kind", TARGETS)
async def test_b123_a_wrong_word(make_server: Callable[[str], RealServer], project: str, heard: Heard, kind: str):
    """The server knows another one: the error tells neither."""
    auth, target = TARGETS[kind]
    server = make_server(auth)
    wrong = target(server, f"wrong-{SECRET}")
    for opened in (JobHost(shop(), project=project, nats=wrong), JobClient(wrong, project=project)):
        with pytest.raises(AccessDenied) as denied:
            await opened.__aenter__()
        heard.note(denied.value, opened)
    heard.check()


@pytest.mark.parametrize(
    "url",
    [
        "nats://ann:{}@127.0.0.1:{}",
        "nats://{}@127.0.0.1:{}",
        "nats://ann:{}%40x@127.0.0.1:{}",
        "ann:{}@127.0.0.1:{}",
        "nats://ann:{}@127.0.0.1:port{}",
        "nats://ann:{}@[::1:{}",
        "nats://ann:{}@127.0.0.1:{}99999",
        "nats://ann:x:{}@y@127.0.0.1:{}",
        "http://ann:{}@127.0.0.1:{}",
        "nats://ann:{}@no-such-host.invalid:{}",
        "nats://ann:{}/x@127.0.0.1:{}",
        "nats://ann:{} x@127.0.0.1:{}",
    ],
)
async def test_b123_nobody_there(project: str, heard: Heard, url: str):
    there = url.format(SECRET, free_port())
    for opened in (JobHost(shop(), project=project, nats=there), JobClient(there, project=project)):
        with pytest.raises(Exception) as unreachable:  # whatever it is, it keeps the secret
            await opened.__aenter__()
        heard.note(unreachable.value, opened)
    heard.check()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["url", "token-in-url"])
def test_b123_the_command_line(make_server: Callable[[str], RealServer], tmp_path: Path, project: str, kind: str):
    """Doctor, lists and failures, with tracebacks asked for, right and wrong."""
    auth, target = TARGETS[kind]
    server = make_server(auth)
    (tmp_path / "app.py").write_text("from jetjobs import Module\nshop = Module('shop')\n")
    commands = (["doctor"], ["doctor", "--json"], ["hosts", "list"], ["runs", "list", "--json"], ["init", "app"])
    for word in (SECRET, f"wrong-{SECRET}"):
        terminal = Terminal(tmp_path, nats=target(server, word), project=project)
        for args in commands if word == SECRET else commands[:2]:
            done = terminal.run(*args, "--debug")
            assert SECRET not in done.out + done.err, args
            assert done.code in {0, 1, 3, 4}, done.err
    gone = Terminal(tmp_path, nats=f"nats://ann:{SECRET}@127.0.0.1:{free_port()}", project=project)
    for args in commands[:3:2]:
        done = gone.run(*args, "--debug")
        assert done.code != 0
        assert SECRET not in done.out + done.err, args
