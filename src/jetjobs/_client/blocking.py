"""Blocking calls made of async ones: the lines they go through, and the methods that look like their originals.

A line leads from any thread to an open `Scope` on some loop: the one of a host or async client (`BorrowedLoop`), or
the process's own (`OwnLine`).
"""

# `Blocking` and `BlockingView` are two halves of one thing: a descriptor, and the object it is found on.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import functools
import os
import types
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

from jetjobs._client.calls import Deadline
from jetjobs._client.loop_thread import LoopThread, call_on, loop_thread, refuse_on_a_loop
from jetjobs._client.scope import Scope, seconds
from jetjobs._core.durations import DurationLike
from jetjobs.errors import BrokerUnavailable, ClientError

T = TypeVar("T")
V = TypeVar("V")
P = ParamSpec("P")

Ask = Callable[[Scope, float | None], Coroutine[Any, Any, T]]
"""A call over an open scope. The number is the seconds it has left, when connecting took some of its time."""

OpenScope = Callable[[], Coroutine[Any, Any, Scope]]

_CLOSED = "this blocking client was closed; make a new one"

_LEAST = 0.001  # a timeout must be more than zero


class Line(Protocol):
    """A way from any thread to an open scope on a loop."""

    def call(self, ask: Ask[T], timeout: DurationLike | None = None) -> T:
        """What the call answers; this thread waits for it.

        Raises:
            BlockingCallError: this thread's event loop is running.
        """
        ...


class BorrowedLoop:
    """The loop of a host or async client, which must be running here and now."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._loop = asyncio.get_running_loop()
        self._process_id = os.getpid()

    def call(self, ask: Ask[T], timeout: DurationLike | None = None) -> T:
        """See `Line`."""
        del timeout  # nothing has to be opened first
        if os.getpid() != self._process_id:
            raise ClientError(
                "the host or client this goes through belongs to the parent of this process; "
                "use a jetjobs.sync.JobClient, which works in forked processes too"
            )
        return call_on(self._loop, lambda: ask(self._scope, None))


class OwnLine:
    """A connection of a blocking client's own, on the process's loop thread.

    The first call opens it, and in each forked child the first one there.
    """

    def __init__(self, open_scope: OpenScope, default_seconds: float) -> None:
        self._open_scope = open_scope
        self._default_seconds = default_seconds
        self._closed = False
        self._kept: tuple[LoopThread, _Connection] | None = None

    def call(self, ask: Ask[T], timeout: DurationLike | None = None) -> T:
        """See `Line`."""
        if self._closed:
            raise ClientError(_CLOSED)
        refuse_on_a_loop()
        thread = loop_thread()
        return call_on(thread.loop, lambda: self._answer(thread, ask, timeout))

    def close(self) -> None:
        """Let go of the connection, if this process opened one."""
        self._closed = True
        if self._kept is not None:
            thread, connection = self._kept
            if thread is loop_thread():
                call_on(thread.loop, lambda: thread.close(connection))

    async def _answer(self, thread: LoopThread, ask: Ask[T], timeout: DurationLike | None) -> T:
        connection = self._connection(thread)
        if connection.scope is not None:
            return await ask(connection.scope, None)
        deadline = Deadline(self._default_seconds if timeout is None else seconds(timeout, "timeout"))
        scope = await connection.open(deadline)
        return await ask(scope, max(deadline.left, _LEAST))

    def _connection(self, thread: LoopThread) -> _Connection:
        kept = self._kept
        if kept is not None and kept[0] is thread:
            return kept[1]
        connection = _Connection(self._open_scope)
        thread.hold(connection)
        self._kept = (thread, connection)
        # A client that was dropped without `close` leaves no connection behind.
        weakref.finalize(self, thread.abandon, connection).atexit = False
        return connection


class _Connection:
    """One line's connection in one process. Belongs to the loop's thread."""

    def __init__(self, open_scope: OpenScope) -> None:
        self.scope: Scope | None = None
        self._open_scope = open_scope
        self._one_at_a_time = asyncio.Lock()
        self._closed = False

    async def open(self, deadline: Deadline) -> Scope:
        try:
            async with asyncio.timeout(deadline.left), self._one_at_a_time:
                if self.scope is None:
                    scope = await self._open_scope()
                    if self._closed:
                        await scope.backend.close()
                        raise ClientError(_CLOSED)
                    self.scope = scope
                return self.scope
        except TimeoutError:
            raise BrokerUnavailable(f"not connected within {deadline.seconds:g} s; nothing was sent") from None

    async def close(self) -> None:
        self._closed = True
        async with self._one_at_a_time:  # whoever comes second waits until it is done
            scope, self.scope = self.scope, None
            if scope is not None:
                scope.life.over = True
                await scope.backend.close()


class BlockingView(Generic[V]):
    """Something whose async twin `over` makes for an open scope."""

    __slots__ = ("_line", "_over")

    def __init__(self, line: Line, over: Callable[[Scope], V]) -> None:
        self._line = line
        self._over = over


class Blocking(Generic[V, P, T]):
    """An async method of a view's twin, as a blocking method with the same parameters.

    For methods that end within their `timeout=`, a keyword.
    """

    def __init__(self, method: Callable[Concatenate[V, P], Coroutine[Any, Any, T]]) -> None:
        def call(view: BlockingView[V], *args: P.args, **kwargs: P.kwargs) -> T:
            def ask(scope: Scope, left: float | None) -> Coroutine[Any, Any, T]:
                if left is not None:
                    cast("dict[str, Any]", kwargs)["timeout"] = left
                return method(view._over(scope), *args, **kwargs)  # noqa: SLF001

            return view._line.call(ask, cast("DurationLike | None", kwargs.get("timeout")))  # noqa: SLF001

        self._call = functools.update_wrapper(call, method)

    @overload
    def __get__(self, view: None, owner: type[Any]) -> Callable[Concatenate[BlockingView[V], P], T]: ...
    @overload
    def __get__(self, view: BlockingView[V], owner: type[Any]) -> Callable[P, T]: ...
    def __get__(self, view: BlockingView[V] | None, owner: type[Any]) -> Callable[..., T]:
        return self._call if view is None else types.MethodType(self._call, view)


def time_left(timeout: DurationLike | None, left: float | None) -> DurationLike | None:
    """The timeout to give a wait that may be endless."""
    return timeout if timeout is None or left is None else left
