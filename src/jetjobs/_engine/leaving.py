"""Ending a host's process although code in it swallows every order to stop, and not before.

`asyncio.run` waits without limit for tasks that swallow their cancellation, and for the threads of the loop's executor,
where `asyncio.to_thread` leaves what a timed-out handler was waiting for; the interpreter waits for those threads
once more. A host that was told to stop may do neither.

`sys.exit()` in a handler is a failed attempt. In a task or callback that a handler made, asyncio raises it through the
loop as well, which would end the program with every other run in it. A host's own loop goes on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jetjobs._log import get_logger

if TYPE_CHECKING:
    from collections.abc import Coroutine

log = get_logger("jetjobs.engine")

PATIENCE = 1.0
POLL = 0.02
_THREADS = "jetjobs executor"


def to_its_end(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, int]) -> int:
    """Run the loop until `work` has ended, whatever else on it raises SystemExit or KeyboardInterrupt.

    Both come from code here: SIGINT has a handler of the host's. Another signal's handler still ends the program.
    """
    task = loop.create_task(work)
    while True:
        try:
            return loop.run_until_complete(task)
        except (SystemExit, KeyboardInterrupt) as leaving:
            if task.done() or _of_a_signal(leaving):
                raise
            log.error("handler_left_the_loop", error=type(leaving).__name__, at=_last_line(leaving))  # noqa: TRY400


def _of_a_signal(leaving: BaseException) -> bool:
    handlers = [signal.getsignal(number) for number in signal.valid_signals()]
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    return any(frame.f_code in codes for frame, _ in traceback.walk_tb(leaving.__traceback__))


def _last_line(leaving: BaseException) -> str:
    place = traceback.extract_tb(leaving.__traceback__)[-1]
    return f"{place.filename}:{place.lineno} in {place.name}"


def take_over_executor() -> ThreadPoolExecutor:
    """Give the running loop an executor whose end can be waited for with a limit."""
    executor = ThreadPoolExecutor(thread_name_prefix=_THREADS)
    asyncio.get_running_loop().set_default_executor(executor)
    return executor


async def everything_ended(executor: ThreadPoolExecutor) -> bool:
    """Cancel the loop's other tasks, end the executor; False when some code of either still runs after a second."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks and (await asyncio.wait(tasks, timeout=PATIENCE))[1]:
        return False
    executor.shutdown(wait=False, cancel_futures=True)
    for _ in range(int(PATIENCE / POLL)):
        if not any(thread.name.startswith(_THREADS) for thread in threading.enumerate()):
            return True
        await asyncio.sleep(POLL)
    return False


def leave(code: int) -> None:
    """End the process now, with what was written so far on its way."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
