"""The embedded server: it comes up, it is alone on its folder, and it goes with its parent."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import nats
import nats.errors
import pytest
from structlog.testing import capture_logs

from jetjobs._nats import server_binary
from jetjobs._nats.server import EmbeddedServer, find_server
from jetjobs.errors import ServerStartError
from tests.support.cluster import RealCluster
from tests.support.processes import gone_within
from tests.support.servers import NATS_CONF, RealServer

pytestmark = pytest.mark.integration

PARENT = """
import os, signal, sys
from jetjobs._nats.server import EmbeddedServer
server = EmbeddedServer(sys.argv[1])
server.start_blocking()
if "fork" in sys.argv and os.fork() == 0:  # a child that inherits the pipe and lives on
    signal.pause()
print(server.pid, flush=True)
signal.pause()
"""


@contextmanager
def parent(folder: Path, *words: str) -> Generator[tuple[subprocess.Popen[str], int]]:
    """A process that runs an embedded server, and the server's pid; killed with its group at the end."""
    command = [sys.executable, "-c", PARENT, str(folder), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


async def test_up_with_jetstream_and_gone_on_exit(tmp_path: Path):
    async with EmbeddedServer(tmp_path / "data") as server:
        client = await nats.connect(server.url)
        account = await client.jetstream().account_info()
        await client.close()
        pid = server.pid
    assert account.limits is not None
    assert gone_within(pid, 0)
    assert not server.running


async def test_data_survives_and_lies_in_the_folder(tmp_path: Path):
    for count in (1, 2):
        async with EmbeddedServer(tmp_path / "data", config=NATS_CONF) as server:
            client = await nats.connect(server.url)
            jetstream = client.jetstream()
            await jetstream.add_stream(name="kept", subjects=["kept"])
            assert (await jetstream.publish("kept", b"")).seq == count
            await client.close()
    assert (tmp_path / "data" / ".gitignore").read_text() == "*\n"
    assert "Server is ready" in (tmp_path / "data" / "nats-server.log").read_text()
    assert not list((tmp_path / "data").glob("*.ports"))


async def test_no_process_is_left_as_a_zombie(tmp_path: Path):
    server = EmbeddedServer(tmp_path)
    await server.start()
    supervisor = server._process
    assert supervisor is not None
    await server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(supervisor.pid, 0)
    await server.stop()  # nothing to do


async def test_what_isnt_started_has_no_url(tmp_path: Path):
    server = EmbeddedServer(tmp_path)
    with pytest.raises(ServerStartError, match="not started"):
        _ = server.url


async def test_started_twice_is_an_error(tmp_path: Path):
    async with EmbeddedServer(tmp_path) as server:
        with pytest.raises(ServerStartError, match="already started"):
            server.start_blocking()


async def test_cancelled_start_leaves_nothing(tmp_path: Path):
    server = EmbeddedServer(tmp_path)

    async def start_and_stay() -> None:
        await server.start()
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(start_and_stay(), 0.01)
    await server.stop()
    async with EmbeddedServer(tmp_path):  # the folder is free
        pass


async def test_second_opener_of_a_folder_is_refused_and_told_who_has_it(tmp_path: Path):
    async with EmbeddedServer(tmp_path) as first:
        with pytest.raises(ServerStartError, match=rf"in use by process {os.getpid()}\b"):
            await EmbeddedServer(tmp_path).start()
        assert first.running


async def test_start_that_fails_shows_the_servers_own_words(tmp_path: Path):
    config = tmp_path / "bad.conf"
    config.write_text("jetstream { no_such_thing: 1 }")
    with pytest.raises(ServerStartError, match="no_such_thing"):
        await EmbeddedServer(tmp_path / "data", config=config).start()


async def test_port_in_use_is_told(tmp_path: Path):
    async with EmbeddedServer(tmp_path / "a") as first:
        second = EmbeddedServer(tmp_path / "b", port=first.port)
        with pytest.raises(ServerStartError, match="address already in use"):
            await second.start()


async def test_terminal_signals_dont_reach_it(tmp_path: Path):
    async with EmbeddedServer(tmp_path) as server:
        assert os.getsid(server.pid) != os.getsid(0)
        assert os.getpgid(server.pid) != os.getpgid(0)


@pytest.mark.parametrize("words", [[], ["fork"]], ids=["alone", "with a forked child"])
def test_gone_when_its_parent_is_killed(tmp_path: Path, words: list[str]):
    with parent(tmp_path, *words) as (process, pid):
        process.kill()
        assert gone_within(pid, 20)


def test_gone_when_its_parent_is_killed_while_frozen(tmp_path: Path):
    with parent(tmp_path) as (process, pid):
        os.kill(pid, signal.SIGSTOP)
        process.kill()
        assert gone_within(pid, 20)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends the child of a killed supervisor")
async def test_gone_when_its_supervisor_is_killed(tmp_path: Path):
    async with EmbeddedServer(tmp_path) as server:
        pid = server.pid
        assert server._process is not None
        server._process.kill()
        assert gone_within(pid, 20)
        server._process.wait(30)
        assert not server.running


def test_folder_of_a_killed_parent_opens_at_once(tmp_path: Path):
    with parent(tmp_path) as (process, _):
        process.kill()
        process.wait()
        server = EmbeddedServer(tmp_path)
        server.start_blocking()
        server.stop_blocking()


def test_old_server_on_the_path_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = find_server()
    for folder, script in {
        "broken": "#!/bin/sh\nexit 1\n",
        "old": "#!/bin/sh\necho 'nats-server: v2.10.4'\n",
        "new": f'#!/bin/sh\nexec {real.path} "$@"\n',
    }.items():
        (tmp_path / folder).mkdir()
        program = tmp_path / folder / "nats-server"
        program.write_text(script)
        program.chmod(0o755)
    monkeypatch.setattr(server_binary, "_from_wheel", lambda: iter(()))
    monkeypatch.setenv("PATH", os.pathsep.join(str(tmp_path / name) for name in ("broken", "old", "new")))
    with capture_logs() as logs:
        found = find_server()
    assert found.path == tmp_path / "new" / "nats-server"
    assert found.version == real.version
    assert [log["found"] for log in logs] == ["unknown", "2.10.4"]


class TestRealServer:
    """The helper of the fault tests does what it says."""

    async def test_restart_keeps_port_and_store(self, own_server: RealServer):
        url, first = own_server.url, own_server.pid
        client = await nats.connect(url)
        jetstream = client.jetstream()
        await jetstream.add_stream(name="kept", subjects=["kept"])
        await client.close()
        own_server.kill9()
        assert gone_within(first, 0)
        own_server.restart()
        assert own_server.url == url
        client = await nats.connect(url)
        assert (await client.jetstream().stream_info("kept")).config.name == "kept"
        await client.close()

    async def test_frozen_server_answers_again(self, own_server: RealServer):
        client = await nats.connect(own_server.url)
        own_server.sigstop()
        with pytest.raises(nats.errors.TimeoutError):
            await client.request("$JS.API.INFO", timeout=0.5)
        own_server.sigcont()
        await client.request("$JS.API.INFO", timeout=10)
        await client.close()
        own_server.sigstop()
        own_server.sigterm()  # ends a frozen one as well

    async def test_extra_configuration(self, tmp_path: Path):
        with RealServer(tmp_path, extra_conf='authorization { user: ada, password: "x" }') as server:
            client = await nats.connect(server.url, user="ada", password="x")
            await client.close()
            assert "Server is ready" in server.log

    async def test_shared_server(self, nats_url: str, project: str):
        client = await nats.connect(nats_url)
        await client.jetstream().add_stream(name=project, subjects=[project])
        await client.close()


@pytest.mark.faults
async def test_cluster_forms_and_survives_its_leader(cluster: RealCluster):
    client = await nats.connect(cluster.urls)
    jetstream = client.jetstream()
    await jetstream.add_stream(name="kept", subjects=["kept"], num_replicas=3)
    async with asyncio.timeout(45):
        while (leader := await cluster.leader_of("kept")) is None:
            pass
        await jetstream.publish("kept", b"1")
    leader.kill9()
    async with asyncio.timeout(45):
        while True:
            with suppress(nats.errors.Error):
                assert (await jetstream.stream_info("kept")).state.messages == 1
                break
    await client.close()
