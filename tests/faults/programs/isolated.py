"""Jobs whose children must never outlive their host."""

from __future__ import annotations

import signal
import time

from notes import note, noted

from jetjobs import Backoff, JobContext, JobPolicy, Module

module = Module(
    "isolated",
    defaults=JobPolicy(isolation="process", max_attempts=3, max_concurrency=4, backoff=Backoff("100ms", jitter=0)),
)


@module.job
def counts(ctx: JobContext, most: int) -> int:
    """One long call into C code, during which no thread of the process gets a turn."""
    with noted(ctx):
        return sum(range(most))


@module.job
def sleeps(ctx: JobContext, seconds: float) -> str:
    """Deaf to every polite signal."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with noted(ctx):
        time.sleep(seconds)
    return "slept"


@module.job
def hello(ctx: JobContext) -> str:
    note("hello")
    return "hello"
