"""How many deliveries a host may have in hand, over all its jobs or over all its plain functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Slots:
    """A counter with a limit; `None` is no limit.

    A job's own limit is kept by the broker. This one is the host's: a delivery that finds no slot goes back
    unclaimed, and its job asks for the next one only when a slot is free again.
    """

    __slots__ = ("_waiting", "limit", "taken")

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.taken = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def full(self) -> bool:
        """True when the next `take` would fail."""
        return self.limit is not None and self.taken >= self.limit

    def take(self) -> bool:
        """Take a slot; False when none is free."""
        if self.full:
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        """Free a slot and call back whoever waited, all of them: most will find it taken and wait again."""
        self.taken -= 1
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for callback in waiting:
                callback()

    def when_free(self, callback: Callable[[], None]) -> None:
        """Call back once, when a slot is given back."""
        self._waiting.append(callback)
