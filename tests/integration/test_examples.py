"""The examples, as their READMEs say to run them."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import nats
import pytest

from jetjobs import JobClient
from tests.support.commands import Terminal
from tests.support.waiting import eventually

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder with three text files, a binary one and a hidden one."""
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("one two\nthree\n")
    (folder / "b.py").write_text("x = 1\n")
    (folder / "c.py").write_text("x = 1\n")
    (folder / "d.bin").write_bytes(b"\0\1\2")
    (folder / ".hidden").write_text("no\n")
    return folder


def test_the_demo_indexes_only_what_changed_the_second_time(tmp_path: Path, texts: Path):
    terminal = Terminal(tmp_path)
    first = terminal.run("demo", str(texts))
    assert first.code == 0, first.err
    assert "3 files: 3 indexed now, 0 known from before" in first.out
    assert "files.index_file" in first.out
    assert "1 copies of others" in first.out
    (texts / "b.py").write_text("x = 1\ny = 2\n")
    (texts / "new.md").write_text("# new\n")
    second = terminal.run("demo", str(texts))
    assert "4 files: 2 indexed now, 2 known from before" in second.out
    assert "0 copies of others" in second.out
    assert "Traceback" not in first.err + second.err


def test_the_demo_on_this_checkout(tmp_path: Path):
    done = Terminal(tmp_path).run("demo")
    assert done.code == 0, done.err
    assert done.took < 40
    assert "RUN" in done.out
    assert ".py" in done.out
    assert "known from before" in done.out


def test_the_demo_ignores_a_broker_of_the_shell(tmp_path: Path, texts: Path):
    terminal = Terminal(tmp_path, nats="nats://127.0.0.1:1", project="other")
    assert terminal.run("demo", str(texts), env={"NATS_USER": "nobody"}).code == 0


def test_another_service_orders_an_index_by_names(tmp_path: Path, texts: Path, nats_url: str, project: str):
    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    here = {**terminal.env, "PYTHONPATH": terminal.env.get("PYTHONPATH", "")}
    terminal.env["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES / "file_index"), here["PYTHONPATH"]])
    with terminal.start("run", "file_index") as host:
        host.wait_for("host_started")
        order = subprocess.run(
            [sys.executable, str(EXAMPLES / "other_service" / "order.py"), str(texts)],
            cwd=tmp_path,
            env=here,  # without the module's folder
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert order.returncode == 0, order.stderr
    assert order.stderr.startswith("ordered as run ")
    assert "total" in order.stdout
    assert (tmp_path / ".jetjobs" / "index.json").exists()


async def test_an_event_indexes_one_file_and_a_filtered_one_nothing(
    tmp_path: Path, texts: Path, nats_url: str, project: str
):
    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    terminal.env["PYTHONPATH"] = os.pathsep.join([str(EXAMPLES / "file_index"), terminal.env.get("PYTHONPATH", "")])
    with await asyncio.to_thread(terminal.start, "run", "file_index") as host:
        await asyncio.to_thread(host.wait_for, "host_started")
        publisher = await nats.connect(nats_url)
        for name, size in (("huge.bin", 10**9), ("a.txt", 14)):
            await publisher.publish("files.urgent", json.dumps({"path": str(texts / name), "size": size}).encode())
        await publisher.close()
        async with JobClient(nats_url, project=project) as client:
            found = await eventually(lambda: client.runs.list(module="files", job="urgent"), what="a run")
            run = await client.run("files", "urgent", found[0].run_id).wait(45)
            assert len(found) == 1
    assert run.ok
    assert run.result["lines"] == 2
    assert run.trigger.event_subject == "files.urgent"
