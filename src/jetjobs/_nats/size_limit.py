"""How large a message may be: what the server says, or less when it hangs up on one all the same.

The limit of an account or of a user isn't in what a server says of itself; it ends the connection of whoever exceeds
it. To whoever waited for an answer that looks like an outage: sent again, the same message would end every connection.
"""

from __future__ import annotations

import sys

from nats.aio.client import Client

from jetjobs._log import get_logger
from jetjobs._nats.dial import SMALLEST_MAX_PAYLOAD
from jetjobs._nats.tuned import Headers, message_size
from jetjobs.errors import PayloadTooLargeError

_log = get_logger("jetjobs.nats")


class SizeLimit:
    """What one connection's messages may take."""

    __slots__ = ("_client", "_largest", "learned")

    def __init__(self, client: Client) -> None:
        self._client = client
        self._largest = 0
        self.learned = sys.maxsize

    @property
    def most(self) -> int:
        """Bytes of headers and body a message may have."""
        return min(self._client.max_payload, self.learned)

    def sent(self, size: int) -> None:
        """Note a message's size."""
        self._largest = max(self._largest, size)

    def connected(self) -> None:
        """Begin anew: no message was sent over this connection yet."""
        self._largest = 0

    def hung_up(self) -> None:
        """Learn from a connection that the server ended because of a message's size.

        The largest one sent was too large. From here on messages take what jetjobs needs of any server, because each
        step between would cost a connection more; if that was too much, half of it.
        """
        largest = self._largest
        if largest:
            self.learned = SMALLEST_MAX_PAYLOAD if largest > SMALLEST_MAX_PAYLOAD else largest // 2
            _log.error("nats message too large", bytes=largest, from_now_on_at_most=self.learned)

    def refusal(self, subject: str, data: bytes, headers: Headers | None) -> PayloadTooLargeError:
        """The error of a message that takes more."""
        why = "its max_payload" if self.learned > self._client.max_payload else "it hung up on a larger one"
        return PayloadTooLargeError(
            f"{message_size(data, headers)} bytes for {subject!r} with headers, and the server takes at most "
            f"{self.most} ({why})"
        )
