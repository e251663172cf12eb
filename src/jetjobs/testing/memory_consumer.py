"""A job's durable consumer in memory: who gets which message, how often, and what their answers do.

As the server does: a message waiting for its redelivery keeps its slot of `max_ack_pending`; an ack from an old
delivery removes the message under the new one; whatever removes a message frees its slot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from jetjobs._clock import Timer
from jetjobs._core.messages import Message
from jetjobs.testing.memory_stream import MemoryStream, delivered, subject_matches


class Taker(Protocol):
    """Somebody who pulls: one consumption of one connection."""

    @property
    def wants(self) -> bool:
        """Whether one more delivery may be handed over now."""
        ...

    def take(self, message: Message) -> None:
        """Hand one delivery over."""
        ...


class MemoryConsumer:
    """Messages under `filters`, at most `max_ack_pending` of them out at a time; none while `paused`."""

    def __init__(
        self,
        stream: MemoryStream,
        *,
        filters: tuple[str, ...],
        max_ack_pending: int,
        ack_wait: float,
        call_later: Callable[[float, Callable[[], object]], Timer],
    ) -> None:
        self.max_ack_pending = max_ack_pending
        self.paused = False
        self._stream = stream
        self._filters = filters
        self._ack_wait = ack_wait
        self._call_later = call_later
        self._takers: deque[Taker] = deque()
        self._fresh: deque[int] = deque()
        self._again: deque[int] = deque()
        self._pending: dict[int, Timer] = {}
        self._delivered: dict[int, int] = {}
        self.restart()
        stream.on_stored.append(self._stored)
        stream.on_removed.append(self._removed)

    @property
    def ack_pending(self) -> int:
        """How many slots are taken, redeliveries still to come included."""
        return len(self._pending)

    def will_deliver(self, sequence: int) -> bool:
        """Whether the message has its delivery before it, or a delivery that isn't acked."""
        return sequence in self._pending or sequence in self._fresh

    def restart(self) -> None:
        """Forget every delivery made, as a consumer that was deleted and created again does."""
        for timer in self._pending.values():
            timer.cancel()
        self._pending.clear()
        self._delivered.clear()
        self._again.clear()
        self._fresh = deque(message.sequence for message in self._stream.matching(*self._filters))
        self.serve()

    def join(self, taker: Taker) -> None:
        """Let somebody pull."""
        self._takers.append(taker)
        self.serve()

    def part(self, taker: Taker) -> None:
        """End somebody's pulling."""
        if taker in self._takers:
            self._takers.remove(taker)

    def serve(self) -> None:
        """Hand out what can be handed out now, redeliveries first, to the takers in turn."""
        while not self.paused and (taker := self._next_taker()) is not None:
            sequence = self._next_sequence()
            if sequence is None:
                return
            message = self._stream.get(sequence)
            if message is None:
                continue
            self._delivered[sequence] = count = self._delivered.get(sequence, 0) + 1
            self._pending[sequence] = self._redelivery_in(sequence, self._ack_wait)
            self._takers.remove(taker)
            self._takers.append(taker)
            taker.take(delivered(message, count))

    def ack(self, sequence: int) -> None:
        """Retire the message, whichever delivery of it this comes from."""
        self._stream.remove(sequence)

    def nak(self, sequence: int, delay: float = 0.0) -> None:
        """Have the message delivered again after `delay`; its slot stays taken."""
        if sequence not in self._pending:
            return
        self._pending[sequence].cancel()
        if sequence in self._again:
            self._again.remove(sequence)
        self._pending[sequence] = self._redelivery_in(sequence, delay)
        if delay <= 0:
            self._redeliver(sequence)

    def renew(self, sequence: int) -> None:
        """Begin the ack wait anew. Answered, without effect, when the message is gone or waits for redelivery."""
        if sequence in self._pending and sequence not in self._again:
            self._pending[sequence].cancel()
            self._pending[sequence] = self._redelivery_in(sequence, self._ack_wait)

    def _redelivery_in(self, sequence: int, seconds: float) -> Timer:
        return self._call_later(seconds, lambda: self._redeliver(sequence))

    def _redeliver(self, sequence: int) -> None:
        if sequence in self._pending and sequence not in self._again:
            self._pending[sequence].cancel()
            self._again.append(sequence)
            self.serve()

    def _next_taker(self) -> Taker | None:
        return next((taker for taker in self._takers if taker.wants), None)

    def _next_sequence(self) -> int | None:
        if self._again:
            return self._again.popleft()
        if self._fresh and len(self._pending) < self.max_ack_pending:
            return self._fresh.popleft()
        return None

    def _stored(self, message: Message) -> None:
        if any(subject_matches(pattern, message.subject) for pattern in self._filters):
            self._fresh.append(message.sequence)
            self.serve()

    def _removed(self, sequence: int) -> None:
        timer = self._pending.pop(sequence, None)
        self._delivered.pop(sequence, None)
        if timer is not None:
            timer.cancel()
            if sequence in self._again:
                self._again.remove(sequence)
            self.serve()
