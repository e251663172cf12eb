"""What a handler under test triggers: kept, and never run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn, cast

from jetjobs._client.asking import child_of
from jetjobs._core import codec
from jetjobs._core.durations import DurationLike, InstantLike
from jetjobs._core.models import JobAddress, RunKey, RunRecord
from jetjobs._core.triggering import Asked, Target, check_options
from jetjobs.errors import JobsNotHosted
from jetjobs.job import Job, address_of


@dataclass(frozen=True, slots=True)
class RecordedChild:
    """A child run a handler asked for: which job, with what. Its id is the one it would have in earnest.

    What the handler gets for it is this too: a run that never starts, so it has nothing to wait for.
    """

    key: RunKey
    payload: Any = None
    named: str | None = None
    delay: DurationLike | None = None
    at: InstantLike | None = None

    duplicate = False
    payload_differs = False
    no_host = False
    paused = False

    @property
    def run_id(self) -> str:
        """Id of the child run."""
        return self.key.run_id

    @property
    def job(self) -> str:
        """Whose run it would be, as `module.job`."""
        return str(self.key.address)


class RecordingChildren:
    """Checks what a handler triggers as in earnest, and keeps it in `made`; implements `context.ChildTrigger`."""

    def __init__(self, parent: RunRecord, made: list[RecordedChild]) -> None:
        self._parent = parent.run_key
        self._counts: dict[JobAddress, int] = {}
        self._made = made

    async def trigger_child(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: DurationLike | None = None,
        at: InstantLike | None = None,
    ) -> RecordedChild:
        """Keep it."""
        return self.trigger_child_blocking(job, payload, key=key, delay=delay, at=at)

    def trigger_child_blocking(
        self,
        job: Any,
        payload: Any = None,
        *,
        key: str | None = None,
        delay: DurationLike | None = None,
        at: InstantLike | None = None,
    ) -> RecordedChild:
        """Keep it."""
        if isinstance(job, Job):
            cast("Job[Any, Any]", job).check_payload(payload)
        codec.encode(payload)
        check_options(Asked(delay=delay, at=at))
        address = job.address if isinstance(job, Target) else address_of(cast("object", job))
        child = child_of(self._parent, address, key, self._counts)
        made = RecordedChild(child, payload, key, delay, at)
        if child not in [each.key for each in self._made]:
            self._made.append(made)
        return made


class RecordingAsking:
    """Stands where a host has its client: the children of what it runs are kept; implements `_engine.asking.Asking`."""

    def __init__(self) -> None:
        self.made: list[RecordedChild] = []

    def children_of(self, parent: RunRecord) -> RecordingChildren:
        """What keeps the children of one start of a run."""
        return RecordingChildren(parent, self.made)

    async def submit(self, job: Job[Any, Any], payload: Any, key: str | None) -> NoReturn:
        """Nobody calls from outside in a test of one job."""
        raise JobsNotHosted(f"{job.address} is under test: nobody triggers {payload!r} from outside (key {key})")
