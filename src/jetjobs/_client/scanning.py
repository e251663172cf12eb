"""Runs that match, newest first: one page of them, or all in one go, with memory for a page.

Records come from the last written to the first, so a page of recent runs costs a few round trips however many there
are. Filters that few runs pass need a look at all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final, cast

from jetjobs._client.calls import Deadline, Pauses, read
from jetjobs._client.scope import Scope
from jetjobs._core.glance import Glance, Wanted
from jetjobs._core.models import JobAddress, RunRecord
from jetjobs._core.run_filter import Newest, RunFilter, SortKey, Unrolling
from jetjobs._ports import Slice
from jetjobs.errors import AnswerUnknown, BrokerUnavailable

_HELD: Final = 10_000


async def page(
    scope: Scope, wanted: RunFilter, limit: int, *, before: SortKey | None, deadline: Deadline
) -> list[RunRecord]:
    """The newest `limit` that match and are older than `before`."""

    async def scan() -> list[RunRecord]:
        kept = Newest(limit, wanted.passes, before)  # a new one for each try

        def may_be_kept(seen: Glance) -> bool:
            return kept.may_keep(seen) and wanted.may_pass(seen)

        async with aclosing(_newest(scope, wanted, may_be_kept)) as slices:
            async for found, until in slices:
                for stored in found:
                    kept.show(stored.record)
                if kept.complete(until) or wanted.is_past(until):
                    break
        return kept.records()

    return await read(scan, deadline, f"listing runs of project '{scope.project}'")


async def unroll(scope: Scope, wanted: RunFilter, patience: Deadline) -> AsyncGenerator[list[RunRecord], None]:
    """All that match, newest first, some at a time. Runs made meanwhile are left out.

    `patience` begins anew with each part that was read.

    Raises:
        BrokerUnavailable: nothing came for so long.
    """
    unrolling = Unrolling(wanted.passes, _HELD)
    pauses = Pauses(patience)
    while True:
        try:
            async with aclosing(_one_pass(scope, wanted, unrolling)) as batches:
                async for given in batches:
                    patience.renew()
                    if given:
                        yield given
                        patience.renew()
        except (BrokerUnavailable, AnswerUnknown) as error:
            if await pauses.another_try(error):
                continue
            raise BrokerUnavailable(f"listing runs: nothing came for {patience.seconds:g} s: {error}") from error
        if not unrolling.cut:
            return


async def _one_pass(scope: Scope, wanted: RunFilter, unrolling: Unrolling) -> AsyncGenerator[list[RunRecord], None]:
    """What one scan gives; an empty list for each part of it that gave nothing."""
    unrolling.begin()
    async with aclosing(_newest(scope, wanted, wanted.may_pass)) as slices:
        async for found, until in slices:
            for stored in found:
                unrolling.show(stored.record)
            yield unrolling.give(until)
            if wanted.is_past(until):
                break
    yield unrolling.give()


def where(wanted: RunFilter) -> tuple[JobAddress | None, str | None]:
    """The job, or else the module, to whose records a filter limits a scan."""
    if wanted.module is not None and wanted.job is not None:
        return JobAddress(wanted.module, wanted.job), None
    return None, wanted.module


def _newest(scope: Scope, wanted: RunFilter, at_a_glance: Wanted) -> AsyncGenerator[Slice, None]:
    job, module = where(wanted)
    slices: AsyncIterator[Slice] = scope.backend.runs.newest(job, module=module, wanted=at_a_glance)
    return cast("AsyncGenerator[Slice, None]", slices)  # both stores' are, and one left in the middle should end there
