"""Reading many messages of a stream, a page at a time: few round trips, bounded memory.

Any replica may answer, so a page can be a little behind the leader: for lists, never for deciding a write.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from jetjobs._nats.faults import Refused, no_responders, permission_missing
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs.errors import BrokerUnavailable

EVERYTHING: Final = ">"

# A page ends at whichever comes first; records are 300 bytes mostly and 512 KiB at most.
_PAGE_MESSAGES: Final = 1000
_SMALL_PAGE: Final = 200
_PAGE_BYTES: Final = 4 * 1024 * 1024

_PAGE_TIMEOUT: Final = 5.0
_ATTEMPTS: Final = 3


class Entry(NamedTuple):
    """A message as stored: the newest on its subject."""

    subject: str
    data: bytes
    revision: int
    stored_at: datetime


async def read_pages(link: Link, stream: str, pattern: str) -> AsyncGenerator[list[Entry], None]:
    """The newest messages under a pattern in the order they were stored, in lists of up to a thousand.

    The server counts what is left for every page, and counting all there is (`EVERYTHING`) costs it nothing. Pages
    are smaller then: a thousand messages that come at once hold up the event loop for a tenth of a second.

    One that is written again while this goes on may come a second time, as it is then.

    Raises:
        BrokerUnavailable: no page could be had in several attempts.
        PermissionMissing: the user may not read this stream.
    """
    inbox = link.connection.client.new_inbox()
    page = _Page(stream, pattern, inbox, _SMALL_PAGE if pattern == EVERYTHING else _PAGE_MESSAGES)
    listening = await link.connection.listen(inbox + ".*", page.take)
    forget_refusals = link.connection.on_refusal(page.refused)
    try:
        start, failures, left = 1, 0, 1
        while left:
            await link.connection.wait_connected(_PAGE_TIMEOUT)
            left = await page.ask(link, start)
            failures = 0 if page.entries or left == 0 else failures + 1
            if failures == _ATTEMPTS:
                raise BrokerUnavailable(f"{stream} gave no page of {pattern} in {_ATTEMPTS} attempts")
            if page.entries:
                start = page.entries[-1].revision + 1
                yield page.entries
    finally:
        forget_refusals()
        await link.connection.forget(listening)


class _Page:
    """One request under way at a time; answers to an earlier one are let fall."""

    def __init__(self, stream: str, pattern: str, inbox: str, size: int) -> None:
        self.entries: list[Entry] = []
        self._size = size
        self._inbox = inbox
        self._request = f"$JS.API.DIRECT.GET.{stream}"
        self._pattern = pattern
        self._number = 0
        self._reply = ""
        self._end: asyncio.Future[int] | None = None

    async def ask(self, link: Link, start: int) -> int:
        """Fill `entries` from a sequence on; how many are left after them, at least 1 when the page broke off."""
        self.entries = []
        self._number += 1
        self._reply = f"{self._inbox}.{self._number}"
        self._end = asyncio.get_running_loop().create_future()
        wanted = {"seq": start, "next_by_subj": self._pattern, "batch": self._size, "max_bytes": _PAGE_BYTES}
        if not link.connection.post(self._request, json.dumps(wanted).encode(), self._reply):
            return 1
        try:
            async with asyncio.timeout(_PAGE_TIMEOUT):
                return await self._end
        except TimeoutError:
            return 1

    def refused(self, kind: str, subject: str) -> None:
        """The user may not ask for pages: no answer will come. `subject` is in lower case."""
        if subject == self._request.lower() and self._end is not None and not self._end.done():
            self._end.set_exception(permission_missing(kind, self._request))

    def take(self, message: Inbound) -> None:
        """Note one answer; runs in the read loop."""
        headers = message.headers
        if not headers or message.subject != self._reply or self._end is None or self._end.done():
            return
        if "Status" in headers:
            self._finish(headers, self._end)
            return
        stored_at = datetime.fromisoformat(headers["Nats-Time-Stamp"])
        self.entries.append(Entry(headers["Nats-Subject"], message.data, int(headers["Nats-Sequence"]), stored_at))

    def _finish(self, headers: Mapping[str, str], end: asyncio.Future[int]) -> None:
        match headers["Status"]:
            case "204":
                end.set_result(int(headers.get("Nats-Num-Pending", "0")))
            case "404":
                end.set_result(0)
            case "503":
                # Replicas of a stream that isn't there don't answer, nor do those of one without direct reads.
                end.set_exception(no_responders(self._pattern, "read"))
            case status:
                end.set_exception(Refused(f"read: {headers.get('Description', '')} ({status})"))
