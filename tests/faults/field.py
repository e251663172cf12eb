"""What the field cases share: the broker asked directly, beside jetjobs, and what a process costs."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import nats

TICKS = os.sysconf("SC_CLK_TCK")


def show(figures: str) -> None:
    """Figures for whoever runs the test with `-s` or `-rP`; what is asserted of them is generous."""
    print(figures)  # noqa: T201


async def api(url: str, suffix: str, payload: Any = None, *, within: float = 20.0) -> dict[str, Any]:
    """A JetStream API answer, over a connection of its own."""
    client = await nats.connect(url)
    try:
        body = json.dumps(payload).encode() if payload is not None else b""
        return json.loads((await client.request(f"$JS.API.{suffix}", body, timeout=within)).data)
    finally:
        await client.close()


async def streams_of(url: str, project: str) -> set[str]:
    """The project's streams and buckets."""
    found = await api(url, "STREAM.NAMES")
    return {name for name in found.get("streams") or () if project in name}


async def monitor(port: int, page: str) -> dict[str, Any]:
    """A page of a server's monitoring port, as in `connz?limit=1000`."""

    def read() -> dict[str, Any]:
        with urlopen(f"http://127.0.0.1:{port}/{page}", timeout=20) as answer:
            return json.load(answer)

    return await asyncio.to_thread(read)


async def cpu_share(pid: int, seconds: float) -> float:
    """The part of one core a process uses over so many seconds from now."""
    before, begun = _cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(seconds)  # what is measured
    return (_cpu_seconds(pid) - before) / (time.monotonic() - begun)


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mb(pid: int) -> float:
    """A process's resident memory in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
