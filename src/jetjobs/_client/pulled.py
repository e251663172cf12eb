"""An async iteration as one that blocks: some at a time, each asked for by a call of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

from jetjobs._client.blocking import Line
from jetjobs._client.scope import Scope
from jetjobs.errors import ClientError

T = TypeVar("T")


class Pulled(Generic[T]):
    """What an async iteration gives, over one connection.

    One that is dropped in the middle is ended by its loop.
    """

    def __init__(self, line: Line, begin: Callable[[Scope], AsyncIterator[T]]) -> None:
        self._line = line
        self._begin = begin
        self._begun: tuple[Scope, AsyncIterator[T]] | None = None

    def __iter__(self) -> Iterator[T]:
        """Each as it comes."""
        while (item := self._line.call(self._next)) is not None:
            yield item[0]

    async def _next(self, scope: Scope, _left: float | None) -> tuple[T] | None:
        if self._begun is None:
            self._begun = (scope, self._begin(scope))
        begun_over, source = self._begun
        if begun_over is not scope:
            raise ClientError("this iteration began over another connection, of another process or before a close")
        try:
            return (await anext(source),)
        except StopAsyncIteration:
            return None
