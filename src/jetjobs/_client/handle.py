"""`JobHandle`: one job as a client calls it."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, Unpack

from jetjobs._client.calls import Deadline
from jetjobs._client.job_run import JobRun
from jetjobs._client.publishing import Publisher, Triggered
from jetjobs._client.scope import Scope
from jetjobs._core.models import JobAddress, RunKey, TriggerInfo
from jetjobs._core.triggering import PLAIN, Asked, Target, check_options
from jetjobs._results import result_reader
from jetjobs.job import Job
from jetjobs.triggered import TriggerOptions

# What other job libraries call it, where the word itself doesn't come close.
_ELSEWHERE = {
    "countdown": "delay",
    "defer_by": "delay",
    "eta": "at",
    "defer_until": "at",
    "task_id": "idempotency_key",
    "job_id": "idempotency_key",
}

P = TypeVar("P")
R = TypeVar("R")


class JobHandle(Generic[P, R]):
    """A job that can be triggered, found by name or by its `Job`; `schema` is of payloads checked elsewhere."""

    def __init__(
        self, scope: Scope, address: JobAddress, job: Job[P, R] | None = None, *, schema: str | None = None
    ) -> None:
        self.address = address
        self._scope = scope
        self._check: Callable[[Any], Any] | None = None if job is None else job.check_payload
        self._read_result: Callable[[Any], R] | None = None if job is None else result_reader(job)
        self._publisher = Publisher(scope, Target(address, schema if job is None else job.payload_schema_digest))

    def __repr__(self) -> str:
        return f"JobHandle({str(self.address)!r})"

    async def trigger(self, payload: P | None = None, **options: Unpack[TriggerOptions]) -> JobRun[R]:
        """Ask for a run; see `TriggerOptions` for what each option does.

        With an `idempotency_key` the run is the same for as long as its record is kept, whoever asks.

        Raises:
            PayloadError: the payload can't be stored, or doesn't fit the handler where a `Job` is at hand.
            UnknownJobError: no host ever described the job; has `.close_names`.
            DuplicateRun: `on_duplicate="raise"`, and the key has a run.
            BrokerUnavailable: not reachable in time; nothing was sent.
            TriggerUnconfirmed: perhaps stored; has `.run_id`.
        """
        self.check(payload)
        if not options:
            return await self.trigger_checked(payload, PLAIN, self._scope.within(self._scope.timeout))
        deadline = self._scope.deadline(options.get("timeout"))
        return await self.trigger_checked(payload, asked_of(options), deadline)

    async def trigger_checked(self, payload: Any, asked: Asked, deadline: Deadline) -> JobRun[R]:
        """The same for a payload that was checked against the handler, or can't be."""
        triggered = await self._publisher.trigger(payload, asked, deadline)
        return JobRun(self._scope, triggered, self._read_result)

    @property
    def publisher(self) -> Publisher:
        """What stores its triggers."""
        return self._publisher

    def run_of(self, triggered: Triggered) -> JobRun[R]:
        """What a caller holds of a trigger that is stored."""
        return JobRun(self._scope, triggered, self._read_result)

    async def trigger_named(
        self, run: RunKey, info: TriggerInfo, payload: Any, *, asked: Asked, deadline: Deadline
    ) -> JobRun[R]:
        """Ask for one certain run, whose id says what it is for; asked for again, it is that run."""
        triggered = await self._publisher.trigger_named(run, info, payload, asked=asked, deadline=deadline)
        return JobRun(self._scope, triggered, self._read_result)

    def check(self, payload: Any) -> None:
        """Refuse a payload that doesn't fit the handler, where a `Job` is at hand."""
        if self._check is not None:
            self._check(payload)


def asked_of(options: TriggerOptions) -> Asked:
    """A call's options as a checked value; `timeout` is the call's, not the run's."""
    choices: dict[str, Any] = {name: value for name, value in options.items() if name != "timeout"}
    if not choices:
        return PLAIN
    try:
        asked = Asked(**choices)
    except TypeError:
        raise _no_such_option(choices) from None
    return check_options(asked)


def _no_such_option(choices: Mapping[str, Any]) -> TypeError:
    known = tuple(TriggerOptions.__annotations__)
    name = next(name for name in choices if name not in known)
    meant = _ELSEWHERE.get(name)
    close = [meant] if meant else difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    return TypeError(
        f"trigger() takes the payload, as one value, and no {name!r}; its options are {', '.join(known)}{hint}"
    )
