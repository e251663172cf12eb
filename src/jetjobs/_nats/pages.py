"""Reading many messages of a stream, a page at a time: few round trips, bounded memory.

Any replica may answer, so a page can be a little behind the leader: for lists, never for deciding a write.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, NamedTuple

from jetjobs._core.messages import Message
from jetjobs._nats.dial import LONGEST_WAIT
from jetjobs._nats.faults import Refused, permission_missing
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs.errors import BrokerUnavailable, ProjectNotPrepared

EVERYTHING: Final = ">"

# A page ends at whichever comes first; records are 300 bytes mostly and 512 KiB at most.
_PAGE_MESSAGES: Final = 1000
_SMALL_PAGE: Final = 500
_PAGE_BYTES: Final = 4 * 1024 * 1024

_OF_THE_PAGE: Final = frozenset(
    {"Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp", "Nats-Num-Pending", "Nats-Last-Sequence"}
)

_PAGE_TIMEOUT: Final = 5.0
_RECONNECT: Final = LONGEST_WAIT + _PAGE_TIMEOUT
# How long nothing may come: a server that has just restarted takes connections before its streams answer.
_PATIENCE: Final = 3 * _PAGE_TIMEOUT
_PAUSE: Final = 0.25


class Entry(NamedTuple):
    """A message as stored: the newest on its subject."""

    subject: str
    data: bytes
    revision: int
    stored_at: datetime


async def read_pages(link: Link, stream: str, pattern: str, start: int = 1) -> AsyncGenerator[list[Entry], None]:
    """The newest messages under a pattern in the order they were stored, in lists of up to a thousand.

    `start` leaves out those of lower sequences. One that is written again while this goes on may come a second time,
    as it is then.

    Raises:
        BrokerUnavailable: nothing came for long.
        ProjectNotPrepared: nobody answers, and nobody did before.
        PermissionMissing: the user may not read this stream.
    """
    async with open_pages(link, stream, pattern) as pages:
        async for page in pages.forward(start):
            yield [entry_of(message) for message in page]


async def read_messages(link: Link, stream: str, pattern: str) -> AsyncGenerator[list[Message], None]:
    """The same with the headers that were stored."""
    async with open_pages(link, stream, pattern) as pages:
        async for page in pages.forward(1):
            yield [_message_of(message) for message in page]


def _message_of(message: Inbound) -> Message:
    entry = entry_of(message)
    own = {name: value for name, value in message.headers.items() if name not in _OF_THE_PAGE}
    return Message(entry.subject, own, entry.data, entry.revision, entry.stored_at)


def entry_of(message: Inbound) -> Entry:
    """One answer of a page as an entry."""
    headers = message.headers
    stored_at = datetime.fromisoformat(headers["Nats-Time-Stamp"])
    return Entry(headers["Nats-Subject"], message.data, int(headers["Nats-Sequence"]), stored_at)


def sequence_of(message: Inbound) -> int:
    """Where in the stream an answer of a page lies."""
    return int(message.headers["Nats-Sequence"])


@asynccontextmanager
async def open_pages(link: Link, stream: str, pattern: str) -> AsyncGenerator[Pages]:
    """Pages of a stream's messages under a pattern, one request under way at a time."""
    inbox = link.connection.client.new_inbox()
    pages = Pages(link, f"$JS.API.DIRECT.GET.{stream}", pattern, inbox)
    listening = await link.connection.listen(inbox + ".*", pages.take)
    forget_refusals = link.connection.on_refusal(pages.refused)
    forget_losses = link.connection.on_disconnect(pages.lost)
    try:
        yield pages
    finally:
        forget_refusals()
        forget_losses()
        await link.connection.forget(listening)


class Pages:
    """Asks for pages; answers to an earlier request are let fall. Made by `open_pages`.

    The server counts what is left for every page, and counting all there is (`EVERYTHING`) costs it nothing. Pages
    are smaller then: what comes at once holds up the event loop.
    """

    def __init__(self, link: Link, request: str, pattern: str, inbox: str) -> None:
        self._link = link
        self._request = request
        self._pattern = pattern
        self._inbox = inbox
        self._size = _SMALL_PAGE if pattern == EVERYTHING else _PAGE_MESSAGES
        self._wanted: Mapping[str, object] = {}
        self._messages: list[Inbound] = []
        self._number = 0
        self._single = False
        self._answered = False
        self._reply = ""
        self._end: asyncio.Future[int] | None = None

    async def forward(self, start: int, last: int | None = None) -> AsyncGenerator[list[Inbound], None]:
        """The messages from a sequence on, up to `last`. The next page is on its way while one is looked at.

        Raises:
            BrokerUnavailable: nothing came for long.
        """
        more = True
        self._ask(start, last)
        while more:
            left, messages = await self._answer()
            if messages:
                start = sequence_of(messages[-1]) + 1
            more = bool(left) and (last is None or start <= last)
            if more:
                self._ask(start, last)
            if messages:
                yield _up_to(messages, last)

    async def newest(self) -> Inbound | None:
        """The message with the highest sequence under the pattern."""
        self._post({"last_by_subj": self._pattern}, single=True)
        _, messages = await self._answer()
        return messages[-1] if messages else None

    async def _answer(self) -> tuple[int, list[Inbound]]:
        """What came of the last request, and how many are left after it; asked again as long as nothing comes.

        Raises:
            BrokerUnavailable: nothing came for long.
            ProjectNotPrepared: nobody answers, and nobody did before.
        """
        now = asyncio.get_running_loop().time
        until = now() + _PATIENCE
        while True:
            left, messages = await self._page()
            if messages or not left:
                return left, messages
            if now() >= until:
                raise BrokerUnavailable(f"{self._request} gave nothing of {self._pattern} in {_PATIENCE:g} s")
            await asyncio.sleep(_PAUSE)
            await self._link.connection.wait_connected(_RECONNECT)
            self._post(self._wanted, single=self._single)

    def _ask(self, start: int, last: int | None) -> None:
        size = self._size if last is None else min(self._size, last - start + 1)
        self._post({"seq": start, "next_by_subj": self._pattern, "batch": size, "max_bytes": _PAGE_BYTES})

    def _post(self, wanted: Mapping[str, object], *, single: bool = False) -> None:
        self._wanted = wanted
        self._messages = []
        self._single = single
        self._number += 1
        self._reply = f"{self._inbox}.{self._number}"
        self._end = asyncio.get_running_loop().create_future()
        if not self._link.connection.post(self._request, json.dumps(wanted).encode(), self._reply):
            self._end.set_result(1)

    async def _page(self) -> tuple[int, list[Inbound]]:
        """What came of the last request, and how many are left after it: at least 1 when the page broke off."""
        assert self._end is not None
        try:
            async with asyncio.timeout(_PAGE_TIMEOUT):
                left = await self._end
        except TimeoutError:
            return 1, self._messages
        except ProjectNotPrepared:
            if not self._answered:
                raise
            return 1, self._messages
        self._answered = True
        return left, self._messages

    def refused(self, kind: str, subject: str) -> None:
        """The user may not ask for pages: no answer will come. `subject` is in lower case."""
        if subject == self._request.lower() and self._end is not None and not self._end.done():
            self._end.set_exception(permission_missing(kind, self._request))

    def lost(self) -> None:
        """The connection has gone, and the rest of the page with it."""
        if self._end is not None and not self._end.done():
            self._end.set_result(1)

    def take(self, message: Inbound) -> None:
        """Note one answer; runs in the read loop."""
        if message.subject != self._reply or self._end is None or self._end.done():
            return
        # The last answer of a page is empty, as few messages are: no other's headers are read here.
        if not message.data and "Nats-Sequence" not in message.headers:
            self._finish(message.headers, self._end)
            return
        self._messages.append(message)
        if self._single:
            self._end.set_result(0)

    def _finish(self, headers: Mapping[str, str], end: asyncio.Future[int]) -> None:
        match headers.get("Status"):
            case "204":
                end.set_result(int(headers.get("Nats-Num-Pending", "0")))
            case "404":
                end.set_result(0)
            case "503":
                # Replicas of a stream that isn't there don't answer, nor do those of one without direct reads.
                end.set_exception(self._link.nobody_answers(self._pattern))
            case status:
                end.set_exception(Refused(f"read: {headers.get('Description', '')} ({status})"))


def _up_to(messages: list[Inbound], last: int | None) -> list[Inbound]:
    """Those up to a sequence: a page is as long as was asked for, also where sequences have gone."""
    if last is None or sequence_of(messages[-1]) <= last:
        return messages
    return [message for message in messages if sequence_of(message) <= last]
