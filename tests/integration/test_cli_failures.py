"""What an operator or their module got wrong: one clear line, the right exit code, within ten seconds, no secret."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import APP, Terminal
from tests.support.doors import SECRET, failed
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration

USERS = f"""
authorization {{
  users: [
    {{ user: boss, password: {SECRET} }}
    {{ user: viewer, password: {SECRET}, permissions: {{
        publish: {{ allow: ["$JS.API.INFO", "$JS.API.STREAM.INFO.>", "$SYS.REQ.USER.INFO"] }}
        subscribe: {{ allow: ["_INBOX.>"] }} }} }}
  ]
}}
"""
TINY = f"""
accounts {{
  A {{
    jetstream: {{ max_file: 60KB, max_mem: 1MB, max_streams: 20 }}
    users: [{{ user: boss, password: {SECRET} }}]
  }}
}}
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    (tmp_path / "app.py").write_text(APP)
    return Terminal(tmp_path, project="cli-failures")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A server with users."""
    with RealServer(tmp_path_factory.mktemp("guarded"), extra_conf=USERS) as server:
        yield server


def url(server: RealServer, user: str, password: str = SECRET) -> str:
    return f"nats://{user}:{password}@127.0.0.1:{server.port}"


class TestBroker:
    def test_an_account_without_jetstream(self, terminal: Terminal, tmp_path: Path):
        users = f"accounts {{ A {{ users: [{{ user: boss, password: {SECRET} }}] }} }}"
        with RealServer(tmp_path / "plain", extra_conf=users) as server:
            failed(terminal.run("run", "app", "--nats", url(server, "boss")), 3, "JetStream", "enable")

    def test_wrong_password(self, terminal: Terminal, guarded: RealServer):
        done = terminal.run("run", "app", "--nats", url(guarded, "boss", "wr0ng"))
        failed(done, 3, "Authorization Violation", "--password")
        assert "wr0ng" not in done.err

    def test_a_missing_right_names_the_subject(self, terminal: Terminal, guarded: RealServer):
        assert terminal.run("init", "app", "--nats", url(guarded, "boss")).code == 0
        viewer = {"NATS_URL": guarded.url, "NATS_USER": "viewer", "NATS_PASSWORD": SECRET}
        failed(terminal.run("trigger", "shop.mail", env=viewer), 3, "jetjobs.cli-failures.trigger.shop.mail.run.")
        failed(terminal.run("runs", "list", env=viewer), 3, "$JS.API.DIRECT.GET.KV_jetjobs_cli-failures_runs")
        failed(terminal.run("run", "app", env=viewer), 3, "may not publish")
        seen = terminal.run("doctor", env=viewer)
        assert "this user may not store triggers" in seen.out
        assert SECRET not in seen.out + seen.err

    def test_a_project_nobody_prepared(self, terminal: Terminal, nats_url: str):
        listed = terminal.run("runs", "list", "--project", "nobody", "--nats", nats_url)
        failed(listed, 3, "project 'nobody'", "nobody answers. No host has prepared this project", "jetjobs init")
        found = terminal.run("doctor", "--project", "nobody", "--nats", nats_url)
        assert found.code == 0
        assert "no host has prepared this project yet" in found.out

    def test_storage_full(self, terminal: Terminal, tmp_path: Path):
        with RealServer(tmp_path / "tiny", extra_conf=TINY) as server:
            env = {"NATS_URL": server.url, "NATS_USER": "boss", "NATS_PASSWORD": SECRET}
            assert terminal.run("init", "app", env=env).code == 0
            payload = '{"to": "' + "x" * 15_000 + '"}'
            results = [terminal.run("trigger", "shop.mail", "-", stdin=payload, env=env) for _ in range(6)]
            full = [done for done in results if done.code]
            assert full
            failed(full[-1], 3, "Free space or raise the limit")


class TestCommandLine:
    @pytest.mark.parametrize(
        "command, word",
        [
            (["trigger", "shop.mail", '{"a" 1}'], "column 6"),
            (["trigger", "shop.mail", '{"a": NaN}'], "NaN"),
            (["trigger", "shop.mail", "hello"], "quotes of its own"),
            (["trigger", "shop.mail", "--at", "2030-01-01T00:00"], "no zone"),
            (["trigger", "shop.mail", "--delay", "soon"], "is not a duration"),
            (["trigger", "mail"], "mail"),
            (["trigger", "shop.mail", "--wait", "{}"], "before --wait"),
            (["runs", "list", "--status", "broken"], "SUCCEEDED"),
            (["runs", "list", "--status", "queued"], "jetjobs runs show"),
            (["runs", "list", "--pasword", SECRET], "--pasword …"),
            (["runs", "list", "--limit", "0"], "limit must be 1 or more"),
            (["runs", "list", "--since", "yesterday"], "span such as 1h"),
            (["runs", "list", "--project", "No Such"], "can't name a project"),
            (["runs", "list", "--nats", "http://x"], "NATS URL"),
            (["runs", "list", "--nat", f"nats://me:{SECRET}@x"], "unrecognized"),
            (["runs", "list", "--user", "a", "--token", SECRET], "one way to log in"),
        ],
    )
    def test_is_refused(self, terminal: Terminal, nats_url: str, command: list[str], word: str):
        done = terminal.run(*command, env={} if "--nats" in command else {"NATS_URL": nats_url})
        failed(done, 2, word)

    def test_bytes_that_are_no_text(self, terminal: Terminal, nats_url: str):
        assert terminal.run("init", "app", "--nats", nats_url).code == 0
        for payload in ('"\udcff"', "-"):
            done = terminal.run("trigger", "shop.mail", payload, "--nats", nats_url, stdin="\udcff")
            failed(done, 2, "payload")

    def test_a_data_folder_that_is_a_file(self, terminal: Terminal):
        failed(terminal.run("dev", "app", "--data", "app.py/data"), 2, "app.py is a file")

    def test_no_project(self, terminal: Terminal):
        failed(terminal.run("runs", "list", env={"JETJOBS_PROJECT": ""}), 2, "--project", "JETJOBS_PROJECT")
