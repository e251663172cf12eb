"""The filters that a call names, checked and made into one value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, TypedDict

from jetjobs._client.calls import Deadline, read
from jetjobs._client.scope import Scope
from jetjobs._core.durations import InstantLike, instant
from jetjobs._core.models import RunStatus
from jetjobs._core.names import check_job_name, check_module_name, split_address
from jetjobs._core.run_filter import RunFilter, parse_statuses
from jetjobs._core.triggers import schedule_id
from jetjobs.errors import ClientError, ConfigError, InvalidNameError, PermissionMissing

WAITING = frozenset({RunStatus.QUEUED, RunStatus.SCHEDULED})


class RunFilters(TypedDict, total=False):
    """Which runs are meant; what is left out lets every run pass.

    `status`: one or several, in any case. `since` counts in, `until` doesn't, both of the run's creation. `schedule`: a
    schedule's name, as in `billing.close_day/cron`, or its id. `error_type`: the exception's class name. `text` is
    looked for in id, key, error, reason and logs. SKIPPED runs show only with `include_skipped` or their status.
    """

    module: str | None
    job: str | None
    status: str | Iterable[str] | None
    since: InstantLike | None
    until: InstantLike | None
    schedule: str | None
    error_type: str | None
    text: str | None
    include_skipped: bool


_NAMES = frozenset(RunFilters.__annotations__)


def names_any(filters: Mapping[str, Any]) -> bool:
    """Whether the filters choose among runs at all."""
    return any(value is not None for name, value in filters.items() if name != "include_skipped")


def read_filters(filters: RunFilters, *, waiting_too: bool = False) -> RunFilter:
    """The filter that is meant, with the schedule as it was written.

    Raises:
        ConfigError: an unknown status, or an instant without a zone.
        InvalidNameError: no module or job can be called so.
        ClientError: only runs without a record are asked for, where records are looked at.
    """
    unknown = sorted(filters.keys() - _NAMES)
    if unknown:
        raise ConfigError(f"there is no filter {', '.join(unknown)}; there are {', '.join(sorted(_NAMES))}")
    statuses = parse_statuses(filters.get("status"))
    if not waiting_too and statuses and statuses <= WAITING:
        raise ClientError(
            "runs that are QUEUED or SCHEDULED have no record to list yet; look at one with client.runs.get(run_id)"
        )
    module, job = filters.get("module"), filters.get("job")
    return RunFilter(
        module=None if module is None else check_module_name(module),
        job=None if job is None else check_job_name(job),
        statuses=statuses,
        since=_instant(filters.get("since"), "since"),
        until=_instant(filters.get("until"), "until"),
        schedule_id=filters.get("schedule"),
        error_type=filters.get("error_type"),
        text=filters.get("text"),
        include_skipped=bool(filters.get("include_skipped")),
    )


async def resolve(scope: Scope, wanted: RunFilter, deadline: Deadline) -> RunFilter:
    """The filter with the schedule's id in the place of its name.

    A declared schedule's id follows from its name, so its runs are found when its record has gone, too.
    """
    given = wanted.schedule_id
    if given is None:
        return wanted
    with suppress(PermissionMissing):
        found = await read(lambda: scope.backend.schedules.find(given), deadline, f"looking up schedule {given}")
        if found is not None:
            return replace(wanted, schedule_id=found.schedule.schedule_id)
    return replace(wanted, schedule_id=_declared_id(given))


def _declared_id(given: str) -> str:
    address, slash, name = given.partition("/")
    if not slash:
        return given
    try:
        return schedule_id(split_address(address), name)
    except InvalidNameError:
        return given


def _instant(given: InstantLike | None, what: str) -> datetime | None:
    return None if given is None else instant(given, what)
