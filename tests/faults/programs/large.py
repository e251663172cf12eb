"""A job whose payload and result are too large to travel in a message or a record."""

from __future__ import annotations

import asyncio
import hashlib

from notes import noted

from jetjobs import JobContext, Module

module = Module("large")


@module.job(max_attempts=3, max_concurrency=4, timeout="60s")
async def double(ctx: JobContext, payload: bytes) -> bytes:
    with noted(ctx, digest=hashlib.sha256(payload).hexdigest(), size=len(payload)):
        if ctx.attempt == 1:
            await asyncio.sleep(600)
    return payload * 2
