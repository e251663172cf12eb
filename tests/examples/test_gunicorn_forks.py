"""gunicorn forks a parent that has called already: its workers, those that replace them, and the parent all go on."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jetjobs import JobHost
from tests.support.commands import Terminal
from tests.support.processes import gone_within
from tests.support.servers import free_port
from tests.support.sync_shop import Shop
from tests.support.web import WebServer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="gunicorn forks, and the application looks into /proc"),
]

APPLICATION = Path(__file__).parents[1] / "support" / "programs" / "forking_app.py"
WORKERS = 2


@pytest.fixture
async def shop(nats_url: str, project: str) -> AsyncIterator[Shop]:
    hosted = Shop()
    async with JobHost([hosted.module], project=project, nats=nats_url):
        yield hosted


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(APPLICATION, tmp_path)
    return tmp_path


def gunicorn(folder: Path, nats_url: str, project: str) -> WebServer:
    port = free_port()
    # Its own log tells of the workers killed below; what is looked for is what others write.
    options = ("--preload", f"--workers={WORKERS}", "--threads=2", "--log-level=critical", f"--bind=127.0.0.1:{port}")
    command = ("gunicorn", *options, "--config=python:forking_app", "forking_app:app")
    return WebServer(command, port=port, folder=folder, env=Terminal(folder, nats=nats_url, project=project).env)


class Asked:
    """What the workers answered, whoever took the request."""

    def __init__(self, web: WebServer) -> None:
        self._web = web
        self._number = 0
        self.latest: dict[int, dict[str, Any]] = {}

    def once(self) -> None:
        self._number += 1
        status, said = self._web.ask(f"/{self._number}")
        assert (status, said["value"], said["first"]) == (200, self._number + 1, "SUCCEEDED"), self._web.stderr
        assert said["links"] == 1, "a connection of its own, and none of its parent's"
        self.latest[said["pid"]] = said

    def until(self, enough: Callable[[], bool], within: float = 30) -> None:
        deadline = time.monotonic() + within
        while not enough():
            assert time.monotonic() < deadline, self.latest
            self.once()


def ask_them(web: WebServer) -> None:
    asked = Asked(web)
    web.wait_until("/0", 200)
    asked.until(lambda: len(asked.latest) == WORKERS)
    assert web.pid not in asked.latest
    first = dict(asked.latest)
    for _ in range(60):
        asked.once()
    # A thread of gunicorn's may hold one more at the moment of looking; a leak would be dozens.
    assert all(asked.latest[pid]["descriptors"] <= first[pid]["descriptors"] + 4 for pid in first)
    killed = next(iter(first))
    os.kill(killed, signal.SIGKILL)
    assert gone_within(killed, 10)
    del asked.latest[killed]
    asked.until(lambda: len(asked.latest.keys() - first.keys()) == 1)
    web.signal(signal.SIGTTIN)  # one more, forked by a parent that has long had its connection
    asked.until(lambda: len(asked.latest.keys() - first.keys()) == 2)


async def test_workers_forked_from_a_parent_that_has_called(
    shop: Shop, folder: Path, nats_url: str, project: str
) -> None:
    with gunicorn(folder, nats_url, project) as web:
        await asyncio.to_thread(ask_them, web)
        assert await asyncio.to_thread(web.stop) == 0
    assert web.stderr == ""
    assert json.loads((folder / "master").read_text()) == 100_001
    numbers = [number for number in shop.done if number]
    assert sorted(numbers) == sorted(set(numbers)), "no request's run was started twice"
