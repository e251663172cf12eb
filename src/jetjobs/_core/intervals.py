"""When a schedule fires: what a timetable must answer, and the one of `Every`, which only calculates.

A window of days at one per second is a handful of numbers here, never a loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol, overload

_HALF_A_SECOND = timedelta(milliseconds=500)
_LAST_YEAR = 9_990


class Timetable(Protocol):
    """The instants of a schedule, in UTC."""

    def next_after(self, at: datetime) -> datetime | None:
        """The next instant, strictly later; `None` when there is none."""
        ...

    def last_before(self, at: datetime, not_after: datetime | None = None) -> datetime | None:
        """The last instant strictly earlier, and not after `not_after`; `None` when there is none."""
        ...

    def between(self, start: datetime, end: datetime, limit: int) -> Sequence[datetime]:
        """The instants in (start, end], oldest first: the first `limit` where each costs a search, else all."""
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """`count` instants from `first` on, each `step` after the one before."""

    first: datetime
    step: timedelta
    count: int


class Grid(Sequence[datetime]):
    """Instants in order, kept as pieces: length, place and slice are calculated.

    >>> from datetime import UTC
    >>> day = Grid(Piece(datetime(2030, 1, 1, tzinfo=UTC), timedelta(seconds=1), 86_400))
    >>> len(day), day[-1].isoformat(), len(day[100:])
    (86400, '2030-01-01T23:59:59+00:00', 86300)
    """

    __slots__ = ("_pieces",)

    def __init__(self, *pieces: Piece) -> None:
        self._pieces = tuple(piece for piece in pieces if piece.count > 0)

    def __len__(self) -> int:
        return sum(piece.count for piece in self._pieces)

    @overload
    def __getitem__(self, place: int) -> datetime: ...
    @overload
    def __getitem__(self, place: slice) -> Grid: ...
    def __getitem__(self, place: int | slice) -> datetime | Grid:
        if isinstance(place, slice):
            start, stop, _ = place.indices(len(self))  # no steps: nobody leaves out every second one
            return Grid(*self._cut(start, stop))
        wanted = place if place >= 0 else place + len(self)
        for piece in self._pieces:
            if 0 <= wanted < piece.count:
                return piece.first + wanted * piece.step
            wanted -= piece.count
        raise IndexError(place)

    def __iter__(self) -> Iterator[datetime]:
        for piece in self._pieces:
            for place in range(piece.count):
                yield piece.first + place * piece.step

    def __add__(self, other: Grid) -> Grid:
        return Grid(*self._pieces, *other._pieces)

    def __repr__(self) -> str:
        return f"Grid{self._pieces}"

    def _cut(self, start: int, stop: int) -> Iterator[Piece]:
        for piece in self._pieces:
            low, high = max(start, 0), min(stop, piece.count)
            if low < high:
                yield Piece(piece.first + low * piece.step, piece.step, high - low)
            start, stop = start - piece.count, stop - piece.count


@dataclass(frozen=True, slots=True)
class IntervalTimetable:
    """Every `step`, on the grid on which `anchor` lies.

    >>> from datetime import UTC
    >>> twenty = IntervalTimetable(timedelta(seconds=20), datetime(2030, 1, 1, tzinfo=UTC))
    >>> twenty.next_after(datetime(2030, 1, 1, 0, 0, 20, tzinfo=UTC)).second
    40
    """

    step: timedelta
    anchor: datetime

    def next_after(self, at: datetime) -> datetime | None:
        """The next instant, strictly later; `None` past what a calendar holds."""
        try:
            found = self.anchor + ((at - self.anchor) // self.step + 1) * self.step
        except OverflowError:
            return None
        return found if found.year <= _LAST_YEAR else None

    def last_before(self, at: datetime, not_after: datetime | None = None) -> datetime | None:
        """The last instant strictly earlier, whether or not the grid was in use then.

        Before the `Nats-Schedule-Next` of a tick it is that tick's occurrence, on whatever grid: one step earlier.
        """
        del not_after  # one instant lies before the next one, whenever the tick came
        try:
            return self.anchor + -((self.anchor - at) // self.step + 1) * self.step
        except OverflowError:
            return None

    def between(self, start: datetime, end: datetime, limit: int = 0) -> Grid:
        """The instants in (start, end], however many: they are calculated."""
        del limit
        first = self.next_after(start)
        if first is None or first > end:
            return Grid()
        return Grid(Piece(first, self.step, (end - first) // self.step + 1))

    def has(self, at: datetime) -> bool:
        """Whether the instant lies on the grid."""
        return not (at - self.anchor) % self.step


def anchor_of(stored_at: datetime) -> datetime:
    """The anchor the broker takes for a schedule it stored then: rounded to the whole second.

    >>> from datetime import UTC
    >>> anchor_of(datetime(2030, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)).second
    1
    """
    return (stored_at + _HALF_A_SECOND).replace(microsecond=0)
