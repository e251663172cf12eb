"""A stream read from its end: what was written last comes first, in stretches that grow.

The server reads forward only. So a stretch of sequences is read forward, then the one before it. What is written again
meanwhile leaves a place that is still to be read for one behind the end, so the end is looked at after each stretch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import Final, NamedTuple

from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.pages import Pages, open_pages, sequence_of

# Sequences, of which about half still have a message: a run's record is written twice.
_FIRST: Final = 512
_WIDEST: Final = 8192
_FEW: Final = 256


class Part(NamedTuple):
    """Some messages. What is still to come, if it isn't newer than the reading, was first written by `until`."""

    messages: list[Inbound]
    until: datetime


async def read_newest(link: Link, stream: str, pattern: str) -> AsyncGenerator[Part, None]:
    """The newest messages under a pattern, from the last stretch of the stream to the first.

    Raises:
        BrokerUnavailable: nothing came for long.
        ProjectNotPrepared: nobody answers, and nobody did before.
        PermissionMissing: the user may not read this stream.
    """
    async with open_pages(link, stream, pattern) as pages:
        newest = await pages.newest()
        if newest is None:
            return
        until, highest = _stored_at(newest), sequence_of(newest)
        behind, width = highest + 1, _FIRST
        while highest > 0:
            lowest = max(1, highest - width + 1)
            first: Inbound | None = None
            found = 0
            async with aclosing(pages.forward(lowest, highest)) as stretch:
                async for messages in stretch:
                    first = first or next(iter(messages), None)
                    found += len(messages)
                    yield Part(messages, until)
            async with aclosing(_behind(pages, behind)) as moved:
                async for messages in moved:
                    behind = sequence_of(messages[-1]) + 1
                    yield Part(messages, until)
            until = until if first is None else _stored_at(first)
            yield Part([], until)
            highest, width = lowest - 1, _next_width(width, found)


async def _behind(pages: Pages, start: int) -> AsyncGenerator[list[Inbound], None]:
    async with aclosing(pages.forward(start)) as found:
        async for messages in found:
            if messages:
                yield messages


def _next_width(width: int, found: int) -> int:
    """Wider where little was found, so that a far end is reached in few steps."""
    if found < _FEW:
        return width * 4
    return max(width, min(width * 2, _WIDEST))


def _stored_at(message: Inbound) -> datetime:
    return datetime.fromisoformat(message.headers["Nats-Time-Stamp"])
