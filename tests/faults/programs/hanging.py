"""A module whose lifespan hangs where the environment says."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from notes import note, noted

from jetjobs import JobContext, Module


@asynccontextmanager
async def lifespan() -> AsyncGenerator[None]:
    for phase in ("entering", "leaving"):
        note(phase)
        if os.environ["HANGS"] == phase:
            await asyncio.sleep(600)
        if phase == "entering":
            yield


module = Module("hanging", lifespan=lifespan)


@module.job(timeout="20s")
async def nothing(ctx: JobContext) -> None:
    with noted(ctx):
        pass
