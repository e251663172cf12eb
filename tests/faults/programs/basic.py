"""Jobs of every policy and outcome, and those that misbehave."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

from notes import note, noted

from jetjobs import Backoff, Discard, JobContext, Module, RetryAfter, Snooze

QUICK = Backoff("100ms", factor=1, jitter=0)


@asynccontextmanager
async def lifespan() -> AsyncIterator[dict[str, str]]:
    note("lifespan opens")
    yield {"token": "of the lifespan"}
    note("lifespan closes")


module = Module("basic", lifespan=lifespan)


@module.job(max_concurrency=8)
async def ping(ctx: JobContext) -> str:
    with noted(ctx):
        return ctx.state["token"]


# ---------------------------------------------------------------- lengths


@module.job(max_concurrency=8)
async def hold(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "held"


@module.job(max_concurrency=8, max_attempts=3, backoff=QUICK)
async def hold3(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return f"attempt {ctx.attempt}"


@module.job(max_concurrency=8, max_attempts=3, backoff=QUICK)
def spin3(ctx: JobContext, seconds: float) -> str:
    """A plain function that can be interrupted at once."""
    with noted(ctx):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.01)
    return f"attempt {ctx.attempt}"


@module.job(max_concurrency=4)
async def four(ctx: JobContext, seconds: float) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@module.job(max_concurrency=1, max_attempts=3)
async def one_at_a_time(ctx: JobContext, how: str) -> str:
    with noted(ctx):
        if how == "retry in a minute":
            raise RetryAfter("60s", "not yet")
        return how


@module.job(max_concurrency=1)
async def gate(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "passed"


@module.job(max_concurrency=2)
def block_thread(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        time.sleep(seconds)
    return "slept"


@module.job(max_concurrency=4, max_attempts=3, backoff=QUICK)
async def block_loop(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        time.sleep(seconds)  # noqa: ASYNC251 - what many do
    return "blocked"


# --------------------------------------------------------------- outcomes


@module.job
async def echo(ctx: JobContext, value: Any = None) -> Any:
    with noted(ctx):
        return value


@module.job(max_attempts=3, backoff=QUICK)
async def fails_until(ctx: JobContext, attempt: int) -> str:
    with noted(ctx, checkpoint=ctx.last_checkpoint):
        if ctx.attempt < attempt:
            raise ValueError(f"attempt {ctx.attempt} fails")
        return f"attempt {ctx.attempt}"


@module.job(timeout="500ms")
async def times_out(ctx: JobContext) -> None:
    with noted(ctx):
        await asyncio.sleep(30)


@module.job(timeout="500ms")
def thread_times_out(ctx: JobContext) -> None:
    with noted(ctx):
        while True:
            time.sleep(0.01)


@module.job(timeout="300ms")
def returns_late(ctx: JobContext) -> str:
    with noted(ctx):
        while not ctx.cancelled:
            time.sleep(0.01)
        return "late but here"


@module.job(timeout="300ms", max_attempts=2, backoff=QUICK)
async def times_out_once(ctx: JobContext) -> str:
    with noted(ctx):
        if ctx.attempt == 1:
            await asyncio.sleep(30)
        return "second"


@module.job
async def skips(ctx: JobContext) -> None:
    with noted(ctx):
        ctx.skip("nothing to do")


@module.job(max_attempts=3)
async def discards(ctx: JobContext) -> None:
    with noted(ctx):
        raise Discard("never")


@module.job(max_attempts=2)
async def retries_after(ctx: JobContext) -> str:
    with noted(ctx):
        if ctx.attempt == 1:
            raise RetryAfter("1s", "in a second")
        return "now"


@module.job
async def snoozes(ctx: JobContext, times: int) -> str:
    with noted(ctx, checkpoint=ctx.last_checkpoint):
        done = ctx.last_checkpoint or 0
        if done < times:
            ctx.checkpoint(done + 1)
            raise Snooze("200ms")
        return f"attempt {ctx.attempt}"


@module.job(max_attempts=3, backoff=QUICK, retry_on=(OSError,), discard_on=(FileNotFoundError,))
async def chooses(ctx: JobContext, error: str) -> None:
    with noted(ctx):
        raise {"OSError": OSError, "FileNotFoundError": FileNotFoundError, "ValueError": ValueError}[error](error)


@module.job(max_attempts=9, backoff=Backoff("400ms", factor=1, jitter=0))
async def fails(ctx: JobContext) -> None:
    with noted(ctx):
        raise ValueError(f"attempt {ctx.attempt} fails")


@module.job(max_attempts=2, backoff=QUICK)
async def tells(ctx: JobContext) -> None:
    with noted(ctx, checkpoint=ctx.last_checkpoint):
        ctx.log("hello", attempt=ctx.attempt)
        ctx.progress(3, 4, "most of it")
        ctx.checkpoint({"page": 7})
        if ctx.attempt == 1:
            await asyncio.sleep(1.2)  # longer than a heartbeat
            note("told", run=ctx.run_id)
            raise ValueError("again")


# ---------------------------------------------------------------- shutdown


@module.job(max_attempts=2, max_concurrency=4)
async def hold_twice(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return f"attempt {ctx.attempt}"


@module.job(max_attempts=3, on_shutdown="fail")
async def fails_at_shutdown(ctx: JobContext, seconds: float) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@module.job(drain="10s")
async def patient(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return "done"


@module.job(max_concurrency=1)
async def slow_and_queued(ctx: JobContext, seconds: float) -> str:
    with noted(ctx):
        await asyncio.sleep(seconds)
    return str(os.getpid())


# ------------------------------------------------------------ misbehaviour


@module.job(timeout="500ms")
async def swallows(ctx: JobContext) -> None:
    with noted(ctx):
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                note("swallowed", run=ctx.run_id)


@module.job(timeout="500ms", max_concurrency=60)
def never_ends(ctx: JobContext) -> None:
    with noted(ctx):
        time.sleep(600)


@module.job(max_attempts=3)
async def kills_its_host(ctx: JobContext) -> None:
    with noted(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


def _exit(how: str) -> None:
    match how:
        case "SystemExit 3":
            sys.exit(3)
        case "SystemExit text":
            sys.exit("msg")
        case "KeyboardInterrupt":
            raise KeyboardInterrupt
        case "GeneratorExit":
            raise GeneratorExit
        case "StopIteration":
            raise StopIteration
        case "CancelledError":
            raise asyncio.CancelledError
        case _:
            exit()  # noqa: PLR1722 - that is the case


@module.job(max_concurrency=8)
async def exits(ctx: JobContext, how: str) -> None:
    with noted(ctx):
        _exit(how)


@module.job(max_concurrency=8)
def exits_in_thread(ctx: JobContext, how: str) -> None:
    with noted(ctx):
        _exit(how)


class TwoArguments(Exception):
    def __init__(self, one: str, two: object) -> None:
        super().__init__(one, two)


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")

    __repr__ = __str__


class WrongText(Exception):
    def __str__(self) -> str:
        return 7  # type: ignore[return-value]


class DeepRepr:
    def __repr__(self) -> str:
        return repr([self])


def _hostile(how: str) -> None:
    match how:
        case "two arguments":
            raise TwoArguments("one", threading.Lock())
        case "no text":
            raise NoText
        case "wrong text":
            raise WrongText
        case "huge":
            raise ValueError("x" * 3_000_000)
        case "notes":
            error = ValueError("noted")
            error.add_note("n" * 2_000_000)
            raise error
        case "deep":
            repr(DeepRepr())
        case "surrogate":
            raise ValueError("\ud800 half a character")
        case "group":
            raise ExceptionGroup("many", [ValueError("y" * 10_000) for _ in range(500)])
        case _:
            before: BaseException | None = None
            for number in range(3000):
                try:
                    raise ValueError(f"cause {number}") from before
                except ValueError as error:
                    before = error
            raise ValueError("the last of a long chain") from before


@module.job(max_concurrency=8)
async def hostile(ctx: JobContext, how: str) -> None:
    with noted(ctx):
        _hostile(how)


@module.job(max_concurrency=8)
def hostile_in_thread(ctx: JobContext, how: str) -> None:
    with noted(ctx):
        _hostile(how)


def _fork(ctx: JobContext, how: str) -> int:
    pid = os.fork()
    if pid == 0:
        note("child", run=ctx.run_id)
        if how == "child raises":
            raise ValueError("in the child")
        if how == "child exits":
            os._exit(0)
        return 0
    return pid


@module.job
async def forks(ctx: JobContext, how: str) -> str:
    with noted(ctx):
        pid = _fork(ctx, how)
        if pid:
            await asyncio.to_thread(os.waitpid, pid, 0)
        else:
            await asyncio.sleep(0)
    return "parent"


@module.job
def forks_in_thread(ctx: JobContext, how: str) -> str:
    with noted(ctx):
        pid = _fork(ctx, how)
        if pid:
            os.waitpid(pid, 0)
    return "parent"


async def _coroutine() -> None:
    pass


def _odd(how: str) -> Any:
    match how:
        case "object":
            return object()
        case "file":
            return open(os.devnull)  # noqa: PTH123, SIM115
        case "generator":
            return (n for n in range(3))
        case "lock":
            return threading.Lock()
        case "coroutine":
            return _coroutine()
        case "nested":
            return {"a": [1, {"b": object()}]}
        case _:
            loop: list[Any] = []
            loop.append(loop)
            return loop


@module.job(max_concurrency=8, max_attempts=3)
async def returns_odd(ctx: JobContext, how: str) -> Any:
    with noted(ctx):
        if how == "task":
            return asyncio.get_running_loop().create_task(_coroutine())
        return _odd(how)


@module.job(max_concurrency=8, max_attempts=3)
def returns_odd_from_thread(ctx: JobContext, how: str) -> Any:
    with noted(ctx):
        return _odd(how)


@module.job
async def talks(ctx: JobContext, lines: int) -> str:
    with noted(ctx):
        for number in range(lines):
            ctx.log("x" * 9_000, number=number, more="y" * 5_000)
    return "z" * 1_000_000


BOUND: ContextVar[str] = ContextVar("BOUND", default="nothing")


@module.job
def binds(ctx: JobContext, value: str) -> str:
    with noted(ctx):
        before = BOUND.get()
        BOUND.set(value)
        return before


@module.job(max_concurrency=6, max_attempts=50, backoff=QUICK)
async def survives(ctx: JobContext, seconds: float) -> None:
    with noted(ctx):
        await asyncio.sleep(seconds)


@module.job(timeout="500ms")
async def leaves_a_thread(ctx: JobContext) -> None:
    """What it waits for goes on in the loop's executor, whatever becomes of the handler."""
    with noted(ctx):
        await asyncio.to_thread(time.sleep, 60)


KEPT: set[asyncio.Task[None]] = set()


@module.job
async def leaves_a_task(ctx: JobContext) -> None:
    async def stay() -> None:
        while True:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                note("swallowed", run=ctx.run_id)

    with noted(ctx):
        KEPT.add(asyncio.get_running_loop().create_task(stay()))
