"""Which runs a list shows, and in which order: newest first, by creation and then by id.

Records are met from the last written to the first, and no run was made after it was written. So what is still to come
is bounded from above: a page is complete, and a sequence may go on, before everything was seen.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from jetjobs._core.glance import Glance
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs.errors import ConfigError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KNOWN: Final = frozenset(status.value for status in RunStatus)

CLOCKS_DIFFER: Final = timedelta(seconds=1)
"""A run's creation is told by the stream of triggers, when it was written by that of records: two leaders, perhaps."""

SortKey = tuple[datetime, str, str, str]
"""Creation, run id, module, job: no two runs of a project share one."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """What a record must be to be listed. Everything left out lets every record pass, except SKIPPED ones."""

    module: str | None = None
    job: str | None = None
    statuses: frozenset[RunStatus] | None = None
    since: datetime | None = None
    until: datetime | None = None
    schedule_id: str | None = None
    error_type: str | None = None
    text: str | None = None
    include_skipped: bool = False

    def passes(self, record: RunRecord) -> bool:
        """Whether the record is listed; `since` counts in, `until` doesn't.

        >>> RunFilter(error_type="ValueError").passes(RunRecord("r", "m", "j", RunStatus.FAILED))
        False
        """
        return self._names_pass(record) and self._status_passes(record.status) and self._content_passes(record)

    def may_pass(self, seen: Glance) -> bool:
        """Whether a record may be one of those, at a glance; what is told in some other way than ours may be.

        >>> RunFilter(statuses=frozenset({RunStatus.FAILED})).may_pass({"status": "SUCCEEDED"})
        False
        """
        status = seen.get("status")
        if isinstance(status, str) and status in _KNOWN and not self._status_passes(RunStatus(status)):
            return False
        return self._names_may_pass(seen) and self._times_may_pass(seen) and self._says_may_pass(seen)

    def _names_may_pass(self, seen: Glance) -> bool:
        wanted = (("module", self.module), ("job", self.job), ("schedule_id", self.schedule_id))
        return not seen or all(name is None or seen.get(key) == name for key, name in wanted)

    def _times_may_pass(self, seen: Glance) -> bool:
        created = seen.get("created_at")
        return not isinstance(created, datetime) or self._time_passes(created)

    def _says_may_pass(self, seen: Glance) -> bool:
        if not seen or (self.error_type is None and self.text is None):
            return True
        error = seen.get("error")
        kind = cast("dict[str, Any]", error).get("type") if isinstance(error, dict) else None
        if self.error_type is not None and kind != self.error_type:
            return False
        return self.text is None or _glance_says(seen, self.text.casefold())

    def is_past(self, until: datetime) -> bool:
        """Whether nothing made up to an instant passes."""
        return self.since is not None and until + CLOCKS_DIFFER < self.since

    def _names_pass(self, record: RunRecord) -> bool:
        return (
            (self.module is None or record.module == self.module)
            and (self.job is None or record.job == self.job)
            and (self.schedule_id is None or record.schedule_id == self.schedule_id)
        )

    def _status_passes(self, status: RunStatus) -> bool:
        if self.statuses is not None:
            return status in self.statuses
        return self.include_skipped or status is not RunStatus.SKIPPED

    def _time_passes(self, created: datetime) -> bool:
        return (self.since is None or created >= self.since) and (self.until is None or created < self.until)

    def _content_passes(self, record: RunRecord) -> bool:
        if not self._time_passes(record.created_at or _EPOCH):
            return False
        if self.error_type is not None and (record.error is None or record.error.type != self.error_type):
            return False
        return self.text is None or _says(record, self.text.casefold())


def _says(record: RunRecord, text: str) -> bool:
    """Whether id, key, error, reason or a log line holds the text; payloads are not searched, they may be secret."""
    shown = [record.run_id, record.key or "", record.skip_reason or ""]
    if record.error is not None:
        shown.append(str(record.error))
    shown.extend(line.message for line in record.logs)
    return any(text in part.casefold() for part in shown)


def _glance_says(seen: Glance, text: str) -> bool:
    shown: list[object] = [seen.get("run_id"), seen.get("key"), seen.get("skip_reason")]
    error = seen.get("error")
    if isinstance(error, dict):
        told = cast("dict[str, Any]", error)
        shown.append(f"{told.get('type')}: {told.get('message', '')}")
    logs = seen.get("logs")
    if isinstance(logs, list):
        lines = [cast("dict[str, Any]", line) for line in cast("list[object]", logs) if isinstance(line, dict)]
        shown.extend(line.get("message") for line in lines)
    return any(isinstance(part, str) and text in part.casefold() for part in shown)


def sort_key(record: RunRecord) -> SortKey:
    """What runs are ordered by, newest last."""
    return (record.created_at or _EPOCH, record.run_id, record.module, record.job)


def parse_statuses(status: str | Iterable[str] | None) -> frozenset[RunStatus] | None:
    """The statuses meant, in any case, one or several.

    >>> sorted(parse_statuses(["failed", "timed-out"]) or ())
    [<RunStatus.FAILED: 'FAILED'>, <RunStatus.TIMED_OUT: 'TIMED_OUT'>]

    Raises:
        ConfigError: no such status.
    """
    if status is None:
        return None
    names = [status] if isinstance(status, str) else list(status)
    try:
        return frozenset(RunStatus(name) for name in names)
    except ValueError:
        known = ", ".join(RunStatus)
        raise ConfigError(f"no such run status: {names!r}; there are {known}") from None


class Newest:
    """Keeps the newest of the records shown to it: memory for `limit`, however many pass by."""

    def __init__(self, limit: int, passes: Callable[[RunRecord], bool], before: SortKey | None = None) -> None:
        self._limit = limit
        self._passes = passes
        self._before = before
        self._heap: list[SortKey] = []
        self._kept: dict[SortKey, RunRecord] = {}

    def show(self, record: RunRecord) -> None:
        """Keep the record if it passes, is older than `before` and among the newest so far."""
        key = sort_key(record)
        if self._limit < 1 or (self._before is not None and key >= self._before) or not self._passes(record):
            return
        if key in self._kept:  # a scan that meets a record while it is rewritten may show it twice
            self._kept[key] = record
        elif len(self._heap) < self._limit:
            heapq.heappush(self._heap, key)
            self._kept[key] = record
        elif key > self._heap[0]:
            del self._kept[heapq.heapreplace(self._heap, key)]
            self._kept[key] = record

    def may_keep(self, seen: Glance) -> bool:
        """Whether a record may be among the newest so far, at a glance."""
        created = seen.get("created_at")
        return (
            self._limit == 0
            or len(self._heap) < self._limit
            or not isinstance(created, datetime)
            or (created >= self._heap[0][0])
        )

    def complete(self, until: datetime) -> bool:
        """Whether no run made up to an instant could still be kept."""
        return 0 < self._limit <= len(self._heap) and self._heap[0][0] > until + CLOCKS_DIFFER

    def records(self) -> list[RunRecord]:
        """What was kept, newest first."""
        return [self._kept[key] for key in sorted(self._heap, reverse=True)]


class Unrolling:
    """Gives the records shown to it newest first, each as soon as nothing newer can come; holds `capacity` at most.

    Where more wait for their turn, the oldest are let go, and another scan has to bring them again: `cut` tells. What
    was given, or is newer than that, is left out from then on.
    """

    def __init__(self, passes: Callable[[RunRecord], bool], capacity: int) -> None:
        self._passes = passes
        self._capacity = capacity
        self._held: dict[SortKey, RunRecord] = {}
        self._floor: SortKey | None = None
        self._given: SortKey | None = None

    @property
    def cut(self) -> bool:
        """Whether some were let go since the last `begin`."""
        return self._floor is not None

    def begin(self) -> None:
        """A scan begins anew."""
        self._floor = None

    def show(self, record: RunRecord) -> None:
        """Hold the record if it passes and its turn is still to come."""
        key = sort_key(record)
        if self._given is not None and key >= self._given:
            return
        if (self._floor is not None and key <= self._floor) or not self._passes(record):
            return
        self._held[key] = record
        if len(self._held) >= 2 * self._capacity:
            self._let_go()

    def give(self, until: datetime | None = None) -> list[RunRecord]:
        """Those made after an instant, newest first; without one all that are held."""
        keys = [key for key in self._held if until is None or key[0] > until + CLOCKS_DIFFER]
        keys.sort(reverse=True)
        if keys:
            self._given = keys[-1]
        return [self._held.pop(key) for key in keys]

    def _let_go(self) -> None:
        keys = sorted(self._held)
        doomed = keys[: len(keys) - self._capacity]
        for key in doomed:
            del self._held[key]
        self._floor = doomed[-1]
