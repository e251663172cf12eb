"""What jobs and callers wrote, on an operator's terminal: B119's other half. It is shown, and orders it nothing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.support.commands import Terminal, command

# Sets the title, clears the screen, recolours; begins a line of its own; by 8-bit controls, too; turns letters round.
EVIL = "\x1b]0;pwned\x07\x1b[2J\x1b[31mred\r\nFAKE 12:00:00 [info] all is well\x9b31m\u202eevil\u2028x"
APP = f"""
from jetjobs import JobContext, Module

EVIL = {EVIL!r}
shop = Module("shop")


@shop.job(timeout="20s")
async def talk(ctx: JobContext, payload: object = None) -> str:
    ctx.log(EVIL, field=EVIL, short="\\x1b[1mbold")
    ctx.progress(1, 2, EVIL)
    return EVIL


@shop.job(timeout="20s")
async def boom(ctx: JobContext, payload: object = None) -> None:
    raise ValueError(EVIL)


@shop.job(timeout="20s")
async def skips(ctx: JobContext) -> None:
    ctx.skip(EVIL)
"""


@pytest.fixture
def terminal(tmp_path: Path, nats_url: str, project: str) -> Terminal:
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    return Terminal(tmp_path, nats=nats_url, project=project)


def harmless(said: bytes) -> str:
    """What was said, which holds no control character and nothing turned round."""
    text = said.decode()
    assert not [c for c in text if c in "\x1b\x07\r\x9b\u202e\u2028" or (c != "\n" and ord(c) < 32)], repr(text)
    return text


def ask(terminal: Terminal, *args: str) -> str:
    """Both streams of a command."""
    done = subprocess.run(command(args), cwd=terminal.folder, env=terminal.env, capture_output=True, check=False)
    return harmless(done.stdout + done.stderr)


def test_b119_text_of_strangers_orders_a_terminal_nothing(terminal: Terminal):
    log = terminal.folder / "log"
    with log.open("wb") as out:
        host = subprocess.Popen(command(["run", "app"]), cwd=terminal.folder, env=terminal.env, stdout=out, stderr=out)
    try:
        payload = json.dumps({EVIL: EVIL})
        assert "SUCCEEDED" in ask(terminal, "trigger", "shop.talk", payload, "--wait", "--key", EVIL, "--allow-unknown")
        assert "FAILED" in ask(terminal, "trigger", "shop.boom", payload, "--wait", "--key", EVIL)
        assert "SKIPPED" in ask(terminal, "trigger", "shop.skips", "--wait")
        ids = [run["run_id"] for run in json.loads(ask(terminal, "runs", "list", "--json"))["runs"]]
        told = "".join(ask(terminal, "runs", "show", run_id) for run_id in ids)
        assert "ValueError: \\x1b]0;pwned" in told
        ask(terminal, "runs", "list", "--include-skipped")
        assert "\\x1b" in ask(terminal, "jobs", "pause", "shop.talk", "--actor", EVIL)
    finally:
        host.terminate()
        host.wait(20)
    said = harmless(log.read_bytes())
    assert "\\x1b]0;pwned" in said
    assert "\nFAKE" not in said  # a log's line is the host's own
    assert "ValueError: " in said


@pytest.mark.parametrize(
    "args", [("trigger", f"shop.{EVIL}"), ("runs", "list", f"--{EVIL}"), ("runs", "show", EVIL), ("run", EVIL)]
)
def test_b119_nor_does_what_was_typed(terminal: Terminal, args: tuple[str, ...]):
    assert "error: " in ask(terminal, *args)
