"""Jobs in processes of their own; a child imports this file again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import BaseModel, field_validator

from jetjobs import Backoff, Discard, JobContext, JobInterrupted, JobPolicy, Module, RetryAfter, Snooze, job

QUICK = Backoff("50ms", factor=1, jitter=0)


async def lifespan() -> AsyncGenerator[object]:
    """A state that only the host has."""
    yield object()


jobs = Module("apart", defaults=JobPolicy(isolation="process", timeout="60s", max_concurrency=4, backoff=QUICK))
stateful = Module("stateful", lifespan=lifespan, defaults=JobPolicy(isolation="process", timeout="60s"))


class Order(BaseModel):
    number: int
    note: str = "none"


class OnlyThere(BaseModel):
    """Fits in the process whose number it has; what validates it breaks everywhere else."""

    host: int

    @field_validator("host")
    @classmethod
    def _breaks_elsewhere(cls, host: int) -> int:
        if os.getpid() != host:
            raise ZeroDivisionError("no such file here")
        return host


@jobs.job(max_attempts=3)
def fits_there(ctx: JobContext, payload: OnlyThere) -> None: ...


@jobs.job
def pid(ctx: JobContext) -> int:
    return os.getpid()


@jobs.job
def talk(ctx: JobContext, order: Order) -> dict[str, object]:
    ctx.log("begun", number=order.number, odd=object)
    ctx.logger.warning("said", number=order.number)
    ctx.progress(3, 10, "going")
    ctx.checkpoint({"at": order.number})
    return {"number": order.number, "note": order.note, "run": ctx.run_id, "kind": ctx.trigger.kind}


@jobs.job
def echo(ctx: JobContext, data: bytes) -> bytes:
    return data


@jobs.job
def tells(ctx: JobContext, value: object) -> object:
    """Says a value in all the ways a context has, and returns it."""
    ctx.log("said", value=value)
    ctx.logger.info("said", value=value)
    ctx.log("caf\udce9", **{"caf\udce9": "caf\udce9"})
    ctx.logger.info("caf\udce9", name="caf\udce9", large=2**70)
    ctx.checkpoint(value)
    return value


@jobs.job(max_attempts=2)
def resumes(ctx: JobContext) -> object:
    if ctx.attempt == 1:
        ctx.checkpoint([1, 2])
        os._exit(3)
    return ctx.last_checkpoint


class Odd(Exception):
    pass


@jobs.job(max_attempts=3, retry_on=(ConnectionError, Odd), discard_on=(FileNotFoundError,))
def ends(ctx: JobContext, how: str) -> Any:  # noqa: C901 - a case for each end
    match how:
        case "skip":
            ctx.skip("nothing to do")
        case "discard":
            raise Discard("never")
        case "snooze" if ctx._record.snoozes == 0:
            raise Snooze("50ms")
        case "later" if ctx.attempt == 1:
            raise RetryAfter("50ms", "busy")
        case "odd" if ctx.attempt < 3:
            raise Odd("again")
        case "value":
            raise ValueError("not again")
        case "exit":
            sys.exit(3)
        case "unstorable":
            return object()
        case _:
            pass
    return f"attempt {ctx.attempt}"


def mark(path: str) -> None:
    Path(path).write_text(str(os.getpid()))


def counts(ctx: JobContext, started: str) -> int:
    """One endless call into C code."""
    ctx.log("counting")
    mark(started)
    return sum(range(10**12))


def ignores(ctx: JobContext, started: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    mark(started)
    while True:
        with suppress(JobInterrupted):
            time.sleep(60)


def starts_a_program(ctx: JobContext, started: str) -> None:
    """One that would outlive its handler by minutes."""
    with subprocess.Popen(["sleep", "300"]) as program:
        Path(f"{started}.program").write_text(str(program.pid))
        ignores(ctx, started)


def looks(ctx: JobContext, started: str) -> str:
    mark(started)
    while not ctx.cancelled:
        time.sleep(0.01)
    ctx.log("saw it", reason=ctx.cancel_reason)
    ctx.raise_if_cancelled()
    return "unreached"


for handler in (counts, ignores, starts_a_program, looks):
    jobs.expose_job(handler.__name__, handler)
    jobs.expose_job(f"{handler.__name__}_in_time", handler, timeout="400ms")


@jobs.job
def cleans(ctx: JobContext, started: str) -> None:
    try:
        mark(started)
        time.sleep(60)
    finally:
        Path(f"{started}.cleaned").touch()


@jobs.job(max_attempts=2)
def crashes(ctx: JobContext, number: int) -> str:
    if ctx.attempt == 1:
        ctx.log("about to crash")
        os.kill(os.getpid(), number)
    return "second"


@jobs.job
def forks(ctx: JobContext) -> int:
    """Its child comes back from the handler too, and must end no run."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return child


@jobs.job
def leaves_a_holder(ctx: JobContext) -> None:
    """A process that keeps every descriptor open outlives the crash."""
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


@jobs.job
def scribbles(ctx: JobContext) -> None:
    """Writes to descriptors that aren't its own, the link among them."""
    for each in range(3, 256):
        with suppress(OSError):
            os.write(each, b"\0\0\0\2\xc1\xc1")
    time.sleep(60)


@jobs.job
def descriptors(ctx: JobContext) -> list[str]:
    folder = Path("/proc/self/fd")
    found: list[str] = []
    for each in sorted(folder.iterdir()):
        with suppress(OSError):
            found.append(str(each.readlink()))
    return found


@stateful.job
def asks_state(ctx: JobContext) -> object:
    return ctx.state


class Classy(Module):
    name = "classy"

    @job(isolation="process", timeout="60s")
    def double(self, ctx: JobContext, number: int) -> int:  # noqa: ARG002
        return 2 * number


tasks = Module("tasks")


def plain(ctx: JobContext, number: int) -> int:
    return number + 1


tasks.expose_job("exposed", plain, isolation="process", timeout="60s")
