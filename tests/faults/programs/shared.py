"""The module that the jobs of `policies` and `misbehaving` belong to."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from notes import note

from jetjobs import Backoff, Module

QUICK = Backoff("100ms", factor=1, jitter=0)


@asynccontextmanager
async def lifespan() -> AsyncGenerator[dict[str, str]]:
    note("lifespan opens")
    yield {"token": "of the lifespan"}
    note("lifespan closes")


module = Module("basic", lifespan=lifespan)
