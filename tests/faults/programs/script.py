"""A service in one file: its jobs are in `__main__`. With UNGUARDED it forgets what keeps a child from starting it."""

from __future__ import annotations

import os

from jetjobs import JobContext, JobHost, Module

shop = Module("shop")


@shop.job(isolation="process", timeout="20s")
def hello(ctx: JobContext, name: str) -> str:
    return f"hello {name} from {os.getpid()}"


def main() -> None:
    JobHost([shop], project=os.environ["PROJECT"], nats=os.environ["SERVER"]).run()


if __name__ == "__main__" or "UNGUARDED" in os.environ:
    main()
