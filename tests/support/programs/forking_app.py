"""A WSGI application whose parent has called before gunicorn forks: run with --preload, its own configuration too."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from jetjobs.sync import JobClient

jobs = JobClient()
add = jobs.get_job("shop.add")
FIRST = add.trigger(0)  # the thread and a connection are there before the first fork
FIRST.wait(timeout=30)
MASTER = os.getpid()
PORT = int(os.environ["NATS_URL"].rpartition(":")[2])


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """`/N` has N added to one by a job; the answer says who asked for it."""
    number = int(environ["PATH_INFO"].strip("/") or 0)
    value = add.trigger(number).result(timeout=20)
    body = {"value": value, "pid": os.getpid(), "first": FIRST.status(), **opened()}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(body).encode()]


def opened() -> dict[str, int]:
    """How many descriptors this process has, and how many of them lead to the broker."""
    descriptors = [int(each.name) for each in Path("/proc/self/fd").iterdir()]
    return {"descriptors": len(descriptors), "links": sum(map(leads_to_the_broker, descriptors))}


def leads_to_the_broker(descriptor: int) -> bool:
    with suppress(OSError):  # closed meanwhile, or no connection
        if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            with socket.socket(fileno=os.dup(descriptor)) as copy:
                return copy.family == socket.AF_INET and copy.getpeername()[1] == PORT
    return False


def on_exit(_server: object) -> None:
    """Gunicorn's hook: its master, which forked all the workers, still has its connection."""
    assert os.getpid() == MASTER
    Path("master").write_text(json.dumps(add.trigger(100_000).result(timeout=20)))
