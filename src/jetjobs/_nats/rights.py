"""Find out at once whether this user may take a consumer's deliveries and retire them.

Pulls and acks are published and nobody waits for an answer, so a refusal of either reaches nobody: the host would look
healthy and be deaf, or run its first runs and never free their slots.
"""

from __future__ import annotations

from typing import Final

from jetjobs._nats.delivery import ACK_PREFIX
from jetjobs._nats.faults import permission_missing
from jetjobs._nats.link import Link
from jetjobs.errors import BrokerError, PermissionMissing

_WITHIN: Final = 2.0

# Neither does anything: a pull that can't be read is answered with an error, and no message has the number 0.
_NO_PULL: Final = b"{"
_NO_DELIVERY: Final = ".0.0.0.0.0"
_PROGRESS: Final = b"+WPI"


def next_subject(stream: str, consumer: str) -> str:
    """Where a consumer is asked for deliveries."""
    return f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"


async def prove_deliveries(link: Link, stream: str, consumer: str) -> None:
    """Return unless the server refuses; a broker that doesn't answer refuses nothing.

    Raises:
        PermissionMissing: names the subject of the pull or of the ack.
    """
    connection = link.connection
    ack = f"{ACK_PREFIX}{stream}.{consumer}{_NO_DELIVERY}"
    refused: list[PermissionMissing] = []

    def hear(kind: str, subject: str) -> None:
        if subject == ack.lower():
            refused.append(permission_missing(kind, ack))

    forget = connection.on_refusal(hear)
    try:
        # The server takes both in turn: when the second is answered, the first has been judged.
        if connection.post(ack, _PROGRESS):
            await link.writer.ask(next_subject(stream, consumer), _NO_PULL, timeout=_WITHIN)
    except PermissionMissing:
        raise
    except BrokerError:
        return
    finally:
        forget()
    if refused:
        raise refused[0]
