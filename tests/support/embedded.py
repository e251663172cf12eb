"""A module to embed, which tells whose it is and in which thread."""

from __future__ import annotations

import threading

from jetjobs import JobContext, Module


def counting(name: str) -> Module:
    """A module with a job that says whose it is."""
    module = Module(name)

    @module.job(timeout="20s", max_concurrency=4)
    async def say(_ctx: JobContext, n: int) -> str:
        return f"{name} {n}"

    @module.job(timeout="20s", max_concurrency=4)
    def say_plainly(_ctx: JobContext, n: int) -> str:
        return f"{name} {n} in {threading.current_thread().name}"

    return module
