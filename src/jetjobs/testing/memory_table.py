"""A key-value bucket in memory: revisions, compare-and-set, entries that go by themselves."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import Generic, NamedTuple, TypeVar

from jetjobs._clock import Timer
from jetjobs._core.durations import lifetime_seconds
from jetjobs._ports import Holding
from jetjobs.errors import WrongRevision

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Row(NamedTuple, Generic[V]):
    """A value, its revision, and when it was stored."""

    value: V
    revision: int
    stored_at: datetime


class MemoryTable(Generic[K, V]):
    """Rows by key. Revisions count over the whole table, as a bucket's do. `on_put` is called after each write."""

    def __init__(
        self,
        now: Callable[[], datetime],
        call_later: Callable[[float, Callable[[], object]], Timer],
    ) -> None:
        self._now = now
        self._call_later = call_later
        self._rows: dict[K, Row[V]] = {}
        self._lifetimes: dict[K, Timer] = {}
        self._revision = 0
        self.on_put: Callable[[], object] | None = None

    def get(self, key: K) -> Row[V] | None:
        """The row, if there is one."""
        return self._rows.get(key)

    def items(self) -> list[tuple[K, Row[V]]]:
        """All rows as they are now."""
        return list(self._rows.items())

    @property
    def holding(self) -> Holding:
        """How much there is."""
        return Holding(len(self._rows), self._revision)

    def put(self, key: K, value: V, *, expected: int | None = None, ttl: timedelta | None = None) -> int:
        """Write a row if `expected` is its revision (0: there is none); a row without `ttl` stays."""
        row = self._rows.get(key)
        actual = row.revision if row is not None else 0
        if expected is not None and expected != actual:
            raise WrongRevision(f"wrong last sequence: {actual}", actual)
        self._forget(key)
        self._revision += 1
        self._rows[key] = Row(value, self._revision, self._now())
        if ttl is not None:
            self._lifetimes[key] = self._call_later(lifetime_seconds(ttl), lambda: self._forget(key))
        if self.on_put is not None:
            self.on_put()
        return self._revision

    def remove(self, key: K, revision: int | None = None) -> bool:
        """Take a row out, if it is at that revision when one is given; says whether it went."""
        row = self._rows.get(key)
        if row is None or (revision is not None and row.revision != revision):
            return False
        self._forget(key)
        return True

    def _forget(self, key: K) -> None:
        self._rows.pop(key, None)
        lifetime = self._lifetimes.pop(key, None)
        if lifetime is not None:
            lifetime.cancel()
