"""What a failed attempt says, of any length: kept short with a mark, told at once, and readable by everybody."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from jetjobs import Discard, JobContext, Module, RunStatus
from jetjobs._core.codec import to_jsonable
from jetjobs.errors import RunFailed
from tests.support.commands import Terminal
from tests.support.field import Field

pytestmark = pytest.mark.integration

# As the page about writing jobs has it.
MESSAGE, TRACEBACK, REASON = 8 * 1024, 32 * 1024, 1024


def _recursion() -> None:
    def deeper(n: int) -> int:
        return deeper(n + 1) + 1

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        deeper(0)
    finally:
        sys.setrecursionlimit(limit)


def _many_frames() -> NoReturn:
    raise RecursionError("\n".join(f'  File "deep.py", line {n}, in deeper' for n in range(100_000)))


def _notes() -> NoReturn:
    error = ValueError("noted")
    for _ in range(20):
        error.add_note("n" * 100_000)
    raise error


def _group() -> NoReturn:
    raise ExceptionGroup("many", [ValueError("v" * 100) for _ in range(10_000)])


def _chain() -> NoReturn:
    error: Exception | None = None
    for n in range(3000):
        cause, error = error, ValueError(f"link {n} " + "y" * 1000)
        error.__cause__ = cause
    assert error is not None
    raise error


def _long_name() -> NoReturn:
    raise type("E" * 1_000_000, (Exception,), {})("long name")


def _says(kind: Callable[[Any], BaseException], text: Any) -> Callable[[], NoReturn]:
    def say() -> NoReturn:
        raise kind(text)

    return say


RAISES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "huge": (_says(ValueError, "x" * 3_000_000), "ValueError", "cut, 3000000 characters"),
    "huge-in-other-letters": (_says(ValueError, "ü" * 3_000_000), "ValueError", "cut, 3000000 characters"),
    "recursion": (_recursion, "RecursionError", "recursion"),
    "many-frames": (_many_frames, "RecursionError", "cut, "),
    "notes": (_notes, "ValueError", "noted"),
    "group": (_group, "ExceptionGroup", "many (10000 sub-exceptions)"),
    "chain": (_chain, "ValueError", "link 2999"),
    "long-name": (_long_name, "EEEEE", "long name"),
    "discard": (_says(Discard, "d" * 3_000_000), "Discard", "cut, 3000000 characters"),
    "half-characters": (_says(ValueError, "\ud800" * 100_000), "ValueError", "cut, 100000 characters"),
    "bytes": (_says(ValueError, b"\xff" * 1_000_000), "ValueError", "cut, "),
    "control-characters": (_says(ValueError, "\x1b[2J\x00\r\n"), "ValueError", "\x1b[2J"),
}


def failing(raised: str) -> Module:
    module = Module("errors")

    @module.job(timeout="30s")
    async def fails(ctx: JobContext, how: str) -> None:
        RAISES[how][0]()

    @module.job(timeout="30s")
    def fails_in_thread(ctx: JobContext, how: str) -> None:
        RAISES[how][0]()

    @module.job(timeout="30s")
    async def skips(ctx: JobContext) -> None:
        ctx.progress(1, message="p" * 3_000_000)
        ctx.skip("s" * 3_000_000)

    @module.job(timeout="30s")
    async def gives_nan(ctx: JobContext) -> Any:
        return {"x": float("nan"), "y": float("inf")}

    return module


@pytest.mark.parametrize("job", ["fails", "fails_in_thread"])
async def test_b40_errors_of_any_size(field: Field, job: str):
    """FAILED within five seconds, the class told, each text at its documented size at most."""
    # Twenty thousand frames set off garbage collections, which in a full test process may take longer than a short
    # ack wait: a host that stands still is another test's matter.
    await field.host(failing(job), settings={"ack_wait": 30.0, "lost_after": 60.0}.items())
    for how, (_, kind, says) in RAISES.items():
        run = await field.client.get_job("errors", job).trigger(how)
        record = await run.wait(timeout=45)
        assert (how, record.status, record.attempt) == (how, RunStatus.FAILED, 1)
        assert record.error is not None
        assert record.error.type.startswith(kind), how
        assert says in record.error.message, how
        assert len(record.error.type) <= 200
        assert len(record.error.message.encode()) <= MESSAGE, how
        assert len(record.error.traceback.encode()) <= TRACEBACK, how
        json.dumps(to_jsonable(record.error.message), allow_nan=False).encode()
        with pytest.raises(RunFailed):
            await run.result(timeout=45)
    assert max((await field.record_sizes()).values()) < 64 * 1024
    await field.retired(f"errors.{job}")


async def test_b40_a_reason_of_megabytes(field: Field):
    await field.host(failing("skips"))
    record = await (await field.client.get_job("errors.skips").trigger()).wait(timeout=45)
    assert record.status is RunStatus.SKIPPED
    assert record.skip_reason is not None
    assert len(record.skip_reason) <= REASON
    assert "cut, 3000000 characters" in record.skip_reason
    assert record.progress is not None
    assert record.progress.message == "p" * 2047 + "…"


async def test_b44_not_a_number_reaches_no_reader(field: Field, tmp_path: Path):
    """Refused when it is encoded; what the command line prints is strict JSON, also of the others."""
    await field.host(failing("gives_nan"))
    run = await field.client.get_job("errors.gives_nan").trigger()
    with pytest.raises(RunFailed, match=r"result not serialisable.*result\[\"x\"\]"):
        await run.result(timeout=45)
    for how in ("control-characters", "half-characters", "huge"):
        await (await field.client.get_job("errors.fails").trigger(how)).wait(45)
    terminal = Terminal(tmp_path, nats=field.url, project=field.project)
    shown = await asyncio.to_thread(terminal.run, "runs", "show", run.run_id, "--json")
    assert (shown.code, strict(shown.out)["status"]) == (0, "FAILED")
    listed = await asyncio.to_thread(terminal.run, "runs", "list", "--json")
    assert listed.code == 0
    assert len(strict(listed.out)["runs"]) == 4
    plain = await asyncio.to_thread(terminal.run, "runs", "list")
    assert plain.code == 0
    assert "\x1b[2J" not in plain.out


def strict(text: str) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise AssertionError(constant)

    return json.loads(text, parse_constant=refuse)
