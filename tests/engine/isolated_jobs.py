"""Jobs for child processes, which import this file."""

from __future__ import annotations

import os
import time
from typing import Any

from jetjobs import JobContext, Module

isolated = Module("isolated")


@isolated.job(isolation="process", timeout="20s")
def where(ctx: JobContext[Any], number: int) -> list[int]:
    ctx.log("in a child")
    return [os.getpid(), number]


@isolated.job(isolation="process", timeout="300ms")
def stuck(ctx: JobContext[Any]) -> None:
    time.sleep(60)
