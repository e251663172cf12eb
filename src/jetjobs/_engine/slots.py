"""How many deliveries a host may have in hand, over all its jobs or over all its plain functions, and who is next.

A job's own limit is kept by the broker. These limits are the host's. A delivery that finds no slot waits in line
for it, so that a job with a long queue can't keep the others from their turn; one that has waited too long goes back
to the broker unclaimed, for a host that has room.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from jetjobs._log import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from jetjobs._clock import Clock, Timer
    from jetjobs._ports import Delivery, OnDelivery

log = get_logger("jetjobs.engine")

SAID_EVERY = 10.0


class Slots:
    """A counter with a limit and a line of those who wait for a free one; `None` is no limit."""

    __slots__ = ("_line", "_said_at", "limit", "taken")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.taken = 0
        self._line: deque[Callable[[], None]] = deque()
        self._said_at: float | None = None

    def take(self) -> bool:
        """Take a slot; False when none is free."""
        if self.limit is not None and self.taken >= self.limit:
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        """Free a slot, or hand it to whoever has waited longest."""
        if self._line:
            self._line.popleft()()
        else:
            self.taken -= 1

    def resize(self, limit: int) -> None:
        """Have so many from now on; what is taken beyond that stays so until it is given back."""
        self.limit = limit
        while self._line and self.take():
            self._line.popleft()()

    def wait(self, seated: Callable[[], None]) -> None:
        """Get in line; `seated` is called with a slot taken for it."""
        self._line.append(seated)

    def leave(self, seated: Callable[[], None]) -> None:
        """Get out of the line."""
        self._line.remove(seated)

    def is_worth_a_word(self, now: float) -> bool:
        """Whether it is time to say again that there is no room."""
        if self._said_at is not None and now - self._said_at < SAID_EVERY:
            return False
        self._said_at = now
        return True


class _Place:
    """A delivery's place in line; `have` counts the slots it has already."""

    __slots__ = ("delivery", "have", "seated", "timer")

    seated: Callable[[], None]
    timer: Timer

    def __init__(self, delivery: Delivery, have: int) -> None:
        self.delivery = delivery
        self.have = have


class Admission:
    """Gives each delivery of one job the slots it needs, always taken in the same order.

    `admit` is called with them taken: at once, or when it is the delivery's turn. After `patience` seconds in line
    `refuse` is called instead.
    """

    __slots__ = ("_admit", "_clock", "_job", "_needed", "_patience", "_places", "_refuse")

    def __init__(
        self,
        needed: tuple[Slots, ...],
        clock: Clock,
        *,
        admit: OnDelivery,
        refuse: OnDelivery,
        patience: float,
        job: str,
    ) -> None:
        self._needed = needed
        self._clock = clock
        self._admit = admit
        self._refuse = refuse
        self._patience = patience
        self._job = job
        self._places: set[_Place] = set()

    def ask(self, delivery: Delivery) -> None:
        """Admit a delivery, now or later, or refuse it later."""
        have = self._take_from(0)
        if have == len(self._needed):
            self._admit(delivery)
            return
        place = _Place(delivery, have)
        place.seated = partial(self._seated, place)
        place.timer = self._clock.call_later(self._patience, partial(self._give_up, place))
        self._places.add(place)
        self._wait(place)

    @property
    def waiting(self) -> int:
        """How many stand in line."""
        return len(self._places)

    def give_back(self) -> None:
        """Free the slots of a delivery that was admitted."""
        for slots in self._needed:
            slots.give_back()

    def close(self) -> None:
        """Refuse all that wait."""
        for place in list(self._places):
            self._give_up(place)

    def _take_from(self, have: int) -> int:
        while have < len(self._needed) and self._needed[have].take():
            have += 1
        return have

    def _wait(self, place: _Place) -> None:
        slots = self._needed[place.have]
        slots.wait(place.seated)
        if slots.is_worth_a_word(self._clock.monotonic()):
            log.warning("host_is_full", job=self._job, limit=slots.limit)

    def _seated(self, place: _Place) -> None:
        place.have = self._take_from(place.have + 1)
        if place.have < len(self._needed):
            self._wait(place)
            return
        place.timer.cancel()
        self._places.discard(place)
        self._admit(place.delivery)

    def _give_up(self, place: _Place) -> None:
        place.timer.cancel()
        self._places.discard(place)
        self._needed[place.have].leave(place.seated)
        for slots in self._needed[: place.have]:
            slots.give_back()
        self._refuse(place.delivery)
