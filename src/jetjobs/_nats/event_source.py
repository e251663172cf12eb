"""`_ports.EventSource` over NATS: queue groups on subjects, durables on streams that belong to somebody else.

A durable is never removed here: it is what remembers an event while no host runs. So is its predecessor's, the one of
a release whose filter was another one: it stays until somebody removes it, and says where its successor begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from nats.aio.subscription import Subscription

from jetjobs._core import names
from jetjobs._core.events import Event
from jetjobs._log import get_logger
from jetjobs._nats.connection import Connection
from jetjobs._nats.faults import (
    CONSUMER_EXISTS,
    STREAM_NOT_FOUND,
    Mismatch,
    NotFound,
    Refused,
    permission_missing,
)
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.provision import nanoseconds
from jetjobs._nats.pull import ContinuousPull
from jetjobs._nats.rights import prove_deliveries
from jetjobs._nats.share import Share
from jetjobs._ports import Delivery, OnDelivery
from jetjobs.errors import BrokerError, StreamMismatch

_log = get_logger("jetjobs.nats")

MAX_ACK_PENDING: Final = 256  # over all hosts
PROJECT_KEY: Final = "jetjobs-project"

_LOOK_AGAIN: Final = 4.0
_SLACK: Final = timedelta(milliseconds=250)  # how wrong the measured offset of the broker's clock may be
_NOT_UNIQUE: Final = frozenset({10099, 10100})
_DELIVER_ALL: Final = 10101

Config = dict[str, Any]


class NatsSubscription:
    """One member of a queue group; implements `_ports.EventSubscription`."""

    def __init__(self, source: NatsEventSource, connection: Connection, sub: Subscription) -> None:
        self._source = source
        self._connection = connection
        self._sub: Subscription | None = sub
        self._refused_in = -1
        self._forget = connection.on_refusal(self._refused)

    @property
    def problem(self) -> str | None:
        """The right that was taken away; each reconnect asks for it anew."""
        sub = self._sub
        if sub is None or self._refused_in != self._life:
            return None
        return str(permission_missing("subscription", sub.subject))

    @property
    def _life(self) -> int:
        """Counts connections. nats-py counts before it subscribes again."""
        return self._connection.client.stats["reconnects"]

    def _refused(self, kind: str, subject: str) -> None:
        if kind == "subscription" and self._sub is not None and subject == self._sub.subject.lower():
            self._refused_in = self._life

    async def stop(self) -> None:
        """Leave the group once what the server had sent was heard."""
        sub, self._sub = self._sub, None
        if sub is not None:
            self._forget()
            await self._source.leave(sub)


class NatsEventSource:
    """The messages of other services, over the connection of one project's host."""

    def __init__(self, link: Link, project: str, now: Callable[[], datetime], *, ack_wait: timedelta) -> None:
        self._link = link
        self._project = project
        self._now = now
        self._ack_wait = ack_wait
        self._pulls: dict[str, ContinuousPull] = {}
        self._asked_at: dict[str, datetime] = {}

    async def subscribe(self, subject: str, group: str, on_event: Callable[[Event], None]) -> NatsSubscription:
        """Hear what is published on a subject from now on, sharing with the group."""
        connection = self._link.connection

        def heard(message: Inbound) -> None:
            on_event(Event(message.subject, message.headers, message.data))

        refused: list[str] = []
        forget = connection.on_refusal(lambda kind, what: refused.append(what) if kind == "subscription" else None)
        try:
            sub = await connection.listen(subject, heard, queue=group)
            await self._link.round_trip(names.stream(self._project))  # a refusal comes before the answer
        finally:
            forget()
        if subject.lower() in refused:
            connection.abandon(sub)
            raise permission_missing("subscription", subject)
        return NatsSubscription(self, connection, sub)

    async def leave(self, sub: Subscription) -> None:
        """End a subscription once everything the server had sent for it was heard."""
        await self._link.leave([sub], names.stream(self._project))

    async def consume(self, stream: str, subject: str, durable: str, on_delivery: OnDelivery) -> Share:
        """Begin to take the events of a stream on a subject, none before `allow`."""
        # Since it was asked for, not since the stream is there: what comes between is owed too.
        since = self._asked_at.setdefault(durable, self._now() - _SLACK)
        kept = _Durable(self, stream, subject, name=durable, since=since)
        await kept.ensure()
        await prove_deliveries(self._link, stream, durable)
        if stream not in self._pulls:
            self._pulls[stream] = ContinuousPull(self._link, stream)
        return await self._pulls[stream].add(durable, partial(kept.deliver, on_delivery), kept.restore)

    async def api(self, suffix: str, payload: Config | None = None) -> Config:
        """A JetStream API call."""
        return await self._link.api(suffix, payload)

    @property
    def project(self) -> str:
        """Name of the project."""
        return self._project

    def config(self, subject: str, durable: str) -> Config:
        """What any durable of events is, wherever it begins."""
        return {
            "durable_name": durable,
            "name": durable,
            "description": f"events of {subject} for jobs of project {self._project}",
            "filter_subjects": [subject],
            "ack_policy": "explicit",
            "replay_policy": "instant",
            "max_deliver": -1,
            "ack_wait": nanoseconds(self._ack_wait),
            "max_ack_pending": MAX_ACK_PENDING,
            "metadata": {PROJECT_KEY: self._project},
        }

    async def close(self) -> None:
        """Take nothing more."""
        for pull in self._pulls.values():
            try:
                await pull.close()
            except BrokerError as failure:
                _log.info("pull not closed cleanly", error=str(failure))
        self._pulls.clear()


class _Durable:
    """One durable, and since when its events are owed: a later one made in its place begins there."""

    def __init__(self, source: NatsEventSource, stream: str, subject: str, *, name: str, since: datetime) -> None:
        self._source = source
        self._stream = stream
        self._subject = subject
        self._name = name
        self._since = since
        self._missing = False

    def deliver(self, on_delivery: OnDelivery, delivery: Delivery) -> None:
        """Pass a delivery on, and remember how far the stream was given out."""
        self._since = max(self._since, delivery.message.stored_at)
        on_delivery(delivery)

    async def restore(self) -> None:
        """Make it again after it has gone, or the whole stream with it."""
        try:
            await self.ensure()
            self._missing = False
        except BrokerError as failure:
            if not self._missing:
                self._missing = True
                _log.warning("events not taken", stream=self._stream, subject=self._subject, error=str(failure))
            await asyncio.sleep(_LOOK_AGAIN)
            raise

    async def ensure(self) -> None:
        """Make it unless it is there."""
        try:
            await self._source.api(f"CONSUMER.INFO.{self._stream}.{self._name}")
        except NotFound as missing:
            if missing.code == STREAM_NOT_FOUND:
                raise self._no_stream() from None
            await self._create(await self._beginning())

    def _no_stream(self) -> BrokerError:
        return BrokerError(
            f'there is no stream "{self._stream}" to take "{self._subject}" from: create it, or correct '
            f'OnEvent("{self._subject}", stream="{self._stream}"); it is looked for again'
        )

    async def _create(self, beginning: Config) -> None:
        config = {**self._source.config(self._subject, self._name), **beginning}
        request = {"stream_name": self._stream, "config": config, "action": "create"}
        try:
            await self._source.api(f"CONSUMER.CREATE.{self._stream}.{self._name}", request)
        except Mismatch as refused:
            if refused.code in _NOT_UNIQUE:
                raise self._overlaps(refused) from None
            if refused.code != CONSUMER_EXISTS:  # that is another host's, made just now
                raise
        except NotFound:
            raise self._no_stream() from None
        except Refused as refused:
            if refused.code != _DELIVER_ALL or beginning == _ALL:
                raise
            await self._create(_ALL)  # a work queue: what it holds was given to nobody yet

    def _overlaps(self, refused: Mismatch) -> StreamMismatch:
        return StreamMismatch(
            f'stream "{self._stream}" is a work queue, and a consumer of it takes "{self._subject}" or a part of it '
            f"already ({refused.code}): each of its messages goes to one consumer only. Remove that consumer if it "
            f"is one of an earlier release (`nats consumer ls {self._stream}`; its name begins with "
            f'"{_job_part(self._name)}"), narrow the subjects until they don\'t overlap, or give the jobs a stream of '
            "their own that sources this one with limits retention"
        )

    async def _beginning(self) -> Config:
        """Where a durable of the same job on the same subject got to, else what is stored from `since` on."""
        reached = max([floor async for floor in self._floors()], default=0)
        if reached > 0:
            return {"deliver_policy": "by_start_sequence", "opt_start_seq": reached + 1}
        return {"deliver_policy": "by_start_time", "opt_start_time": self._since.isoformat()}

    async def _floors(self) -> AsyncGenerator[int]:
        offset = 0
        while True:
            page = await self._source.api(f"CONSUMER.LIST.{self._stream}", {"offset": offset})
            found: list[Config] = page.get("consumers") or []
            for info in found:
                if self._is_predecessor(info["config"]):
                    yield int(info["ack_floor"]["stream_seq"])
            offset += len(found)
            if not found or offset >= int(page.get("total") or 0):
                return

    def _is_predecessor(self, config: Mapping[str, Any]) -> bool:
        name = str(config.get("durable_name") or "")
        filters = config.get("filter_subjects") or [config.get("filter_subject")]
        metadata: Mapping[str, str] = config.get("metadata") or {}
        ours = metadata.get(PROJECT_KEY) == self._source.project
        return ours and _job_part(name) == _job_part(self._name) and filters == [self._subject]


_ALL: Final[Config] = {"deliver_policy": "all"}


def _job_part(durable: str) -> str:
    return durable.rpartition("=_")[0] + "=_"
