"""How long a call may take, and what it does while the broker is away: ask again until its time is up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from jetjobs._core.models import RunKey
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, ProjectNotPrepared, TriggerUnconfirmed

T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_NEW_STREAM = 2.0
_ASK = 1.0  # a cluster without a leader doesn't answer, and the next one may be there any moment


Stands = Callable[[], Awaitable[bool]]


class Life:
    """Whether a scope is still of use; runs outlive the client they came from."""

    __slots__ = ("over",)

    def __init__(self) -> None:
        self.over = False


class Deadline:
    """The end of a call, on the monotonic clock.

    `stands` asks whether the project's stream is there although nobody takes what is sent: then it is choosing a
    leader, which is worth the whole time. With the `life` of its scope no call asks again once that is over.
    """

    __slots__ = ("_ends", "life", "seconds", "stands")

    def __init__(self, seconds: float, stands: Stands | None = None, life: Life | None = None) -> None:
        self.seconds = seconds
        self.stands = stands
        self.life = life
        self._ends = time.monotonic() + seconds

    def within(self, seconds: float) -> Deadline:
        """A deadline for a part of the call."""
        return Deadline(min(seconds, self.left), self.stands, self.life)

    def renew(self) -> None:
        """Let the whole time begin again, for everybody who holds this deadline."""
        self._ends = time.monotonic() + self.seconds

    @property
    def left(self) -> float:
        """Seconds left, 0 when the time is up."""
        return max(0.0, self._ends - time.monotonic())

    @property
    def spent(self) -> float:
        """Seconds since it began, in tenths."""
        return round(self.seconds - self.left, 1)

    @property
    def passed(self) -> bool:
        """Whether the time is up, or nobody is there any more to be asked."""
        return time.monotonic() >= self._ends or (self.life is not None and self.life.over)


class Pauses:
    """Growing pauses between tries, never past the deadline."""

    __slots__ = ("_deadline", "_next", "_unprepared", "stands")

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._next = _FIRST_PAUSE
        self._unprepared: Deadline | None = None
        self.stands = False  # nobody took what was sent, and yet the stream is there

    async def another_try(self, after: Exception | None = None) -> bool:
        """Wait, and say whether another try makes sense, after that error if there was one.

        A project without stream is waited for only as long as a new stream takes to come up.
        """
        if isinstance(after, ProjectNotPrepared) and not await self._worth_waiting():
            return False
        if self._deadline.passed:
            return False
        await asyncio.sleep(min(self._next, self._deadline.left))
        self._next = min(self._next * 2, _LONGEST_PAUSE)
        return not self._deadline.passed

    async def _worth_waiting(self) -> bool:
        if self._unprepared is None:
            self._unprepared = Deadline(_NEW_STREAM)
        if not self._unprepared.passed:
            return True
        ask = self._deadline.stands
        if ask is None:
            return False
        try:
            async with asyncio.timeout(min(_ASK, self._deadline.left)):
                self.stands = await ask()
        except TimeoutError:
            self.stands = True
        return self.stands


class Unconfirmed(Pauses):
    """The tries of one write so far, none of them confirmed; `what` says what is being done.

    `sent` tells whether one of them may have gone through.
    """

    __slots__ = ("_what", "sent")

    def __init__(self, deadline: Deadline, what: str) -> None:
        super().__init__(deadline)
        self._what = what
        self.sent = False

    async def pause(self, error: AnswerUnknown | BrokerUnavailable) -> None:
        """Wait for the next try, after this error.

        Raises:
            AnswerUnknown: the time is up, and a try may have gone through.
            BrokerUnavailable: the time is up, and nothing was sent.
        """
        self.sent = self.sent or isinstance(error, AnswerUnknown)
        if not await self.another_try():
            raise self._failure(error) from error

    async def look(self, found: Awaitable[T]) -> T:
        """What is read between the tries.

        Raises:
            AnswerUnknown, BrokerUnavailable: as `pause`, when the read got no answer in time.
        """
        try:
            return await found
        except BrokerUnavailable as error:
            if not self.sent:
                raise
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> AnswerUnknown | BrokerUnavailable:
        kind = AnswerUnknown if self.sent else BrokerUnavailable
        return kind(f"{self._what} not confirmed within {self._deadline.spent:g} s: {error}")


async def read(ask: Callable[[], Awaitable[T]], deadline: Deadline, what: str) -> T:
    """The answer to a read, which may be asked as often as it takes.

    Raises:
        BrokerUnavailable: no answer within the deadline.
    """
    pauses = Pauses(deadline)
    while True:
        try:
            async with asyncio.timeout(deadline.left):
                return await ask()
        except TimeoutError as error:
            cause: Exception = error
        except (BrokerUnavailable, AnswerUnknown) as error:
            cause = error
        if not await pauses.another_try(cause):
            if isinstance(cause, ProjectNotPrepared) and not pauses.stands:
                raise ProjectNotPrepared(f"{what}: {cause}") from cause
            why = f": {cause}" if str(cause) else ""
            raise BrokerUnavailable(f"{what}: no answer within {deadline.spent:g} s{why}") from cause


def unanswered(
    run: RunKey, deadline: Deadline, cause: Exception, *, sent: bool, unprepared: bool
) -> BrokerUnavailable | TriggerUnconfirmed:
    """What a trigger raises that was not confirmed in time; whether it was `sent` is what its caller must know."""
    if sent:
        return TriggerUnconfirmed(
            f"run {run} was sent and not confirmed within {deadline.spent:g} s: it may be stored; "
            "look with client.run(...), or repeat the call if it had a key",
            run.run_id,
        )
    if unprepared:
        return ProjectNotPrepared(f"run {run} was not stored: {cause}")
    return BrokerUnavailable(f"run {run} was not stored within {deadline.spent:g} s: {cause}")
