"""Messages stored all or none, as one of the server's atomic batches.

The server opens a batch on disk and commits it with one answer, which takes it 3 to 30 ms; a message more costs it
about half of one stored alone. What batch a message came in stays in its headers.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Final

from nats.errors import BadHeaderError

from jetjobs._core.headers import EXPECTED_LAST
from jetjobs._core.messages import Outgoing
from jetjobs._nats.faults import from_api_error, translate
from jetjobs._nats.link import Link
from jetjobs._nats.tuned import header_block
from jetjobs.errors import AnswerUnknown, BrokerUnavailable

_EXPECT_NONE: Final = {EXPECTED_LAST: "0"}


async def store_together(link: Link, messages: Sequence[Outgoing], *, timeout: float) -> None:
    """Store up to 1,000 messages, each the first on a subject of its own: all of them or none.

    Raises:
        WrongRevision: a subject has a message already.
        BrokerError: refused for another reason, a stream without atomic batches among them.
        AnswerUnknown: sent; all of them are stored, or none.
    """
    if not messages:
        return
    blocks = FirstBlocks({"Nats-Batch-Id": secrets.token_hex(8)})

    def numbered(message: Outgoing, number: int, commit: bytes = b"") -> bytes:
        start = blocks.of(message).removesuffix(b"\r\n")
        return b"%bNats-Batch-Sequence: %d\r\n%b\r\n" % (start, number, commit)

    *first, last = messages
    for number, message in enumerate(first, 1):
        if not link.connection.post(message.subject, message.data, "", numbered(message, number)):
            raise BrokerUnavailable(
                f"the connection was lost before {len(messages)} messages were sent; none is stored"
            )
    block = numbered(last, len(messages), b"Nats-Batch-Commit: 1\r\n")
    data = await link.writer.request(last.subject, last.data, headers=block, timeout=timeout)
    try:
        answer = json.loads(data)
        error = answer.get("error")
    except (ValueError, AttributeError) as garbled:
        raise AnswerUnknown(f"the answer to {len(messages)} writes can't be read: {garbled}") from garbled
    if error is not None:
        raise from_api_error(error, f"writing {len(messages)} messages, the last to {last.subject!r}")


class FirstBlocks:
    """Header blocks of messages that must be the first on their subjects.

    Most triggers of a client share one mapping, which nobody changes: its bytes are made once.
    """

    def __init__(self, more: Mapping[str, str] | None = None) -> None:
        self._more = {**_EXPECT_NONE, **(more or {})}
        self._of: Mapping[str, str] | None = None
        self._block = b""

    def of(self, message: Outgoing) -> bytes:
        """The block of a message.

        Raises:
            BrokerError: a header's name can't be sent.
        """
        if message.headers is not self._of:
            try:
                self._block = header_block({**message.headers, **self._more})
            except BadHeaderError as bad:
                raise translate(bad, f"sending to {message.subject!r}") from None
            self._of = message.headers
        return self._block
