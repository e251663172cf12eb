"""What a host says of its health while things around it go wrong, and the probes that ask."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.errors import Error as NatsError
from nats.js import JetStreamContext

from jetjobs import HostSettings, JobClient, JobContext, JobHost, Module, OnEvent
from jetjobs._engine import event_bridge
from jetjobs.errors import BrokerError, HostError
from tests.support.commands import APP, Terminal
from tests.support.field import QUICK, field_of
from tests.support.links import until, until_it
from tests.support.servers import RealServer, free_port
from tests.support.web import WebServer

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_bridge, "LOOK_EVERY", 0.3)


def thanks(*triggers: OnEvent) -> Module:
    module = Module("billing")

    @module.job(timeout="20s", max_concurrency=2, triggers=triggers)
    async def thank(_ctx: JobContext, event: dict[str, Any]) -> int:
        return event["n"]

    return module


def sleepy(started: asyncio.Event, release: asyncio.Event) -> Module:
    module = Module("shop")

    @module.job(timeout="20s", max_concurrency=3)
    async def sleep(_ctx: JobContext) -> None:
        started.set()
        await release.wait()

    return module


class TestStates:
    async def test_from_new_to_closed(self, nats_url: str, project: str):
        started, release = asyncio.Event(), asyncio.Event()
        host = JobHost([sleepy(started, release)], nats=nats_url, project=project, settings=HostSettings(drain="10s"))
        new = host.health()
        assert (new.state, new.live, new.ready, new.ok, new.problems) == ("new", True, False, False, ())
        await host.start()
        assert (host.health().state, host.health().ok) == ("serving", True)
        await host.modules[0].jobs["sleep"].trigger()
        await started.wait()
        (job,) = host.health().jobs
        assert (job.job, job.limit, job.running, job.waiting, job.paused) == ("shop.sleep", 3, 1, 0, False)
        closing = asyncio.ensure_future(host.close())
        await until(lambda: host.health().draining)
        draining = host.health()
        assert (draining.state, draining.live, draining.ready, draining.running) == ("draining", True, False, 1)
        release.set()
        await closing
        closed = host.health()
        assert (closed.state, closed.live, closed.ready, closed.connected) == ("closed", True, False, False)

    async def test_what_waits_for_a_place_here_is_counted(self, nats_url: str, project: str):
        started, release = asyncio.Event(), asyncio.Event()
        async with field_of(nats_url, project) as field:
            host = await field.host(sleepy(started, release), settings=[("capacity", 1)])
            for _ in range(2):
                await host.modules[0].jobs["sleep"].trigger()
            await until(lambda: [(job.running, job.waiting) for job in host.health().jobs] == [(1, 1)])
            release.set()

    async def test_a_paused_job_shows(self, nats_url: str, project: str):
        async with field_of(nats_url, project) as field:
            host = await field.host(thanks())
            await field.client.jobs.pause("billing.thank")
            await until(lambda: host.health().jobs[0].paused)
            assert host.health().ok  # somebody wants it so
            await field.client.jobs.resume("billing.thank")
            await until(lambda: not host.health().jobs[0].paused)

    async def test_a_loop_that_ended_makes_it_dead(self, nats_url: str, project: str):
        async with field_of(nats_url, project) as field:
            host = await field.host(thanks())
            heartbeat = next(task for task in asyncio.all_tasks() if task.get_name() == "jetjobs heartbeat")
            heartbeat.cancel()
            with pytest.raises(HostError, match="something cancelled the task of loop 'heartbeat'"):
                await host.wait_closed()
            health = host.health()
            assert (health.live, health.ready, health.connected) == (False, False, True)
            assert health.problem is not None
            assert health.problem.startswith("a loop died")

    async def test_a_blocked_loop_is_seen_from_beside_it(self, nats_url: str, project: str):
        async with field_of(nats_url, project) as field:
            host = await field.host(thanks())
            beside = Beside(host)
            beside.start()
            beside.join(15)  # this thread is the loop's: blocked
            assert beside.told is not None
            assert "the event loop has been blocked for" in beside.told
            await until(lambda: host.health().ok)


class Beside(threading.Thread):
    """Asks a host until it tells of a problem."""

    def __init__(self, host: JobHost) -> None:
        super().__init__(daemon=True)
        self.host = host
        self.told: str | None = None

    def run(self) -> None:
        while self.told is None:
            self.told = self.host.health().problem
            time.sleep(0.02)


class TestEvents:
    async def test_a_stream_that_is_not_there_is_told_until_it_is(self, nats_url: str, project: str):
        prefix = f"h{secrets.token_hex(4)}"
        trigger = OnEvent(f"{prefix}.paid", stream=prefix.upper())
        async with field_of(nats_url, project) as field:
            host = await field.host(thanks(trigger))
            health = host.health()
            (event,) = health.events
            assert (event.job, event.subject, event.stream) == ("billing.thank", f"{prefix}.paid", prefix.upper())
            assert event.problem is not None
            assert f'there is no stream "{prefix.upper()}"' in event.problem
            assert (health.live, health.ready, health.ok) == (True, True, False)
            assert len(health.problems) == 1
            await field.nats.jetstream().add_stream(name=prefix.upper(), subjects=[f"{prefix}.>"])
            await until(lambda: host.health().ok)

    async def test_one_that_went_is_told_too(self, nats_url: str, project: str):
        prefix = f"h{secrets.token_hex(4)}"
        async with field_of(nats_url, project) as field:
            stream = field.nats.jetstream()
            await stream.add_stream(name=prefix.upper(), subjects=[f"{prefix}.>"])
            host = await field.host(thanks(OnEvent(f"{prefix}.paid", stream=prefix.upper())))
            assert host.health().ok
            await stream.delete_stream(prefix.upper())
            await until(lambda: host.health().events[0].problem)
            assert host.health().ready
            await stream.add_stream(name=prefix.upper(), subjects=[f"{prefix}.>"])
            await until(lambda: host.health().ok)


RIGHTS = """
authorization {{
  users: [
    {{ user: boss, password: pw }}
    {{ user: host, password: pw, permissions: {{ publish: ">", subscribe: {{ allow: ">", deny: [{denied}] }} }} }}
  ]
}}
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[RealServer]:
    """A server where the host's user may be denied subjects while it runs."""
    with RealServer(tmp_path / "nats", extra_conf=RIGHTS.format(denied='"nothing.at.all"')) as server:
        yield server


def deny(server: RealServer, denied: str) -> None:
    assert server.config is not None
    text = server.config.read_text()
    before, _, _ = text.partition("authorization {")
    server.config.write_text(before + RIGHTS.format(denied=denied))
    os.kill(server.pid, signal.SIGHUP)


@pytest.mark.skipif(sys.platform == "win32", reason="SIGHUP reloads the server")
async def test_a_right_to_hear_events_that_is_taken_away(guarded: RealServer, project: str):
    login = {"servers": guarded.url, "user": "host", "password": "pw", "reconnect_time_wait": 0.1}
    host = JobHost([thanks(OnEvent("orders.paid"))], nats=login, project=project, settings=HostSettings(**QUICK))
    async with host:
        assert host.health().ok
        deny(guarded, '"orders.paid"')
        await until(lambda: host.health().events[0].problem)
        assert "orders.paid" in str(host.health().problem)
        assert host.health().live
        deny(guarded, '"nothing.at.all"')
        boss = await nats.connect(guarded.url, user="boss", password="pw")
        try:
            await until(lambda: host.health().ok)
            await boss.publish("orders.paid", b'{"n": 1}')
            await until_it(partial(_has_a_run, guarded, project))
        finally:
            await boss.close()


async def _has_a_run(server: RealServer, project: str) -> bool:
    login = {"servers": server.url, "user": "boss", "password": "pw"}
    async with JobClient(login, project=project) as client:
        return len(await client.runs.list()) == 1


async def test_full_storage_shows_and_goes(tmp_path: Path, project: str):
    conf = tmp_path / "small.conf"
    conf.write_text("jetstream { max_memory_store: 16MB, max_file_store: 3MB }\n")
    with RealServer(tmp_path / "nats", config=conf) as server:
        async with field_of(server.url, project) as field:
            host = await field.host(thanks())
            stream = field.nats.jetstream()
            await stream.add_stream(name="FILLER", subjects=["filler"])
            await _fill(stream)
            await until_it(lambda: _says(host, "resources"))
            assert (host.health().live, host.health().ready) == (True, False)
            await stream.delete_stream("FILLER")
            await until_it(lambda: _says(host, None))
            assert host.health().ok


async def _fill(stream: JetStreamContext) -> None:
    with suppress(NatsError):
        for _ in range(400):
            await stream.publish("filler", b"x" * 10_000)
        pytest.fail("4 MB fit into 3")


async def _says(host: JobHost, wanted: str | None) -> bool:
    """Have the host say now that it lives, rather than within ten seconds; and look what came of it."""
    hosting = host._hosting
    assert hosting is not None
    with suppress(BrokerError):
        await hosting.presence.one_pass()
    problem = host.health().problem
    return problem is None if wanted is None else problem is not None and wanted in problem


@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM drains")
class TestProbes:
    def test_what_they_answer_from_start_to_end(self, tmp_path: Path, own_server: RealServer, project: str):
        (tmp_path / "app.py").write_text(APP)
        terminal = Terminal(tmp_path, nats=own_server.url, project=project)
        port = free_port()
        command = ("jetjobs", "run", "app", "--probes", str(port))
        with WebServer(command, port=port, folder=tmp_path, env=terminal.env) as host:
            host.wait_until("/ready", 200)
            assert host.ask("/live") == (200, "live\n")
            assert host.ask("/ready?x=1") == (200, "ready\n")
            assert host.ask("/else")[0] == 404
            assert host.ask("/live", {"a": "post"})[0] == 405
            own_server.kill9()
            host.wait_until("/ready", 503)
            assert host.ask("/live")[0] == 200
            own_server.start()
            host.wait_until("/ready", 200)
            assert terminal.run("trigger", "shop.slow", "3").code == 0
            _wait_for_file(tmp_path / "slow-started")
            host.signal(signal.SIGTERM)
            host.wait_until("/ready", 503)
            assert host.ask("/ready") == (503, "not ready\n")
            assert host.ask("/live")[0] == 200
            assert host.end() == 0

    def test_an_address_that_is_taken_is_one_error(self, tmp_path: Path, nats_server: RealServer, project: str):
        (tmp_path / "app.py").write_text(APP)
        terminal = Terminal(tmp_path, nats=nats_server.url, project=project)
        done = terminal.run("run", "app", env={"JETJOBS_PROBES": str(nats_server.port)})
        assert done.code == 2
        assert f"probes can't be answered at 127.0.0.1:{nats_server.port}" in done.err
        assert "Traceback" not in done.err


def _wait_for_file(path: Path) -> None:
    deadline = time.monotonic() + 45
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} did not come"
        time.sleep(0.02)
