"""Many triggers at once: a fixed number in flight, answers in the order of the requests, no error for all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from jetjobs._client.calls import Deadline
from jetjobs._client.handle import JobHandle
from jetjobs._client.job_run import JobRun
from jetjobs._client.publishing import Begun
from jetjobs._core.durations import DurationLike, InstantLike
from jetjobs._core.triggering import PLAIN, Asked, OnDuplicate, check_options
from jetjobs.errors import JetJobsError
from jetjobs.job import Job

# More than this makes no broker faster, and each holds its payload in memory.
_IN_FLIGHT = 128
_AT_A_TIME = 8  # plain ones that each of them sends before it waits: a task costs as much as a trigger
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


@dataclass(frozen=True, slots=True)
class TriggerError:
    """Why one of many triggers gave no run. `error` is what `trigger` alone would have raised."""

    request: TriggerRequest
    error: JetJobsError


async def trigger_many(
    requests: Iterable[TriggerRequest], find: Callable[[JobName], JobHandle[Any, Any]], patience: float
) -> list[JobRun[Any] | TriggerError]:
    """One run or error for each request, in their order.

    It ends once nothing was confirmed for `patience` seconds: what is left then is not sent.
    """
    many = _Many(iter(requests), find, patience)
    async with asyncio.TaskGroup() as group:
        for _ in range(_IN_FLIGHT):
            if not many.more:
                break
            group.create_task(many.work())
            await asyncio.sleep(0)
    return many.results()


class _Sent(NamedTuple):
    """A request that is being seen to."""

    place: int
    request: TriggerRequest
    handle: JobHandle[Any, Any]
    asked: Asked
    on_its_way: Begun | None


class _Many:
    def __init__(
        self, requests: Iterator[TriggerRequest], find: Callable[[JobName], JobHandle[Any, Any]], patience: float
    ) -> None:
        self._requests = requests
        self._find = find
        # One for all: whoever is confirmed renews it, and once it has passed nothing more is sent.
        self._until = Deadline(patience)
        self._handles: dict[int | str | tuple[str, str], JobHandle[Any, Any]] = {}
        self._job: JobName = ""
        self._handle: JobHandle[Any, Any] | None = None
        self._done: list[JobRun[Any] | TriggerError | None] = []
        self.more = True

    async def work(self) -> None:
        """Take requests one after the other, until there are none left."""
        sent: list[_Sent] = []
        try:
            # The iterator is the caller's code: it is advanced between awaits only, never by two at once.
            for request in self._requests:
                place = len(self._done)
                self._done.append(None)
                try:
                    begun = self._begin(place, request)
                except JetJobsError as error:
                    self._done[place] = TriggerError(request, error)
                    continue
                sent.append(begun)
                if begun.on_its_way is None or len(sent) >= _AT_A_TIME:
                    await self._end(sent)
                    sent.clear()
            await self._end(sent)
        finally:
            for each in sent:
                if each.on_its_way is not None:
                    each.on_its_way.stored.cancel()  # no effect on one that was waited for
        self.more = False

    def _begin(self, place: int, request: TriggerRequest) -> _Sent:
        handle = self._handle
        if handle is None or request.job is not self._job:
            handle = self._find_handle(request.job)
        handle.check(request.payload)
        asked = PLAIN if request[2:] == _NO_OPTIONS else request.asked
        return _Sent(
            place, request, handle, asked, handle.begin(request.payload, self._until) if asked is PLAIN else None
        )

    async def _end(self, sent: Iterable[_Sent]) -> None:
        for place, request, handle, asked, begun in sent:
            try:
                if begun is None:
                    self._done[place] = await handle.trigger_checked(request.payload, asked, self._until)
                else:
                    self._done[place] = await handle.finish(begun, self._until)
            except JetJobsError as error:
                self._done[place] = TriggerError(request, error)
            else:
                if not place % _RENEW_EVERY:
                    self._until.renew()

    def _find_handle(self, job: JobName) -> JobHandle[Any, Any]:
        key = id(job) if isinstance(job, Job) else job
        found = self._handles.get(key)
        if found is None:
            found = self._handles[key] = self._find(job)
        self._job, self._handle = job, found
        return found

    def results(self) -> list[JobRun[Any] | TriggerError]:
        """What became of each request."""
        return [done for done in self._done if done is not None]
