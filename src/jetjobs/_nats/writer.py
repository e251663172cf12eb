"""Pipelined writes: many in flight on one reply inbox, each with a deadline, none with a timer of its own.

What the caller may conclude from an error:

* `BrokerUnavailable`: not sent. Not connected, or no room among the outstanding ones, until the deadline.
* `AnswerUnknown`: sent; no answer until the deadline, or the connection it was sent on is gone
  (the broker answers to a connection, so none can come on the next one).
* everything else: refused by the broker, or by us before sending; nothing happened.

nats-py's `publish_async` has neither deadlines nor this distinction, and leaks a place for every lost answer.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from jetjobs._core import names
from jetjobs._nats.connection import Connection
from jetjobs._nats.faults import from_api_error, no_responders, permission_missing
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.tuned import Headers
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable, PayloadTooLargeError, StorageFull

OUTSTANDING: Final = 4096
OUTSTANDING_BYTES: Final = 64 * 1024 * 1024  # what a server that doesn't read makes us hold

# Deadlines are kept to this many seconds: one timer for all, and only while something is outstanding.
_SWEEP: Final = 0.05
_PERHAPS: Final = "it may have happened"
_STORED: Final = b'{"stream":'
_SEQUENCE_IS: Final = b'"seq":'


# What is kept of a message until its answer: the future, the subject, the deadline, the size, and whether the answer
# is a sequence. A plain tuple, for a named one costs thrice as much and a run makes two.
_Sent = tuple[asyncio.Future[Any], str, float, int, bool]


class PipelinedWriter:
    """Writes and requests over one connection. Belongs to the thread of its event loop."""

    def __init__(self, connection: Connection, *, outstanding: int = OUTSTANDING) -> None:
        self._connection = connection
        self._limit = outstanding
        self._loop = asyncio.get_running_loop()
        inbox = connection.client.new_inbox()
        self._inbox = inbox + "."
        self._token_at = len(self._inbox)
        self._listening = False
        self._number = 0
        self._sent: dict[str, _Sent] = {}
        self._bytes = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._sweeper: asyncio.TimerHandle | None = None
        self._broken: BrokerError | None = None
        self.on_nobody: Callable[[str], None] | None = None  # hears of subjects that nothing takes writes or asks on
        connection.on_disconnect(self._disconnected)
        connection.on_reconnect(self._free_places)
        connection.on_refusal(self._refused)

    @property
    def outstanding(self) -> int:
        """Writes and requests sent and not answered yet."""
        return len(self._sent)

    async def start(self) -> None:
        """Listen for answers. Idempotent; the first write does it too."""
        if not self._listening:
            self._listening = True
            await self._connection.listen(self._inbox + "*", self._answered)

    async def write(self, subject: str, data: bytes, headers: Headers | None = None, *, timeout: float) -> int:
        """Store a message and return its sequence.

        Raises:
            WrongRevision: its expected sequence isn't the last one.
            StorageFull, PermissionMissing: refused; nothing was stored.
            BrokerUnavailable, AnswerUnknown: see above.
        """
        return await self.send(subject, data, headers, timeout=timeout)

    def send(self, subject: str, data: bytes, headers: Headers | None = None, *, timeout: float) -> Awaitable[int]:
        """The same, sent before this returns if nothing stands in its way; await the result once.

        A coroutine would cost every run as much as what it awaits.
        """
        deadline = self._loop.time() + timeout
        if self._queue or self._must_wait():
            return self._send_later(subject, data, headers, deadline)
        return self._send(subject, data, headers, deadline, stores=True)

    async def _send_later(self, subject: str, data: bytes, headers: Headers | None, deadline: float) -> int:
        await self._admit(deadline)
        return await self._send(subject, data, headers, deadline, stores=True)

    async def request(
        self, subject: str, data: bytes = b"", *, timeout: float, headers: Headers | None = None
    ) -> bytes:
        """The body of the one answer to a request."""
        return (await self.ask(subject, data, timeout=timeout, headers=headers)).data

    async def ask(self, subject: str, data: bytes = b"", *, timeout: float, headers: Headers | None = None) -> Inbound:
        """The one answer to a request, with its headers.

        Raises:
            JetStreamDisabled, BrokerUnavailable: nobody listens on the subject.
        """
        deadline = self._loop.time() + timeout
        if self._queue or self._must_wait():
            await self._admit(deadline)
        message = await self._send(subject, data, headers, deadline)
        if message.headers and message.headers.get("Status") == "503":
            raise self._nobody(subject, "request")
        return message

    def _nobody(self, subject: str, doing: str) -> BrokerError:
        if self.on_nobody is not None:
            self.on_nobody(subject)
        return no_responders(subject, doing)

    # -- sending

    def _must_wait(self) -> bool:
        return (
            len(self._sent) >= self._limit
            or self._bytes >= OUTSTANDING_BYTES
            or not self._listening
            or not self._connection.is_connected
        )

    async def _admit(self, deadline: float) -> None:
        """Return when a message may be sent: connected, listening, and a place free, in order of arrival."""
        waited = False
        try:
            while True:
                await self._connection.wait_connected(max(deadline - self._loop.time(), 0.0))
                await self.start()
                if not self._must_wait() and (waited or not self._queue):
                    return
                await self._wait_for_place(deadline - self._loop.time())
                waited = True
        except BaseException:
            self._free_places()  # the place this one was given, if it was
            raise

    async def _wait_for_place(self, left: float) -> None:
        place = self._loop.create_future()
        self._queue.append(place)
        try:
            async with asyncio.timeout(left):
                await place
        except TimeoutError:
            raise BrokerUnavailable(
                f"{len(self._sent)} writes were outstanding until the deadline; nothing was sent"
            ) from None
        finally:
            if place in self._queue:
                self._queue.remove(place)

    def _send(
        self, subject: str, data: bytes, headers: Headers | None, deadline: float, *, stores: bool = False
    ) -> asyncio.Future[Any]:
        if self._broken is not None:
            raise self._broken
        self._number += 1
        token = str(self._number)
        answer: asyncio.Future[Any] = self._loop.create_future()
        if not self._connection.post(subject, data, self._inbox + token, headers):
            raise BrokerUnavailable(f"the connection to {self._connection.servers} was lost; nothing was sent")
        size = len(data)
        self._bytes += size
        self._sent[token] = (answer, subject, deadline, size, stores)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP, self._sweep)
        return answer

    # -- answers

    def _answered(self, message: Inbound) -> None:
        sent = self._sent.pop(message.subject[self._token_at :], None)
        if sent is None:
            return  # too late: its writer was told that the answer is unknown
        answer, subject, _, size, stores = sent
        self._bytes -= size
        if not answer.done():
            if stores:
                self._resolve(answer, message, subject)
            else:
                answer.set_result(message)
        if self._queue:
            self._free_places()

    def _resolve(self, answer: asyncio.Future[int], message: Inbound, subject: str) -> None:
        data = message.data
        # {"stream":"S", "seq":7} in nearly every case; a duplicate, a domain or an error (which has a
        # "seq":0 too) goes to JSON.
        if data.startswith(_STORED):
            try:
                answer.set_result(int(data[data.find(_SEQUENCE_IS) + 6 : -1]))
            except ValueError:
                pass
            else:
                return
        try:
            if message.headers and message.headers.get("Status") == "503":
                raise self._nobody(subject, "write")
            answer.set_result(_sequence(message, subject))
        except BrokerError as refusal:
            answer.set_exception(refusal)
        except PayloadTooLargeError as refusal:
            # By a limit somebody has set on the stream. On a bucket that is for them to lift, as full storage is.
            answer.set_exception(StorageFull(str(refusal)) if names.is_in_bucket(subject) else refusal)
        except (ValueError, LookupError, TypeError, AttributeError) as garbled:
            answer.set_exception(AnswerUnknown(f"the answer to a write to {subject!r} can't be read: {garbled}"))

    def _free_places(self) -> None:
        free = self._limit - len(self._sent)
        while self._queue and free > 0:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                free -= 1

    def _sweep(self) -> None:
        now = self._loop.time()
        late = [(token, subject) for token, (_, subject, deadline, _, _) in self._sent.items() if deadline <= now]
        for token, subject in late:
            self._fail(token, AnswerUnknown(f"no answer in time from {subject!r}: {_PERHAPS}"))
        if late:
            self._free_places()
        self._sweeper = self._loop.call_later(_SWEEP, self._sweep) if self._sent else None

    def _disconnected(self) -> None:
        for token, (_, subject, *_) in list(self._sent.items()):
            self._fail(token, AnswerUnknown(f"the connection was lost before {subject!r} answered: {_PERHAPS}"))
        self._free_places()

    def _refused(self, kind: str, subject: str) -> None:
        if kind == "subscription":
            if subject == (self._inbox + "*").lower():
                self._broken = permission_missing(kind, self._inbox + "*")
                self._disconnected()
            return
        # The subject comes in lower case here; of two that differ only in case both are refused or will be.
        same = [(token, theirs) for token, (_, theirs, *_) in self._sent.items() if theirs.lower() == subject]
        for token, theirs in same:
            self._fail(token, permission_missing(kind, theirs))
        self._free_places()

    def _fail(self, token: str, error: BrokerError) -> None:
        answer, _, _, size, _ = self._sent.pop(token)
        self._bytes -= size
        if not answer.done():
            answer.set_exception(error)


def _sequence(message: Inbound, subject: str) -> int:
    answer = json.loads(message.data)
    error = answer.get("error")
    if error is not None:
        raise from_api_error(error, f"write to {subject!r}")
    return int(answer["seq"])
