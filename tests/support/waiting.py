"""Waiting for what has no event: files of other processes, the state of a server or a client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

PATIENCE = 45.0  # for what must happen: a busy machine takes its time, a hang takes for ever


async def eventually(condition: Callable[[], Any], within: float = PATIENCE, what: str = "it") -> Any:
    """The first true value of a condition, plain or a coroutine function."""
    until = time.monotonic() + within
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        if time.monotonic() > until:
            pytest.fail(f"{what} did not happen within {within} s")
        await asyncio.sleep(0.01)
