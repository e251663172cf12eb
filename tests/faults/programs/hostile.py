"""Handlers that reach for their host: its tasks, its outputs, its exit, what it must write of them."""

from __future__ import annotations

import asyncio
import ctypes
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from notes import note, noted
from shared import QUICK

from jetjobs import JobContext, Module, RetryAfter, Snooze

module = Module("hostile")


class Mute:
    """Can be written down in no way."""

    def __repr__(self) -> str:
        raise RuntimeError("no text for you")

    __str__ = __repr__


# ------------------------------------------------------------- at the loop


async def _leave(how: str) -> None:
    if how == "exit":
        sys.exit(3)
    raise KeyboardInterrupt


@module.job(max_concurrency=8, timeout="20s")
async def leaves_in_a_task(ctx: JobContext, how: str) -> None:
    """What a task raises of these goes through the loop, and ends a program that lets it."""
    with noted(ctx):
        match how:
            case "group":
                async with asyncio.TaskGroup() as group:
                    group.create_task(_leave("exit"))
            case "interrupt":
                await asyncio.gather(_leave("interrupt"))
            case "callback":
                asyncio.get_running_loop().call_soon(sys.exit, 3)
                await asyncio.sleep(0.1)
            case _:
                await asyncio.gather(_leave("exit"))


@module.job(timeout="20s", max_attempts=3, backoff=QUICK)
async def cancels_everything(ctx: JobContext) -> None:
    with noted(ctx):
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(1)


@module.job(timeout="20s", max_attempts=3, backoff=QUICK)
async def stops_the_loop(ctx: JobContext) -> None:
    with noted(ctx):
        asyncio.get_running_loop().stop()
        await asyncio.sleep(1)


# ------------------------------------------------------ at what all of it shares


@module.job(timeout="20s")
def closes_outputs(ctx: JobContext, how: str) -> None:
    with noted(ctx):
        if how == "objects":
            sys.stdout.close()
            sys.stderr.close()
        elif how == "descriptors":
            os.close(1)
            os.close(2)
        elif how == "replaced":
            sys.stdout = sys.stderr = None


@module.job(timeout="20s")
def leaves_a_stubborn_thread(ctx: JobContext) -> None:
    """Not a daemon: a program waits for it at its end, for as long as it takes."""
    with noted(ctx):
        threading.Thread(target=time.sleep, args=(600,)).start()


@module.job(timeout="20s", max_concurrency=4)
def leaves_a_child(ctx: JobContext, how: str) -> int:
    """A process of the same open files, which goes on when the host is gone."""
    with noted(ctx):
        if how == "multiprocessing":
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,))
            child.start()
            note("child", child=child.pid)
            return child.pid or 0
        pid = os.fork()
        if pid == 0:
            time.sleep(60)
            os._exit(0)
        note("child", child=pid)
        return pid


@module.job(timeout="20s")
def maps_in_a_pool(ctx: JobContext, numbers: list[int]) -> list[int]:
    """As numeric libraries do; on Linux these pools fork."""
    with noted(ctx), multiprocessing.get_context("fork").Pool(3) as pool:
        return pool.map(abs, numbers)


@module.job(timeout="20s", isolation="process", max_concurrency=4)
def maps_in_a_pool_apart(ctx: JobContext, numbers: list[int]) -> list[int]:
    with noted(ctx), multiprocessing.get_context("fork").Pool(3) as pool:
        return pool.map(abs, numbers)


@module.job(timeout="20s")
def moves_away(ctx: JobContext, folder: str) -> None:
    with noted(ctx):
        os.chdir(folder)
        Path(folder).rmdir()
        os.environ.clear()


@module.job(timeout="60s", max_attempts=2, backoff=QUICK)
def holds_the_interpreter(ctx: JobContext, seconds: int) -> str:
    """One call into C code during which no other thread of the process moves, as a bad regular expression is."""
    with noted(ctx):
        if ctx.attempt == 1:
            ctypes.PyDLL(None).sleep(seconds)  # a PyDLL's functions are called with the interpreter held
    return f"attempt {ctx.attempt}"


@module.job(timeout="20s", max_concurrency=2)
def starves_threads(ctx: JobContext, seconds: float) -> None:
    """While it runs, the system has no memory for another thread."""
    with noted(ctx):
        before = threading.stack_size(1 << 46)
        time.sleep(seconds)
        threading.stack_size(before)


@module.job(timeout="30s")
async def takes_all_files(ctx: JobContext, seconds: float) -> None:
    """While it runs, the process can open neither file nor socket."""
    with noted(ctx):
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(300, before[1]), before[1]))
        taken: list[int] = []
        try:
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            await asyncio.sleep(seconds)
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# ------------------------------------------------------- at what is written of them


class Liar(dict[str, int]):
    def items(self) -> Any:
        raise RuntimeError("nothing to see")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("nothing to see")


class BadNotes(Exception):
    __notes__ = 5  # pyright: ignore[reportAssignmentType]


class Untrue(Exception):
    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("equal to nothing")

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def _in_circles() -> BaseException:
    one, two = ValueError("one"), ValueError("two")
    one.__cause__, two.__cause__ = two, one
    return one


ERRORS: dict[str, Callable[[], BaseException]] = {
    "nameless": lambda: type("", (Exception,), {})("said"),
    "long name": lambda: type("N" * 2_000_000, (Exception,), {})("said"),
    "lines in its name": lambda: type("Two\nLines", (Exception,), {})("said"),
    "notes that are none": lambda: BadNotes("said"),
    "untrue": lambda: Untrue("said"),
    "circle": _in_circles,
    "group of exits": lambda: BaseExceptionGroup("all", [SystemExit(1), KeyboardInterrupt(), asyncio.CancelledError()]),
    "mute argument": lambda: SystemExit(Mute()),
}


@module.job(max_concurrency=8, timeout="20s")
async def raises(ctx: JobContext, how: str) -> None:
    with noted(ctx):
        error = ERRORS[how]()
        raise error


@module.job(max_concurrency=8, timeout="20s")
def raises_in_thread(ctx: JobContext, how: str) -> None:
    with noted(ctx):
        error = ERRORS[how]()
        raise error


@module.job(max_concurrency=8, timeout="20s")
async def tells_badly(ctx: JobContext, how: str) -> Any:
    """What it tells goes into the heartbeat, which all runs of a host share."""
    with noted(ctx):
        match how:
            case "log":
                ctx.log("mute", what=Mute())
            case "message":
                ctx.log(Mute())  # pyright: ignore[reportArgumentType]
            case "progress":
                ctx.progress(float("nan"), Mute())  # pyright: ignore[reportArgumentType]
            case "checkpoint":
                ctx.checkpoint(threading.Lock())
            case "changed":
                told: dict[str, Any] = {}
                ctx.checkpoint(told)
                told["later"] = Mute()
            case _:
                return Liar(a=1)
        await asyncio.sleep(1.2)  # longer than a heartbeat
        return "told"


# ------------------------------------------------------------ at when it comes again


@module.job(max_concurrency=8, timeout="20s", max_attempts=2)
async def again(ctx: JobContext, how: str, /) -> str:
    delays: dict[str, Any] = {"negative": -5, "nan": float("nan"), "never": float("inf"), "words": "soon"}
    with noted(ctx):
        kind, _, delay = how.partition(" ")
        if kind == "snooze":
            raise Snooze(delays[delay])
        raise RetryAfter(delays[delay])


@module.job(max_concurrency=8, timeout="20s", expires_in={"manual": "4s"})
async def at_once_again(ctx: JobContext) -> None:
    with noted(ctx):
        raise Snooze(0)


@module.job(timeout="20s")
async def takes_the_signals(ctx: JobContext) -> None:
    """As a server does that is run inside a handler, and ends without putting them back."""
    with noted(ctx):
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
