"""Which runs a call on many means: those it names, or those its filters choose in this moment."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, cast

from jetjobs._client.calls import Deadline, Pauses
from jetjobs._client.reading import Reader, due_at, only_one, trigger_of
from jetjobs._client.run_filters import RunFilters, names_any, read_filters, resolve
from jetjobs._client.scanning import unroll, where
from jetjobs._client.scope import Scope
from jetjobs._core.models import RunKey, RunRecord
from jetjobs._core.names import check_job_name, check_module_name
from jetjobs._core.run_changes import first_of_row
from jetjobs._core.run_filter import RunFilter
from jetjobs._core.run_ids import safe_run_id
from jetjobs._core.triggering import waiting_record
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, ClientError, ConfigError


class NamedRun(Protocol):
    """Whatever knows which run it is: a `JobRun`, of either client."""

    @property
    def key(self) -> RunKey:
        """The run."""
        ...


RunIds = str | RunKey | RunRecord | NamedRun | Iterable[str | RunKey | RunRecord | NamedRun]
"""Runs by id, record, or as a trigger gave them; one or many."""


class Candidate(NamedTuple):
    """A run to look at: found with its names, or only an id, with whatever else says which job it is of."""

    run_id: str
    run: RunKey | None = None
    first: RunKey | None = None
    module: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What a call was asked to change: `named` runs in their order, or else all that `wanted` lets pass."""

    named: tuple[Candidate, ...] | None
    wanted: RunFilter
    limit: int | None


def read_choice(runs: RunIds | None, filters: RunFilters, limit: int | None, *, waiting_too: bool = False) -> Choice:
    """What is asked for.

    Raises:
        ClientError: neither runs nor filters; a call that changes everything must be meant.
        ConfigError: ids together with other filters than module and job, or an impossible limit.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be 1 or more, not {limit!r}")
    wanted = read_filters(filters, waiting_too=waiting_too)
    if runs is None:
        if not names_any(filters):
            raise ClientError(
                "this would change every run of the project; name runs, or choose them with filters such as job="
            )
        return Choice(None, wanted, limit)
    if limit is not None or any(filters.get(name) is not None for name in filters if name not in {"module", "job"}):
        raise ConfigError("with runs by id only module= and job= say something more; leave the other filters out")
    module, job = filters.get("module"), filters.get("job")
    return Choice(tuple(dict.fromkeys(_candidate(run, module, job) for run in _several(runs))), wanted, None)


def _several(runs: RunIds) -> Iterable[Any]:
    one = isinstance(runs, (str, RunKey, RunRecord)) or hasattr(runs, "key")
    return (runs,) if one else cast("Iterable[Any]", runs)


def _candidate(run: Any, module: str | None, job: str | None) -> Candidate:
    if isinstance(run, RunRecord):
        return Candidate(run.run_id, run.run_key)
    key = run if isinstance(run, RunKey) else getattr(run, "key", None)
    if isinstance(key, RunKey):
        return Candidate(key.run_id, key)
    run_id = safe_run_id(run)
    if module is not None and job is not None:
        return Candidate(run_id, RunKey(check_module_name(module), check_job_name(job), run_id))
    return Candidate(run_id, None, None, module, job)


async def find(scope: Scope, candidate: Candidate, deadline: Deadline) -> RunKey:
    """The run that is meant.

    Raises:
        RunNotFound, AmbiguousRunId: none, or several.
    """
    if candidate.run is not None:
        return candidate.run
    found = await Reader(scope).find(candidate.run_id, deadline)
    names = RunFilter(module=candidate.module, job=candidate.job, include_skipped=True)
    return only_one([record for record in found if names.passes(record)], candidate.run_id, scope.project).run_key


async def choose(scope: Scope, choice: Choice, patience: Deadline) -> list[Candidate]:
    """The runs meant, newest first where filters choose among records; little is held of each.

    `patience` begins anew with each part of the records that was read.
    """
    if choice.named is not None:
        return list(choice.named)
    wanted = await resolve(scope, choice.wanted, patience)
    found: list[Candidate] = []
    async with aclosing(unroll(scope, wanted, patience)) as batches:
        async for batch in batches:
            found += [Candidate(record.run_id, record.run_key, first_of_row(record)) for record in batch]
            if choice.limit is not None and len(found) >= choice.limit:
                return found[: choice.limit]
    return found


async def waiting_runs(scope: Scope, wanted: RunFilter, patience: Deadline) -> Collection[RunKey]:
    """Runs with a message in the stream that would pass if they hadn't started, those to come later first.

    `patience` begins anew with each that is met.

    Raises:
        BrokerUnavailable: nothing came for so long.
    """
    job, module = where(wanted)
    found: dict[RunKey, None] = {}
    pauses = Pauses(patience)
    while True:
        try:
            async for message in scope.backend.broker.waiting(job, module=module):
                patience.renew()
                trigger = trigger_of(scope.project, message)
                if trigger is not None and wanted.passes(waiting_record(trigger, due_at(message), None)):
                    found[trigger.key] = None
        except (BrokerUnavailable, AnswerUnknown) as error:
            if not await pauses.another_try(error):
                raise BrokerUnavailable(f"looking for runs that wait: {error}") from error
        else:
            return found
