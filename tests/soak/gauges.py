"""What hosts and broker hold, sampled from outside, and whether it stays flat."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from nats.aio.client import Client

Sample = dict[str, float]


class Allowed(NamedTuple):
    """How far a gauge may rise: a share of its earlier value, and so much on top."""

    share: float
    more: float


# Memory comes and goes with collections and allocators. What is counted follows the runs of the moment.
ALLOWED: dict[str, Allowed] = {
    "rss MB": Allowed(0.10, 6),
    "fds": Allowed(0, 8),
    "threads": Allowed(0, 8),
    "children": Allowed(0, 3),
    "consumers": Allowed(0, 0),
    "streams": Allowed(0, 0),
    "messages": Allowed(0.25, 40),
    "MB": Allowed(0.25, 1),
    "store MB": Allowed(0.35, 16),
}


@dataclass(frozen=True, slots=True)
class Gauges:
    """Reads one project's hosts and broker."""

    hosts: Sequence[int]
    broker: int
    store: Path
    client: Client

    async def sample(self) -> Sample:
        """Every gauge by its name."""
        found: Sample = {}
        for number, pid in enumerate(self.hosts, 1):
            found |= {f"host {number} {name}": value for name, value in _process(pid).items()}
            found[f"host {number} children"] = len(_descendants(pid))
        found |= {f"broker {name}": value for name, value in _process(self.broker).items()}
        found["broker store MB"] = sum(_size(path) for path in self.store.rglob("*")) / 1e6
        streams = await self._streams()
        found["broker streams"] = len(streams)
        found["broker consumers"] = sum(stream["state"]["consumer_count"] for stream in streams)
        for stream in streams:
            name = stream["config"]["name"]
            found[f"{name} messages"] = stream["state"]["messages"]
            found[f"{name} MB"] = stream["state"]["bytes"] / 1e6
        return found

    async def _streams(self) -> list[dict[str, Any]]:
        answer = await self.client.request("$JS.API.STREAM.LIST", b"{}", timeout=30)
        return json.loads(answer.data)["streams"]


def _process(pid: int) -> Sample:
    folder = Path(f"/proc/{pid}")
    pages = int((folder / "statm").read_text().split()[1])
    return {
        "rss MB": pages * os.sysconf("SC_PAGE_SIZE") / 1e6,
        "fds": sum(1 for _ in (folder / "fd").iterdir()),
        "threads": sum(1 for _ in (folder / "task").iterdir()),
    }


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in listed.read_text().split()]
        except OSError:
            continue  # a thread that has just ended
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # the broker has just removed it


@dataclass(frozen=True, slots=True)
class Trend:
    """One gauge over the whole time: medians of the second and of the last quarter."""

    name: str
    first: float
    second: float
    last: float
    most: float

    @property
    def flat(self) -> bool:
        """Whether the last quarter lies no higher than it may."""
        kind = next(kind for kind in sorted(ALLOWED, key=len, reverse=True) if self.name.endswith(kind))
        allowed = ALLOWED[kind]
        return self.last <= self.second * (1 + allowed.share) + allowed.more


def trends(samples: Sequence[Sample]) -> list[Trend]:
    """Each gauge's; one that came later counts as zero before."""
    quarter = max(len(samples) // 4, 1)
    names = dict.fromkeys(name for sample in samples for name in sample)
    return [_trend(name, [sample.get(name, 0.0) for sample in samples], quarter) for name in names]


def _trend(name: str, values: Sequence[float], quarter: int) -> Trend:
    middle = statistics.median(values[quarter : 2 * quarter] or values)
    return Trend(name, values[0], middle, statistics.median(values[-quarter:]), max(values))


def table(found: Iterable[Trend], *, judged: bool) -> str:
    """The trends for people; `judged` marks those that rise."""
    lines = [f"{'':34} {'start':>10} {'2nd quarter':>12} {'last quarter':>13} {'most':>10}"]
    lines += [
        f"{each.name:34} {each.first:10.1f} {each.second:12.1f} {each.last:13.1f} {each.most:10.1f}"
        f"{'' if each.flat or not judged else '  RISING'}"
        for each in found
    ]
    return "\n".join(lines)


def line(sample: Sample, began: float) -> str:
    """One sample in a line, as a sign of life."""
    keys = ("host 1 rss MB", "host 1 fds", "host 1 threads", "host 2 rss MB", "broker rss MB", "broker store MB")
    return f"{time.monotonic() - began:6.0f} s  " + "  ".join(f"{key} {sample[key]:.0f}" for key in keys)
