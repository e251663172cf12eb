"""One delivery of a trigger, and how acks leave this process."""

from __future__ import annotations

import json
from collections import deque
from datetime import UTC, datetime, timedelta
from typing import Final

from jetjobs._core.messages import Message
from jetjobs._core.models import NOTHING
from jetjobs._nats.connection import Connection
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.writer import PipelinedWriter

ACK_PREFIX: Final = "$JS.ACK."
NAK: Final = b"-NAK"

# Up to here, in the year 2106, a float's error stays under a quarter of a microsecond, and twice as fast it is.
_EXACT: Final = 2**32 * 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_RENEW_TIMEOUT: Final = 3.0
_KEPT_ACKS: Final = 10_000
_REASON_BYTES: Final = 200


def instant(nanoseconds: int) -> datetime:
    """The aware UTC instant of nanoseconds since the epoch, cut to microseconds.

    >>> instant(1_764_567_890_123_456_789).isoformat()
    '2025-12-01T05:44:50.123456+00:00'
    """
    microseconds = nanoseconds // 1000
    if 0 <= microseconds < _EXACT:
        return datetime.fromtimestamp(microseconds / 1_000_000, UTC)
    return _EPOCH + timedelta(microseconds=microseconds)


class AckOutbox:
    """Sends acks at once, in order. Those given while disconnected leave after the reconnect.

    Only acks are kept: a run is saved before its ack, so a late one is right whoever holds the message
    by then. A late nak or term would be obeyed for the new holder's delivery, so they are dropped:
    the ack wait brings the message back.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._kept: deque[str] = deque(maxlen=_KEPT_ACKS)
        connection.on_reconnect(self._flush)

    def ack(self, reply: str) -> None:
        """Retire a message."""
        if not self._connection.post(reply):
            self._kept.append(reply)

    def send(self, reply: str, verb: bytes) -> None:
        """Nak or terminate, or do nothing while disconnected."""
        self._connection.post(reply, verb)

    def _flush(self) -> None:
        while self._kept and self._connection.post(self._kept[0]):
            self._kept.popleft()


class NatsDelivery:
    """A message from a consumer; its facts are read from the ack subject when asked for."""

    __slots__ = ("_message", "_outbox", "_raw", "_tokens", "_writer")

    def __init__(self, raw: Inbound, tokens: list[str], outbox: AckOutbox, writer: PipelinedWriter) -> None:
        self._raw = raw
        self._tokens = tokens  # …, stream, consumer, delivered, stream sequence, consumer sequence, time, pending
        self._outbox = outbox
        self._writer = writer
        self._message: Message | None = None

    @property
    def message(self) -> Message:
        """The message delivered, with its delivery number."""
        message = self._message
        if message is None:
            tokens, raw = self._tokens, self._raw
            at = consumer_at(tokens)
            message = self._message = Message(
                raw.subject,
                raw.headers or NOTHING,
                raw.data,
                int(tokens[at + 2]),
                instant(int(tokens[at + 4])),
                int(tokens[at + 1]),
            )
        return message

    def ack(self) -> None:
        """Retire the message and free its slot."""
        self._outbox.ack(self._raw.reply)

    def nak(self, delay: timedelta | None = None) -> None:
        """Give the delivery back, to be delivered again after `delay`."""
        if delay is None:
            self._outbox.send(self._raw.reply, NAK)
        else:
            nanoseconds = delay // timedelta(microseconds=1) * 1000
            self._outbox.send(self._raw.reply, NAK + b" " + json.dumps({"delay": nanoseconds}).encode())

    def term(self, reason: str) -> None:
        """Remove the message from the stream for good."""
        line = " ".join(reason.split()).encode()[:_REASON_BYTES].decode(errors="ignore")
        self._outbox.send(self._raw.reply, f"+TERM {line}".encode())

    async def renew(self) -> None:
        """Extend the ack wait; returns when the broker confirmed it."""
        await self.renew_through(self._writer)

    async def renew_through(self, writer: PipelinedWriter) -> None:
        """The same over another connection, from the thread of its loop."""
        await writer.request(self._raw.reply, b"+WPI", timeout=_RENEW_TIMEOUT)


def consumer_at(tokens: list[str]) -> int:
    """Where the consumer's name stands in an ack subject: newer servers put domain and account before the stream."""
    return 3 if len(tokens) == 9 else 5
