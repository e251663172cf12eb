"""What can be found out about a broker and our rights on it without changing anything: for `jetjobs doctor`.

Every answer is a fact or the error that came instead of it; what a fact means is for whoever asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from jetjobs._clock import SystemClock
from jetjobs._core import names, payload_subjects
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._nats.connection import Connection, connect
from jetjobs._nats.link import Link
from jetjobs._nats.tuned import server_info
from jetjobs._nats.writer import PipelinedWriter
from jetjobs.config import connect_options
from jetjobs.errors import BrokerError, JetJobsError

_ASK = 2.0
_clock = SystemClock()


@dataclass(frozen=True, slots=True)
class StreamFacts:
    """One of the project's streams: how full it is, or why it can't be read."""

    name: str
    messages: int = 0
    size: int = 0
    replicas: int = 1
    leader: str | None = None
    error: JetJobsError | None = None


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """What one look at a broker shows.

    `clock_offset` is broker time minus ours, `None` when no stream could be asked. `storage_used` and `storage_limit`
    are the account's, in bytes; no limit is `None`. `may_trigger` is `None` when the server doesn't tell our rights.
    """

    version: str
    streams: tuple[StreamFacts, ...]
    clock_offset: timedelta | None = None
    storage_used: int = 0
    storage_limit: int | None = None
    may_trigger: bool | None = None


async def look_at_broker(nats: Any = None, *, project: str) -> BrokerFacts:
    """Connect, ask, and let go; within 10 s.

    Raises:
        BrokerUnavailable, AccessDenied, ServerTooOld, JetStreamDisabled: nothing could be asked at all.
    """
    names.check_project(project)
    connection = await connect(connect_options(nats), name="jetjobs doctor")
    try:
        return await _Look(connection, project).facts()
    finally:
        await connection.close()


async def count_waiting(nats: Any = None, *, project: str, jobs: Iterable[JobAddress]) -> Mapping[JobAddress, int]:
    """How many triggers wait for each of these jobs; one whose queue can't be read is left out.

    Raises:
        BrokerUnavailable, AccessDenied: nothing could be asked at all.
    """
    connection = await connect(connect_options(nats), name="jetjobs doctor")
    try:
        look = _Look(connection, project)
        asked = tuple(jobs)
        found = zip(asked, await asyncio.gather(*map(look.waiting, asked)), strict=True)
        return {job: count for job, count in found if count is not None}
    finally:
        await connection.close()


class _Look:
    def __init__(self, connection: Connection, project: str) -> None:
        self._connection = connection
        self._project = project
        self._writer = PipelinedWriter(connection)
        self._link = Link(connection, self._writer)
        self._offset: timedelta | None = None

    async def facts(self) -> BrokerFacts:
        """All there is to know."""
        # At once: a JetStream that doesn't answer costs the time of one question, not of all.
        streams, (used, limit), may_trigger = await asyncio.gather(
            asyncio.gather(*map(self._stream, self._stream_names())), self._storage(), self._may_trigger()
        )
        return BrokerFacts(
            version=str(server_info(self._connection.client).get("version", "")),
            streams=tuple(streams),
            clock_offset=self._offset,
            storage_used=used,
            storage_limit=limit,
            may_trigger=may_trigger,
        )

    async def waiting(self, job: JobAddress) -> int | None:
        """How many triggers of a job are stored and not done; `None` when its queue can't be read."""
        suffix = f"CONSUMER.INFO.{names.stream(self._project)}.{names.consumer(job)}"
        try:
            info = await self._link.api(suffix, timeout=_ASK)
        except BrokerError:
            return None
        return int(info.get("num_pending", 0)) + int(info.get("num_ack_pending", 0))

    def _stream_names(self) -> list[str]:
        buckets = (names.runs_bucket, names.schedules_bucket, names.jobs_bucket, names.hosts_bucket)
        return [
            names.stream(self._project),
            *(names.bucket_stream(bucket(self._project)) for bucket in buckets),
            payload_subjects.payload_stream(self._project),
        ]

    async def _stream(self, name: str) -> StreamFacts:
        before = _clock.now()
        try:
            info = await self._link.api(f"STREAM.INFO.{name}", timeout=_ASK)
        except JetJobsError as error:
            return StreamFacts(name, error=error)
        self._measure(info, before)
        state: Mapping[str, Any] = info["state"]
        return StreamFacts(
            name,
            messages=state["messages"],
            size=state["bytes"],
            replicas=info["config"].get("num_replicas", 1),
            leader=info.get("cluster", {}).get("leader"),
        )

    def _measure(self, info: Mapping[str, Any], before: datetime) -> None:
        if "ts" in info:
            there = datetime.fromisoformat(info["ts"])
            self._offset = there - (before + (_clock.now() - before) / 2)

    async def _storage(self) -> tuple[int, int | None]:
        try:
            info = await self._link.api("INFO", timeout=_ASK)
        except BrokerError:
            return 0, None
        limit = int(info.get("limits", {}).get("max_storage", -1))
        return int(info.get("storage", 0)), limit if limit > 0 else None

    async def _may_trigger(self) -> bool | None:
        """Whether our user may publish on a trigger's subject, by what the server says of the user."""
        try:
            answer = await self._writer.request("$SYS.REQ.USER.INFO", b"", timeout=_ASK)
            data: Mapping[str, Any] = json.loads(answer).get("data") or {}
        except (BrokerError, ValueError):
            return None
        subject = names.trigger_subject(self._project, RunKey("m", "j", "r"))
        return may_publish(subject, data.get("permissions", {}).get("publish"))


def may_publish(subject: str, permissions: object) -> bool:
    """Whether NATS permissions `{"allow": […], "deny": […]}` let a user publish on a subject.

    >>> may_publish("jetjobs.a.trigger.x", {"allow": ["jetjobs.a.>"]}), may_publish("b", {"deny": ["*"]})
    (True, False)
    """
    if not isinstance(permissions, Mapping):
        return True
    lists = cast("Mapping[str, Sequence[str] | None]", permissions)
    allowed, denied = lists.get("allow"), lists.get("deny") or ()
    return (not allowed or _any_matches(allowed, subject)) and not _any_matches(denied, subject)


def _any_matches(patterns: Sequence[str], subject: str) -> bool:
    return any(_matches(pattern.split("."), subject.split(".")) for pattern in patterns)


def _matches(pattern: list[str], subject: list[str]) -> bool:
    for place, part in enumerate(pattern):
        if part == ">":
            return len(subject) > place
        if place >= len(subject) or part not in {"*", subject[place]}:
            return False
    return len(pattern) == len(subject)
