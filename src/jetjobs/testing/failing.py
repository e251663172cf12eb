"""Ports that fail when told to: before their effect, after it, or by not coming back.

A test names a method as `runs.update`, `broker.store`, `payloads.put`, `catalog.say`, `delivery.ack`, and how many
of its calls fail. `calls` counts every call, so tests can also hold the round trips of a run to a number.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, Literal, cast

from jetjobs._core.models import JobAddress
from jetjobs._ports import (
    Backend,
    Broker,
    Catalog,
    Consumption,
    Delivery,
    EventSource,
    OnDelivery,
    PayloadStore,
    RunStore,
    ScheduleStore,
)
from jetjobs.errors import AnswerUnknown, BrokerUnavailable

When = Literal["before", "after", "hang"]


class Failure:
    """A failure as asked for. `reached` is set at its first hit, `hits` counts them, `release` ends it."""

    def __init__(self, when: When, error: BaseException, *, times: int | None, skip: int) -> None:
        self.when: When = when
        self.error = error
        self.reached = asyncio.Event()
        self.hits = 0
        self._left = times
        self._skip = skip
        self._released = asyncio.Event()

    def release(self) -> None:
        """Fail no more; calls that hang go on to their effect."""
        self._left = 0
        self._released.set()

    async def wait_released(self) -> None:
        """Return once `release` was called."""
        await self._released.wait()

    def strikes(self) -> bool:
        """Whether this failure takes the call being made."""
        if self._left == 0:
            return False
        if self._skip > 0:
            self._skip -= 1
            return False
        if self._left is not None:
            self._left -= 1
        self.hits += 1
        self.reached.set()
        return True


class FailingBackend(Backend):
    """A backend that behaves like the one given until `fail` says otherwise."""

    calls: Counter[str]
    _failures: dict[str, list[Failure]]

    def __init__(self, backend: Backend) -> None:
        # The fields are frozen; what is added here is not one of them.
        object.__setattr__(self, "calls", Counter())
        object.__setattr__(self, "_failures", {})
        super().__init__(
            broker=cast("Broker", _FailingBroker("broker", backend.broker, self)),
            runs=cast("RunStore", _FailingPort("runs", backend.runs, self)),
            payloads=cast("PayloadStore", _FailingPort("payloads", backend.payloads, self)),
            catalog=cast("Catalog", _FailingPort("catalog", backend.catalog, self)),
            schedules=cast("ScheduleStore", _FailingPort("schedules", backend.schedules, self)),
            events=cast("EventSource", _FailingEvents("events", backend.events, self)),
            close=backend.close,
        )

    def fail(
        self,
        method: str,
        *,
        when: When = "before",
        times: int | None = 1,
        skip: int = 0,
        error: BaseException | None = None,
    ) -> Failure:
        """Make calls of a method fail, after `skip` that pass; `times=None` until released.

        `before`: nothing happens and `BrokerUnavailable` is raised. `after`: it happens and `AnswerUnknown` is
        raised. `hang`: nothing happens until `release`. An ack or nak lost on its way is `before`.
        """
        if error is None:
            lost = f"made to fail: {method}"
            error = AnswerUnknown(lost) if when == "after" else BrokerUnavailable(lost)
        failure = Failure(when, error, times=times, skip=skip)
        self._failures.setdefault(method, []).append(failure)
        return failure

    def struck(self, method: str) -> Failure | None:
        """Count a call; the failure that takes it, if one does."""
        self.calls[method] += 1
        return next((failure for failure in self._failures.get(method, ()) if failure.strikes()), None)


class _FailingPort:
    """Every method of a port, each asking the script first."""

    def __init__(self, name: str, target: object, script: FailingBackend) -> None:
        self._name = name
        self._target = target
        self._script = script

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._target, attribute)
        method = f"{self._name}.{attribute}"
        # By the port, too: a method that only passes an awaitable on needs no `async def`.
        if inspect.iscoroutinefunction(value) or _is_awaited(getattr(_PORTS[self._name], attribute, None)):
            return self._coroutine(method, value)
        if inspect.isasyncgenfunction(value):
            return self._generator(method, value)
        return self._plain(method, value) if inspect.ismethod(value) else value

    def _coroutine(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        async def failing(*args: Any, **kwargs: Any) -> Any:
            failure = self._script.struck(method)
            if failure is None:
                return await call(*args, **kwargs)
            match failure.when:
                case "before":
                    raise failure.error
                case "after":
                    await call(*args, **kwargs)
                    raise failure.error
                case "hang":
                    await failure.wait_released()
                    return await call(*args, **kwargs)

        return failing

    def _generator(self, method: str, call: Callable[..., AsyncIterator[Any]]) -> Callable[..., AsyncIterator[Any]]:
        async def failing(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            failure = self._script.struck(method)
            if failure is not None and failure.when == "before":
                raise failure.error
            if failure is not None and failure.when == "hang":
                await failure.wait_released()
            async for item in call(*args, **kwargs):
                yield item
            if failure is not None and failure.when == "after":
                raise failure.error

        return failing

    def _deliveries(self, on_delivery: OnDelivery) -> OnDelivery:
        return lambda delivery: on_delivery(cast("Delivery", _FailingPort("delivery", delivery, self._script)))

    def _plain(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        # Fire and forget: its caller hears nothing of the failure, the effect just isn't there.
        def failing(*args: Any, **kwargs: Any) -> Any:
            failure = self._script.struck(method)
            return call(*args, **kwargs) if failure is None or failure.when == "after" else None

        return failing


_PORTS: Final[dict[str, type]] = {
    "broker": Broker,
    "runs": RunStore,
    "payloads": PayloadStore,
    "catalog": Catalog,
    "schedules": ScheduleStore,
    "events": EventSource,
    "delivery": Delivery,
}


def _is_awaited(declared: object) -> bool:
    given = str(getattr(declared, "__annotations__", {}).get("return"))
    return inspect.iscoroutinefunction(declared) or given.startswith("Awaitable")


class _FailingBroker(_FailingPort):
    """A broker whose deliveries can fail too, as `delivery.ack`, `.nak`, `.term`, `.renew`."""

    async def consume(self, job: JobAddress, on_delivery: OnDelivery) -> Consumption:
        consume = cast("Broker", self._target).consume
        return await self._coroutine("broker.consume", consume)(job, self._deliveries(on_delivery))

    def now(self) -> Any:
        return cast("Broker", self._target).now()

    def ended(self, *args: Any, **kwargs: Any) -> Any:
        self._script.calls["broker.ended"] += 1
        return cast("Broker", self._target).ended(*args, **kwargs)


class _FailingEvents(_FailingPort):
    """Events whose deliveries can fail as those of the broker."""

    async def consume(self, stream: str, subject: str, durable: str, on_delivery: OnDelivery) -> Consumption:
        consume = cast("EventSource", self._target).consume
        return await self._coroutine("events.consume", consume)(stream, subject, durable, self._deliveries(on_delivery))
