"""Deliveries and calls: what the broker hands to a host, and what stops it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from jetjobs._core.messages import Message
from jetjobs._core.models import JobAddress


class Delivery(Protocol):
    """One delivery of one trigger message. Everything sent for it reaches only the stream's consumer."""

    @property
    def message(self) -> Message:
        """The message delivered, with its delivery number."""
        ...

    def ack(self) -> None:
        """Retire the message and free its slot. Fire and forget; a lost one is redelivered."""
        ...

    def nak(self, delay: timedelta | None = None) -> None:
        """Give the delivery back. Only before a claim: the broker obeys it for old deliveries too."""
        ...

    def term(self, reason: str) -> None:
        """Remove the message from the stream for good, with a reason in the broker's advisory."""
        ...

    async def renew(self) -> None:
        """Extend the ack wait, and return only when the broker confirmed it.

        Raises:
            AnswerUnknown: no confirmation in time.
            BrokerUnavailable: not connected.
        """
        ...


class Consumption(Protocol):
    """One job's share of the host's continuous pull."""

    @property
    def problem(self) -> str | None:
        """Why the broker, connected as it is, gives nothing; `None` while nothing is known to be wrong."""
        ...

    def allow(self, slots: int) -> None:
        """Take up to `slots` deliveries more. Never more arrive than were allowed."""
        ...

    async def stop(self) -> None:
        """Deliveries stop arriving once this returns. Idempotent."""
        ...


OnDelivery = Callable[[Delivery], None]


@dataclass(frozen=True, slots=True)
class Call:
    """A request to a job's call gateway. `answer` sends an answer, or nothing where nobody waits for one."""

    job: JobAddress
    headers: Mapping[str, str]
    data: bytes
    answer: Callable[[bytes], None]


OnCall = Callable[[Call], None]


class CallService(Protocol):
    """One host's answering of calls."""

    async def stop(self) -> None:
        """No call arrives once this returns; what the broker had sent has arrived. Idempotent."""
        ...
