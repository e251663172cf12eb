"""Ending a host's process although code in it swallows every order to stop.

`asyncio.run` waits without limit for tasks that swallow their cancellation, and for the threads of the loop's executor,
where `asyncio.to_thread` leaves what a timed-out handler was waiting for; the interpreter waits for those threads
once more. A host that was told to stop may do neither.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

PATIENCE = 1.0
POLL = 0.02
_THREADS = "jetjobs executor"


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
