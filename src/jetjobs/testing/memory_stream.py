"""A work-queue stream in memory: sequences, compare-and-set, last by subject, schedules.

It does what nats-server was seen to do, as far as jetjobs relies on it; the conformance suite holds the two together.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from jetjobs._clock import Timer
from jetjobs._core.messages import Message, Outgoing
from jetjobs.errors import BrokerError, WrongRevision
from jetjobs.testing.memory_rhythm import first_due, next_due

# The server's timer has a floor: what is due sooner, or was due long ago, fires after this many seconds.
_SCHEDULE_FLOOR = 0.25

_STRIPPED = ("Nats-Schedule", "Nats-Expected-", "Nats-Msg-Id", "Nats-TTL", "Nats-Rollup")


def subject_matches(pattern: str, subject: str) -> bool:
    """Whether a subject falls under a pattern with `*` for one token and `>` for the rest.

    >>> subject_matches("a.*.c", "a.b.c"), subject_matches("a.>", "a"), subject_matches("a.>", "a.b.c")
    (True, False, True)
    """
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
    elif len(given) != len(wanted):
        return False
    return all(want in {"*", have} for want, have in zip(wanted, given, strict=False))


def _has_wildcard(subject: str) -> bool:
    return any(token in {"*", ">"} for token in subject.split("."))


class MemoryStream:
    """The messages of one jobs stream. `on_stored` and `on_removed` tell the consumers."""

    def __init__(
        self,
        *,
        subjects: tuple[str, ...],
        now: Callable[[], datetime],
        call_later: Callable[[float, Callable[[], object]], Timer],
    ) -> None:
        self.subjects = subjects
        self.last_sequence = 0
        self.on_stored: list[Callable[[Message], None]] = []
        self.on_removed: list[Callable[[int], None]] = []
        self._now = now
        self._call_later = call_later
        self._messages: dict[int, Message] = {}
        self._by_subject: dict[str, list[int]] = {}
        self._schedules: dict[int, Timer] = {}

    def __len__(self) -> int:
        return len(self._messages)

    def get(self, sequence: int) -> Message | None:
        """The message with this sequence, while it is stored."""
        return self._messages.get(sequence)

    def matching(self, *patterns: str) -> Iterator[Message]:
        """The stored messages under any of these subjects, oldest first."""
        found = (
            seqs for subject, seqs in self._by_subject.items() if any(subject_matches(p, subject) for p in patterns)
        )
        return (self._messages[sequence] for sequence in sorted(sequence for seqs in found for sequence in seqs))

    def last(self, subject: str) -> Message | None:
        """The newest message under a subject, wildcards allowed."""
        if _has_wildcard(subject):
            return max(self.matching(subject), key=lambda message: message.sequence, default=None)
        sequences = self._by_subject.get(subject)
        return self._messages[sequences[-1]] if sequences else None

    def takes(self, subject: str) -> bool:
        """Whether this stream stores what is published on a subject."""
        return any(subject_matches(pattern, subject) for pattern in self.subjects)

    def store(self, message: Outgoing, *, expected: int | None = None, expected_on: str | None = None) -> int:
        """Store a message if the expected sequence is the last one on its subject, or on `expected_on`."""
        if expected is not None:
            newest = self.last(expected_on if expected_on is not None else message.subject)
            actual = newest.sequence if newest is not None else 0
            if actual != expected:
                raise WrongRevision(f"wrong last sequence: {actual}", actual)
        due = self._due(message)
        if due is not None:
            self.purge(message.subject, up_to=self.last_sequence)
        stored = self._append(message)
        if due is not None:
            self._arm(stored, due)
        return stored.sequence

    def store_together(self, messages: Sequence[Outgoing]) -> None:
        """Store them if none of their subjects has a message, or is that of two of them."""
        if len({message.subject for message in messages}) < len(messages):
            raise WrongRevision("wrong last sequence")
        for message in messages:
            if (newest := self.last(message.subject)) is not None:
                raise WrongRevision(f"wrong last sequence: {newest.sequence}", newest.sequence)
        for message in messages:
            self.store(message)

    def remove(self, sequence: int) -> bool:
        """Take one message out, as an ack or a term does; says whether it was there."""
        message = self._messages.pop(sequence, None)
        if message is None:
            return False
        sequences = self._by_subject[message.subject]
        sequences.remove(sequence)
        if not sequences:
            del self._by_subject[message.subject]
        timer = self._schedules.pop(sequence, None)
        if timer is not None:
            timer.cancel()
        for tell in self.on_removed:
            tell(sequence)
        return True

    def purge(self, subject: str, *, up_to: int) -> int:
        """Take out a subject's messages up to a sequence; returns how many."""
        if _has_wildcard(subject):
            doomed = [message.sequence for message in self.matching(subject) if message.sequence <= up_to]
        else:
            sequences = self._by_subject.get(subject, [])
            doomed = sequences[: bisect_right(sequences, up_to)]
        return sum(self.remove(sequence) for sequence in doomed)

    def _append(self, message: Outgoing) -> Message:
        self.last_sequence += 1
        stored = Message(message.subject, dict(message.headers), message.data, self.last_sequence, self._now())
        self._messages[stored.sequence] = stored
        self._by_subject.setdefault(stored.subject, []).append(stored.sequence)
        for tell in self.on_stored:
            tell(stored)
        return stored

    def _due(self, message: Outgoing) -> datetime | None:
        line = message.headers.get("Nats-Schedule")
        if not line:
            return None
        target = message.headers.get("Nats-Schedule-Target", "")
        if not target or target == message.subject or _has_wildcard(target) or not self.takes(target):
            raise BrokerError(f"message schedules target is invalid: {target!r} (10190)")
        return first_due(message.headers, self._now())

    def _arm(self, message: Message, due: datetime) -> None:
        seconds = max((due - self._now()).total_seconds(), _SCHEDULE_FLOOR)
        self._schedules[message.sequence] = self._call_later(seconds, lambda: self._fire(message, due))

    def _fire(self, schedule: Message, due: datetime) -> None:
        if schedule.sequence not in self._messages:
            return
        if self._now() < due:  # the broker's clock was set back meanwhile
            self._arm(schedule, due)
            return
        target = schedule.headers["Nats-Schedule-Target"]
        upcoming = next_due(schedule.headers, due, self._now())
        if upcoming is None:
            self.remove(schedule.sequence)
        else:
            self._arm(schedule, upcoming)
        self._append(Outgoing(target, fired_headers(schedule, upcoming), schedule.data))


def fired_headers(schedule: Message, upcoming: datetime | None) -> Mapping[str, str]:
    """The headers of the message that a schedule becomes; `upcoming` is when it fires again, if it does."""
    kept = {name: value for name, value in schedule.headers.items() if not name.startswith(_STRIPPED)}
    then = "purge" if upcoming is None else upcoming.isoformat(timespec="seconds")
    return kept | {"Nats-Scheduler": schedule.subject, "Nats-Schedule-Next": then}


def delivered(message: Message, num_delivered: int) -> Message:
    """The message as a delivery carries it."""
    return replace(message, num_delivered=num_delivered)
