"""Jobs that exit, fork, lie, shout and leave things behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, cast

from notes import note, noted
from shared import QUICK, module

from jetjobs import JobContext


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


@module.job(max_attempts=3, backoff=QUICK)
async def out_of_memory(ctx: JobContext) -> int:
    with noted(ctx):
        return len(bytearray(1 << 62))


@module.job(max_attempts=3, backoff=QUICK)
def out_of_memory_in_thread(ctx: JobContext) -> int:
    with noted(ctx):
        return len(bytearray(1 << 62))


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
        return cast("str", 7)


class NoRepr(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr for you")


class DeepRepr:
    def __repr__(self) -> str:
        return repr([self])


def _noted_error() -> BaseException:
    error = ValueError("noted")
    error.add_note("n" * 2_000_000)
    return error


def _deep_error() -> BaseException:
    try:
        repr(DeepRepr())
    except RecursionError as error:
        return error
    raise AssertionError


def _long_chain() -> BaseException:
    before = ValueError("the first")
    for number in range(3000):
        error = ValueError(f"cause {number}")
        error.__cause__ = before
        before = error
    return before


HOSTILE: dict[str, Callable[[], BaseException]] = {
    "two arguments": lambda: TwoArguments("one", threading.Lock()),
    "no text": NoText,
    "wrong text": WrongText,
    "no repr": lambda: NoRepr("says this"),
    "arguments without repr": lambda: ValueError(NoRepr(), 1),
    "huge": lambda: ValueError("x" * 3_000_000),
    "notes": _noted_error,
    "deep": _deep_error,
    "surrogate": lambda: ValueError("\ud800 half a character"),
    "group": lambda: ExceptionGroup("many", [ValueError("y" * 10_000) for _ in range(500)]),
    "chain": _long_chain,
}


def _hostile(how: str) -> None:
    error = HOSTILE[how]()
    raise error


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


def _circle() -> list[Any]:
    circle: list[Any] = []
    circle.append(circle)
    return circle


ODD: dict[str, Callable[[], Any]] = {
    "object": object,
    "file": lambda: open(os.devnull),  # noqa: PTH123, SIM115
    "generator": lambda: (n for n in range(3)),
    "lock": threading.Lock,
    "coroutine": _coroutine,
    "nested": lambda: {"a": [1, {"b": object()}]},
    "circle": _circle,
}


@module.job(max_concurrency=8, max_attempts=3)
async def returns_odd(ctx: JobContext, how: str) -> Any:
    with noted(ctx):
        if how == "task":
            return asyncio.get_running_loop().create_task(_coroutine())
        return ODD[how]()


@module.job(max_concurrency=8, max_attempts=3)
def returns_odd_from_thread(ctx: JobContext, how: str) -> Any:
    with noted(ctx):
        return ODD[how]()


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
