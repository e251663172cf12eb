"""Many triggers at once: answers in the order of the requests, no error for all.

Plain ones go to the broker in batches, which store all or none; what is refused as a whole is sent one by one. The
others, and few, are pipelined, a fixed number in flight.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from jetjobs._client.calls import Deadline
from jetjobs._client.handle import JobHandle
from jetjobs._client.job_run import JobRun
from jetjobs._client.publishing import Composed
from jetjobs._core.durations import DurationLike, InstantLike
from jetjobs._core.models import JobAddress
from jetjobs._core.triggering import PLAIN, Asked, OnDuplicate, check_options
from jetjobs.errors import AnswerUnknown, ClientError, JetJobsError
from jetjobs.job import Job, address_of
from jetjobs.outcomes import JobInterrupted, Outcome

# More than this makes no broker faster, and each holds its payload in memory.
_IN_FLIGHT = 128
_AT_A_TIME = 8
_BATCH = 1000  # the server's limit
_BATCHES = 3
_WORTH_A_BATCH = 200  # a batch is a file to the server: 3 to 30 ms, however small
_RENEW_EVERY = 32  # the clock needn't be read for each

JobName = Job[Any, Any] | str | tuple[str, str]


class TriggerRequest(NamedTuple):
    """One of many triggers: the job (a `Job`, `"module.job"` or both names), its payload and options.

    `TriggerOptions` tells what each option means.
    """

    job: JobName
    payload: Any = None
    idempotency_key: str | None = None
    on_duplicate: OnDuplicate = "return"
    delay: DurationLike | None = None
    at: InstantLike | None = None
    start_within: DurationLike | None = None
    expires_in: DurationLike | None = None
    scheduled_for: InstantLike | None = None
    allow_unknown: bool = False

    @property
    def asked(self) -> Asked:
        """The options, checked."""
        return check_options(Asked(*self[2:]))


_NO_OPTIONS = TriggerRequest("")[2:]


def _check_request(request: object) -> None:
    if not isinstance(request, TriggerRequest):
        raise ClientError(
            f"trigger_many takes TriggerRequest(job, payload, …), not {type(request).__name__}; "
            'write TriggerRequest("billing.send_invoice", 7)'
        )


@dataclass(frozen=True, slots=True)
class TriggerError:
    """Why one of many triggers gave no run. `error` is what `trigger` alone would have raised."""

    request: TriggerRequest
    error: JetJobsError


async def trigger_many(
    requests: Iterable[TriggerRequest], find: Callable[[JobName], JobHandle[Any, Any]], patience: Deadline
) -> list[JobRun[Any] | TriggerError]:
    """One run or error for each request, in their order.

    It ends once nothing was confirmed for as long as `patience` is: what is left then is not sent. What the caller's
    iterable raises is raised as it is, when what it gave before has been seen to.
    """
    many = _Many(find, patience)
    left = _Given(requests)
    places = asyncio.Semaphore(_BATCHES)
    async with asyncio.TaskGroup() as group:
        # The next ones are made ready while the server is at work on those before.
        while some := left.take(_BATCH):
            await places.acquire()
            group.create_task(many.see_to(some)).add_done_callback(lambda _: places.release())
    if left.error is not None:
        raise left.error
    return many.results()


class _Given:
    """What the caller's iterable gives, which is code of theirs and may fail, or end its run or be interrupted."""

    def __init__(self, requests: Iterable[TriggerRequest]) -> None:
        self._left = iter(requests)
        self.error: BaseException | None = None

    def take(self, most: int) -> list[TriggerRequest]:
        """The next ones; none after the last, or after it failed."""
        some: list[TriggerRequest] = []
        try:
            some.extend(islice(self._left, most if self.error is None else 0))
        except (Exception, Outcome, JobInterrupted) as error:  # noqa: BLE001 - the caller's own, and raised there
            self.error = error
        return some


class _Plain(NamedTuple):
    """A request without options, ready to be stored with others."""

    place: int
    request: TriggerRequest
    handle: JobHandle[Any, Any]
    composed: Composed


class _Many:
    def __init__(self, find: Callable[[JobName], JobHandle[Any, Any]], patience: Deadline) -> None:
        self._find = find
        # One for all: whoever is confirmed renews it, and once it has passed nothing more is sent.
        self._until = patience
        self._handles: dict[int | JobAddress, JobHandle[Any, Any]] = {}
        self._job: JobName = ""
        self._handle: JobHandle[Any, Any] | None = None
        self._done: list[JobRun[Any] | TriggerError | None] = []

    async def see_to(self, requests: Sequence[TriggerRequest]) -> None:
        """Have them stored: plain ones together where they are many, and as one by one as they must be."""
        first = len(self._done)
        self._done += [None] * len(requests)
        with suppress(JetJobsError, AttributeError):  # said where it is triggered
            await self._find_handle(requests[0].job).publisher.look_up(self._until)
        plain: list[_Plain] = []
        others: list[Callable[[], Awaitable[None]]] = []
        for place, request in enumerate(requests, first):
            try:
                _check_request(request)
                self._sort(place, request, plain, others)
            except JetJobsError as error:
                self._done[place] = TriggerError(request, error)
        if len(plain) < _WORTH_A_BATCH or not await self._stored_together(plain):
            groups = [plain[start : start + _AT_A_TIME] for start in range(0, len(plain), _AT_A_TIME)]
            others += [partial(self._store_plain, group) for group in groups]
        await _all(others)

    def _sort(
        self, place: int, request: TriggerRequest, plain: list[_Plain], others: list[Callable[[], Awaitable[None]]]
    ) -> None:
        handle = self._handle if self._handle is not None and request.job is self._job else None
        if handle is None:
            handle = self._find_handle(request.job)
        handle.check(request.payload)
        asked = PLAIN if request[2:] == _NO_OPTIONS else request.asked
        composed = handle.publisher.compose(request.payload, self._until) if asked is PLAIN else None
        if composed is not None:
            plain.append(_Plain(place, request, handle, composed))
        else:
            others.append(partial(self._trigger, place, request, handle, asked))

    async def _stored_together(self, plain: Sequence[_Plain]) -> bool:
        """Whether one batch stored them. Where it didn't, each is stored by itself, and says itself what is wrong."""
        try:
            await plain[0].handle.publisher.send_together([each.composed for each in plain])
        except AnswerUnknown:
            # All are there or none is: each is sent again, and one found there is its own.
            await _all([partial(self._store_again, each) for each in plain])
            return True
        except JetJobsError:
            return False
        for each in plain:
            self._done[each.place] = each.handle.run_of(each.composed.triggered)
        self._until.renew()
        return True

    async def _store_plain(self, group: Sequence[_Plain]) -> None:
        """Send them all before any is waited for: a task of its own costs as much as a trigger."""
        sent = [each.handle.publisher.send(each.composed) for each in group]
        try:
            for each, stored in zip(group, sent, strict=True):
                await self._finish(each, stored)
        finally:
            for stored in sent:
                stored.cancel()  # no effect on those that were waited for

    async def _store_again(self, plain: _Plain) -> None:
        lost: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        lost.set_exception(AnswerUnknown("the answer to the batch was lost"))
        await self._finish(plain, lost)

    async def _finish(self, plain: _Plain, stored: Awaitable[Any]) -> None:
        place, request, handle, composed = plain
        try:
            triggered = await handle.publisher.finish(composed, stored, self._until)
        except JetJobsError as error:
            self._done[place] = TriggerError(request, error)
        else:
            self._done[place] = handle.run_of(triggered)
            self._renew(place)

    async def _trigger(self, place: int, request: TriggerRequest, handle: JobHandle[Any, Any], asked: Asked) -> None:
        try:
            self._done[place] = await handle.trigger_checked(request.payload, asked, self._until)
        except JetJobsError as error:
            self._done[place] = TriggerError(request, error)
        else:
            self._renew(place)

    def _renew(self, place: int) -> None:
        if not place % _RENEW_EVERY:
            self._until.renew()

    def _find_handle(self, job: JobName) -> JobHandle[Any, Any]:
        address = None if isinstance(job, Job) else address_of(job)
        key = address or id(job)
        found = self._handles.get(key)
        if found is None:
            found = self._handles[key] = self._find(address or job)
        self._job, self._handle = job, found
        return found

    def results(self) -> list[JobRun[Any] | TriggerError]:
        """What became of each request."""
        return [done for done in self._done if done is not None]


async def _all(calls: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Make the calls, a fixed number at a time."""
    left = iter(calls)

    async def work() -> None:
        for call in left:
            await call()

    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            group.create_task(work())
