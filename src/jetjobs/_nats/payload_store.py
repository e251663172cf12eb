"""Large bodies in the payload stream, in chunks under `<body's subject>.<n>`.

Chunks are written with "nothing there yet" and never change, so a body that was put half can be put again, and any
replica that has a chunk has the right one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import aclosing
from datetime import datetime
from typing import Final, Literal, TypeVar

from jetjobs._core import payload_subjects
from jetjobs._core.bodies import MAX_PAYLOAD, ClaimCheck
from jetjobs._nats.bucket import EXPECT_NONE
from jetjobs._nats.contents import holding, subject_pages
from jetjobs._nats.faults import NotFound
from jetjobs._nats.link import Link
from jetjobs._ports import Holding
from jetjobs.errors import JetStreamDisabled, PayloadInvalidError, PayloadTooLargeError, WrongRevision

T = TypeVar("T")


# Within the server's max_payload, less what subject and headers take.
_CHUNK: Final = 512 * 1024
_HEADROOM: Final = 4 * 1024

# Chunks under way at once: enough to keep the wire busy, and 4 MiB of memory at most.
_WINDOW: Final = 8
_TIMEOUT: Final = 10.0


class NatsPayloadStore:
    """Bodies too large for a message, up to `max_payload` bytes each."""

    def __init__(self, link: Link, project: str, *, max_payload: int = MAX_PAYLOAD) -> None:
        self._link = link
        self._project = project
        self._stream = payload_subjects.payload_stream(project)
        self._max_payload = max_payload

    async def put(self, run_id: str, direction: Literal["in", "out"], name: str, data: bytes) -> ClaimCheck:
        """Store bytes in chunks; the same name and bytes again is harmless, and completes what was put half."""
        if len(data) > self._max_payload:
            raise PayloadTooLargeError(
                f"{len(data)} bytes, and at most {self._max_payload} may be stored (max_payload)"
            )
        size = min(_CHUNK, max(1024, self._link.connection.max_payload - _HEADROOM))
        # Who may send less cuts smaller: mixed with the chunks of another's put they would be neither's.
        place = name if size == _CHUNK else f"{name}-{size}"
        subject = payload_subjects.payload_subject(self._project, run_id, direction, place)
        view = memoryview(data)
        starts = range(0, len(data) or 1, size)
        for first in range(0, len(starts), _WINDOW):
            window = enumerate(starts[first : first + _WINDOW], first)
            await _all(self._write(f"{subject}.{number}", bytes(view[at : at + size])) for number, at in window)
        return ClaimCheck(subject, len(starts), len(data), hashlib.sha256(data).hexdigest())

    async def get(self, claim: ClaimCheck) -> bytes:
        """The bytes, checked against their digest."""
        if not payload_subjects.is_payload_subject(self._project, claim.subject):
            # A record's claim is data from outside too: it may lead nowhere but to this project's bodies.
            raise PayloadInvalidError(f"{claim.subject[:200]!a} is no subject of this project's payloads")
        pieces: list[bytes | None] = []
        for first in range(0, claim.chunks, _WINDOW):
            numbers = range(first, min(first + _WINDOW, claim.chunks))
            pieces += await _all(self._read(f"{claim.subject}.{number}") for number in numbers)
            if None in pieces:
                break
        data = b"".join(piece for piece in pieces if piece is not None)
        if None in pieces or len(data) != claim.size or hashlib.sha256(data).hexdigest() != claim.sha256:
            raise PayloadInvalidError(f"what was stored at {claim.subject} is gone, incomplete or changed")
        return data

    async def purge(self, run_id: str) -> None:
        """Remove everything stored for a run."""
        pattern = payload_subjects.payload_pattern(self._project, run_id)
        await self._link.ask_stream("STREAM.PURGE", self._stream, {"filter": pattern}, about=pattern, timeout=_TIMEOUT)

    async def holding(self) -> Holding:
        """How much there is, in one cheap call; an entry is a chunk."""
        return await holding(self._link, self._stream)

    async def run_ids(self) -> AsyncIterator[str]:
        """The ids of all runs for which something is stored, in no order, perhaps twice; no bytes are read."""
        async with aclosing(
            subject_pages(self._link, self._stream, payload_subjects.all_payloads(self._project))
        ) as pages:
            async for page in pages:
                for run_id in {payload_subjects.payload_run_id(subject) for subject in page}:
                    yield run_id

    async def newest(self, run_id: str) -> datetime | None:
        """When the last chunk of a run was stored; `None` when there is none."""
        pattern = payload_subjects.payload_pattern(self._project, run_id)
        wanted = {"last_by_subj": pattern}
        try:
            found = await self._link.ask_stream("STREAM.MSG.GET", self._stream, wanted, about=pattern, timeout=_TIMEOUT)
        except NotFound:
            return None
        return datetime.fromisoformat(found["message"]["time"])

    async def _write(self, subject: str, piece: bytes) -> None:
        try:
            await self._link.writer.write(subject, piece, EXPECT_NONE, timeout=_TIMEOUT)
        except WrongRevision:
            return  # an earlier put of the same body got this far

    async def _read(self, subject: str) -> bytes | None:
        """A chunk from any replica; what that one doesn't have yet, from the leader."""
        try:
            answer = await self._link.writer.ask(f"$JS.API.DIRECT.GET.{self._stream}.{subject}", timeout=_TIMEOUT)
            if not (answer.headers and "Status" in answer.headers):
                return answer.data
        except JetStreamDisabled:
            pass  # nobody answers direct reads of this stream; whether there is JetStream, the leader tells
        try:
            found = await self._link.api(f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": subject}, timeout=_TIMEOUT)
        except NotFound:
            return None
        return base64.b64decode(found["message"].get("data") or "")


async def _all(calls: Iterable[Awaitable[T]]) -> list[T]:
    """The results of calls made together; the first error once all have ended, so that none is left running."""
    results: list[T] = []
    for result in await asyncio.gather(*calls, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results
