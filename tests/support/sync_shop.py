"""A shop whose jobs are triggered by code that blocks."""

from __future__ import annotations

import asyncio
import threading

from jetjobs import JobContext, Module


class Shop:
    """A module whose handlers say what they did."""

    def __init__(self) -> None:
        self.module = module = Module("shop")
        self.done: list[int] = []
        self.release = threading.Event()

        @module.job(max_concurrency=16, timeout="30s")
        async def add(_ctx: JobContext, n: int) -> int:
            self.done.append(n)
            return n + 1

        @module.job(timeout="30s")
        async def boom(_ctx: JobContext) -> None:
            raise ValueError("no way")

        @module.job(max_concurrency=4, timeout="30s")
        async def hold(ctx: JobContext) -> None:
            await asyncio.sleep(30)
            ctx.log("nobody stopped it")

        @module.job(timeout="30s")
        def through(_ctx: JobContext, n: int) -> int:
            return add.trigger_blocking(n).result(timeout=45)

        @module.job(timeout="1s")
        def endless(_ctx: JobContext) -> None:
            hold.trigger_blocking().wait()

        self.add, self.hold, self.through = add, hold, through
