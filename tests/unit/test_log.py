"""A log that fails costs its line, and never what was being done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

import jetjobs
from jetjobs._log import get_logger
from jetjobs.testing import make_context


def gone(*_: Any) -> Any:
    raise BrokenPipeError("its reader has gone")


@pytest.fixture
def broken() -> Any:
    before = structlog.get_config()
    structlog.configure(processors=[gone])
    yield
    structlog.configure(**before)


@pytest.mark.usefixtures("broken")
def test_nothing_comes_back_to_who_logs() -> None:
    log = get_logger("jetjobs.test")
    levels: list[Callable[..., None]] = [log.debug, log.info, log.warning, log.error, log.exception]
    for say in levels:
        say("said", field=1)


@pytest.mark.usefixtures("broken")
def test_a_handler_may_log_to_nobody() -> None:
    ctx = make_context()
    ctx.log("hello", n=1)
    assert [line.message for line in ctx.logs] == ["hello"]


def test_nobody_in_the_package_logs_past_it() -> None:
    own = {"_log.py", "context.py"}  # `ctx.logger` is the handler's
    source = Path(jetjobs.__file__).parent
    past = [
        path for path in source.rglob("*.py") if path.name not in own and "structlog.get_logger(" in path.read_text()
    ]
    assert past == []


def test_what_is_said_arrives() -> None:
    log = get_logger("jetjobs.test")
    with capture_logs() as said:
        log.debug("one", n=1)
        log.info("two")
        log.warning("three")
        log.error("four")
        try:
            int("five")
        except ValueError:
            log.exception("five")
    assert [(entry["event"], entry["log_level"]) for entry in said] == [
        ("one", "debug"),
        ("two", "info"),
        ("three", "warning"),
        ("four", "error"),
        ("five", "error"),
    ]
    assert said[0]["n"] == 1
    assert said[-1]["exc_info"] is True
