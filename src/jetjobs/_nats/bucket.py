"""One KV bucket, without nats-py's: compare-and-set by publishing, deletes that leave no marker.

nats-py's `create` trips over expired keys, its `update` has no lifetime, its deletes leave a marker on which a
later create fails.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from jetjobs._core import names
from jetjobs._core.durations import lifetime_seconds
from jetjobs._log import get_logger
from jetjobs._nats.faults import NotFound
from jetjobs._nats.link import Link
from jetjobs._nats.newest import Part, read_newest
from jetjobs._nats.pages import Entry, read_pages
from jetjobs.errors import PayloadInvalidError, WrongRevision

T = TypeVar("T")

_log = get_logger("jetjobs.nats")

WRITE_TIMEOUT: Final = 5.0
_TELL_OF: Final = 10

EXPECT_NONE: Final = b"NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 0\r\n\r\n"


def write_headers(expected: int | None, ttl: timedelta | None) -> bytes:
    r"""The header block of a compare-and-set write whose entry goes by itself after `ttl`.

    >>> write_headers(7, timedelta(milliseconds=1200))
    b'NATS/1.0\r\nNats-Expected-Last-Subject-Sequence: 7\r\nNats-TTL: 2s\r\n\r\n'
    """
    expecting = b"" if expected is None else b"Nats-Expected-Last-Subject-Sequence: %d\r\n" % expected
    if ttl is None:
        return b"NATS/1.0\r\n%b\r\n" % expecting
    return b"NATS/1.0\r\n%bNats-TTL: %ds\r\n\r\n" % (expecting, lifetime_seconds(ttl))


class Bucket:
    """Entries by subject. Reads of one come from the stream's leader, lists from any replica."""

    def __init__(self, link: Link, bucket: str) -> None:
        self._link = link
        self._bucket = bucket
        self._stream = names.bucket_stream(bucket)
        self._told: set[tuple[str, int]] = set()

    @property
    def stream(self) -> str:
        """Name of the stream under the bucket."""
        return self._stream

    def subject(self, key: str) -> str:
        """The subject of a key."""
        return names.bucket_subject(self._bucket, key)

    async def create(self, subject: str, data: bytes, *, ttl: timedelta | None = None) -> int:
        """Write an entry that must not be there yet; returns its revision. Without `ttl` it stays.

        Where some other client's delete left a marker there is none, and a plain write that expects none would fail.

        Raises:
            WrongRevision: there is one.
        """
        block = EXPECT_NONE if ttl is None else write_headers(0, ttl)
        try:
            return await self._link.writer.send(subject, data, block, timeout=WRITE_TIMEOUT)
        except WrongRevision:
            marker = await self._last(subject)
            if marker is None or marker.data:
                raise
            return await self.update(subject, data, marker.revision, ttl=ttl)

    def update(self, subject: str, data: bytes, revision: int, *, ttl: timedelta | None = None) -> Awaitable[int]:
        """Replace the entry last seen at `revision`; gives the new one. Without `ttl` it stays."""
        # No `async def`: a coroutine around the writer's would cost every run twice its price.
        return self._link.writer.send(subject, data, write_headers(revision, ttl), timeout=WRITE_TIMEOUT)

    async def replace(self, subject: str, data: bytes, revision: int) -> int:
        """Write the entry last seen at `revision` (0: none was there); returns the new one. It stays."""
        return await (self.update(subject, data, revision) if revision else self.create(subject, data))

    async def put(self, subject: str, data: bytes, *, ttl: timedelta | None = None) -> int:
        """Write an entry, whatever is there. Without `ttl` it stays."""
        return await self._link.writer.write(subject, data, write_headers(None, ttl), timeout=WRITE_TIMEOUT)

    async def get(self, subject: str) -> Entry | None:
        """The entry as the leader has it. A marker that some other client left counts as none."""
        entry = await self._last(subject)
        return entry if entry is not None and entry.data else None

    async def _last(self, subject: str) -> Entry | None:
        try:
            answer = await self._link.ask_stream(
                "STREAM.MSG.GET", self._stream, {"last_by_subj": subject}, about=subject
            )
        except NotFound:
            return None
        message: dict[str, Any] = answer["message"]
        data = base64.b64decode(message.get("data") or "")
        return Entry(message["subject"], data, message["seq"], datetime.fromisoformat(message["time"]))

    async def subjects(self, pattern: str) -> list[str]:
        """The subjects under a pattern that have an entry, as the leader knows them."""
        answer = await self._link.ask_stream("STREAM.INFO", self._stream, {"subjects_filter": pattern}, about=pattern)
        return sorted(answer["state"].get("subjects") or {})

    async def pages(self, pattern: str, start: int = 1) -> AsyncGenerator[list[Entry], None]:
        """All entries under a pattern, or those from a revision on, a page at a time."""
        async with aclosing(read_pages(self._link, self._stream, pattern, start)) as pages:
            async for page in pages:
                yield [entry for entry in page if entry.data]

    async def entries(self, pattern: str) -> list[Entry]:
        """All entries under a pattern, each once; for few, because all of them are held."""
        newest: dict[str, Entry] = {}  # one written while the list is read comes twice; the later one counts
        async with aclosing(self.pages(pattern)) as pages:
            async for page in pages:
                newest.update((entry.subject, entry) for entry in page)
        return list(newest.values())

    def newest(self, pattern: str) -> AsyncGenerator[Part, None]:
        """All entries under a pattern from the last written to the first, as they came; markers among them."""
        return read_newest(self._link, self._stream, pattern)

    def read(self, entry: Entry, unpack: Callable[[bytes], T]) -> T | None:
        """What an entry says; `None` where another version or a stranger wrote it so that it can't be read."""
        try:
            return unpack(entry.data)
        except PayloadInvalidError as problem:
            self._tell_unreadable(entry, problem)
            return None

    def _tell_unreadable(self, entry: Entry, problem: PayloadInvalidError) -> None:
        # Once, and of a few: a list that meets ten thousand of them is read again and again.
        told = (entry.subject, entry.revision)
        if len(self._told) < _TELL_OF and told not in self._told:
            self._told.add(told)
            _log.warning("entry unreadable", subject=entry.subject, revision=entry.revision, error=str(problem))

    async def remove(self, subject: str, revision: int | None = None) -> bool:
        """Take an entry out, if it is at that revision when one is given, leaving no marker; says whether it went."""
        wanted: dict[str, Any] = {"filter": subject}
        if revision is not None:
            wanted["seq"] = revision + 1  # purges what is before it, and a newer write is not
        answer = await self._link.ask_stream("STREAM.PURGE", self._stream, wanted, about=subject)
        return bool(answer.get("purged"))
