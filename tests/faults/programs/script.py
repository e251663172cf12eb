"""A service in one file: its jobs are in `__main__`. With UNGUARDED it forgets what keeps a child from starting it."""

from __future__ import annotations

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

from jetjobs import JobContext, JobHost, Module

shop = Module("shop")


@shop.job(isolation="process", timeout="20s")
def hello(ctx: JobContext, name: str) -> str:
    return f"hello {name} from {os.getpid()}"


def double(number: int) -> int:
    return 2 * number


@shop.job(isolation="process", timeout="20s")
def spreads(ctx: JobContext, number: int) -> list[int]:
    """Its own pool has to find `double` in the same file."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(double, [number]))


def main() -> None:
    JobHost([shop], project=os.environ["PROJECT"], nats=os.environ["SERVER"]).run()


if __name__ == "__main__" or "UNGUARDED" in os.environ:
    main()
