"""One job's share of the host's continuous pull: its credit, what is requested, and why nothing comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from jetjobs._ports import OnDelivery

AFTER_REFUSAL: Final = 0.5  # seconds until the next pull
_REFUSAL_COUNTS: Final = 10 * AFTER_REFUSAL  # one that lasts is met again sooner


class Puller(Protocol):
    """What a share needs of the pull it is part of."""

    @property
    def now(self) -> float:
        """The loop's time."""
        ...

    def consider(self, share: Share) -> None:
        """Ask for a share's credit when it is worth a request."""
        ...

    async def stop(self, share: Share) -> None:
        """End one share."""
        ...


class Share:
    """One job's consumption; implements `_ports.Consumption`."""

    def __init__(self, pull: Puller, consumer: str, on_delivery: OnDelivery) -> None:
        self._pull = pull
        self.consumer = consumer
        self.on_delivery = on_delivery
        self.recreate: Callable[[], Awaitable[None]] | None = None
        self.number = ""
        self.next_subject = ""
        self.credit = 0
        self.requested = 0
        self.largest = 1
        self.pulls: dict[str, int] = {}
        self.heard_at = 0.0
        self.suspect = ""  # why the consumer may have gone
        self.deleted_at = float("-inf")
        self.trouble = ""  # why it couldn't be brought back
        self.refusal: tuple[str, float] = ("", float("-inf"))  # the last pull refused: why, and when
        self.stopped = False
        self.flushing: asyncio.Handle | None = None

    @property
    def problem(self) -> str | None:
        """Why nothing is given: the consumer can't be brought back, or refuses pulls."""
        if self.trouble:
            return self.trouble
        why, at = self.refusal
        return why if self._pull.now - at < _REFUSAL_COUNTS else None

    def allow(self, slots: int) -> None:
        """Take up to `slots` deliveries more."""
        self.credit += slots
        standing = self.credit + self.requested
        self.largest = max(self.largest, standing)
        self._pull.consider(self)

    async def stop(self) -> None:
        """Deliveries stop arriving; what still comes goes back to the broker."""
        await self._pull.stop(self)

    def take(self) -> bool:
        """Use up one slot for a delivery; False if none was allowed."""
        if self.requested > 0:
            self.requested -= 1
            if self.requested == 0:
                self.pulls.clear()  # all served
            return True
        if self.credit > 0:
            self.credit -= 1
            return True
        return False

    def end_pulls(self) -> None:
        """Nothing asked for will be served any more."""
        self.credit += self.requested
        self.requested = 0
        self.pulls.clear()
