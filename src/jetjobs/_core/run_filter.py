"""Which runs a list shows, and in which order: newest first, by creation and then by id."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from jetjobs._core.models import RunRecord, RunStatus
from jetjobs.errors import ConfigError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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

    def _content_passes(self, record: RunRecord) -> bool:
        created = record.created_at or _EPOCH
        if (self.since is not None and created < self.since) or (self.until is not None and created >= self.until):
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

    def records(self) -> list[RunRecord]:
        """What was kept, newest first."""
        return [self._kept[key] for key in sorted(self._heap, reverse=True)]
