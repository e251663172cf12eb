"""The web examples under the servers they are run with, as their READMEs say: asked over HTTP, done by a host."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Terminal
from tests.support.servers import free_port
from tests.support.web import Answer, WebServer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform == "win32", reason="gunicorn forks, SIGTERM drains"),
]

EXAMPLES = Path(__file__).parents[2] / "examples"
TEXT = {"title": "a", "text": "one two three"}
COUNTED = {"words": 3, "letters": 11}


@pytest.fixture
def terminal(tmp_path: Path, nats_url: str, project: str) -> Terminal:
    """Runs commands in a folder of its own with the broker and the project in the environment."""
    (tmp_path / "app").mkdir()
    return Terminal(tmp_path / "app", nats=nats_url, project=project)


def example(terminal: Terminal, name: str) -> None:
    """A copy of an example as the terminal's folder: it writes files beside itself."""
    shutil.copytree(EXAMPLES / name, terminal.folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))


def serve(terminal: Terminal, *module: str, port: int) -> WebServer:
    return WebServer(module, port=port, folder=terminal.folder, env=terminal.env)


def gunicorn(terminal: Terminal, *options: str) -> WebServer:
    port = free_port()
    bind = f"127.0.0.1:{port}"
    command = ("gunicorn", "--workers=2", "--threads=2", f"--bind={bind}", "--log-level=warning", *options)
    return serve(terminal, *command, port=port)


def is_done(answer: Answer) -> bool:
    return answer[1].get("status") == "SUCCEEDED"


def run_id(answer: Answer) -> Any:
    status, said = answer
    assert status == 202
    return said["run"]


def hosts(terminal: Terminal) -> list[Any]:
    return json.loads(terminal.run("hosts", "list", "--json").out)["hosts"]


@pytest.mark.parametrize("options", [(), ("--preload",)], ids=["each imports", "imported before the fork"])
def test_flask(terminal: Terminal, options: tuple[str, ...]):
    example(terminal, "flask_app")
    with terminal.start("run", "words") as host, gunicorn(terminal, *options, "app:app") as web:
        host.wait_for("host_started")
        web.wait_until("/counts/nothing", 404)
        first = run_id(web.ask("/counts", TEXT))
        assert web.wait_for(f"/counts/{first}", is_done)[1]["result"] == COUNTED
        # Whichever of the two workers is asked.
        again = [web.ask("/counts", TEXT) for _ in range(8)]
        assert [said for _, said in again] == [{"run": first, "again": True}] * 8
        assert web.stop() == 0
    assert web.stderr == ""


def test_django(terminal: Terminal):
    example(terminal, "django_app")
    migrate = [sys.executable, "manage.py", "migrate", "--run-syncdb", "--verbosity=0"]
    subprocess.run(migrate, cwd=terminal.folder, env=terminal.env, check=True, timeout=60)
    with terminal.start("run", "host") as host, gunicorn(terminal, "shop.wsgi") as web:
        host.wait_for("host_started")
        web.wait_until("/orders/1/", 404)
        orders = [web.ask("/orders/", {"item": item}) for item in ("tea", "milk", "sugar", "cups")]
        assert all(run_id(order) for order in orders)
        for _, order in orders:
            assert web.wait_for(f"/orders/{order['order']}/", is_done)[1]["packed"] is True
        assert web.ask("/orders/", {"nothing": ""})[0] == 400
        assert web.stop() == 0
        host.signal(signal.SIGTERM)
        assert host.end() == 0
    assert "Traceback" not in host.said
    assert web.stderr == ""


def test_fastapi_with_a_host_inside(terminal: Terminal):
    example(terminal, "fastapi_app")
    port = free_port()
    command = ("uvicorn", "app:app", f"--port={port}", "--log-level=warning", "--no-access-log")
    with serve(terminal, *command, port=port) as web:
        web.wait_until("/ready", 200)
        assert web.ask("/live") == (200, {"live": True})
        first = run_id(web.ask("/counts", TEXT, as_json=True))
        assert web.wait_for(f"/counts/{first}", is_done)[1]["result"] == COUNTED
        for path in ("/counts", "/counts/from-a-thread"):
            assert web.ask(path, TEXT, as_json=True)[1] == {"run": first, "again": True}
        other = run_id(web.ask("/counts/from-a-thread", {"title": "b", "text": "four"}, as_json=True))
        assert web.wait_for(f"/counts/{other}", is_done)[1]["result"]["words"] == 1
        assert web.ask("/counts/nothing")[0] == 404
        assert len(hosts(terminal)) == 1
        assert web.stop() in {0, -15}  # uvicorn raises the signal again once it has shut down
    assert web.stderr == ""
    assert hosts(terminal) == []  # it said goodbye: the lifespan was left


def test_a_plain_asyncio_program(terminal: Terminal):
    example(terminal, "embedded")
    done = subprocess.run(
        [sys.executable, "-W", "default::ResourceWarning", "service.py"],
        cwd=terminal.folder,
        env=terminal.env | {"PYTHONUTF8": "1"},
        input="3\n4\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert [line for line in done.stdout.splitlines() if "squared" in line] == ["3 squared is 9", "4 squared is 16"]


def test_every_example_has_a_readme_that_the_tests_know():
    assert {each.name for each in EXAMPLES.iterdir() if each.is_dir()} == {
        "django_app",
        "embedded",
        "fastapi_app",
        "file_index",
        "flask_app",
        "other_service",
    }
    assert all((each / "README.md").is_file() for each in EXAMPLES.iterdir() if each.is_dir())
