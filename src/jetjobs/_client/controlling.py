"""Order something for a job in use: read, decide, write; again when somebody else wrote first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from jetjobs._client.calls import Deadline, Unconfirmed, read
from jetjobs._client.scope import Scope
from jetjobs._core.controls import JobControl, JobInfo, job_info, present_name
from jetjobs._core.models import JobAddress
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable, WrongRevision

Decide = Callable[[JobControl, datetime], JobControl]
"""The orders after the call, from those before it and the instant; the same object when they stand already."""


async def look_up(scope: Scope, address: JobAddress, deadline: Deadline) -> JobInfo:
    """A job as it is described and ordered.

    Raises:
        UnknownJobError: no host ever described it; has `.close_names`.
    """
    catalog = scope.backend.catalog
    described, stored = await asyncio.gather(
        read(lambda: catalog.job(address), deadline, f"looking up job {address}"),
        read(lambda: catalog.control(address), deadline, f"looking up job {address}"),
    )
    if described is None:
        raise await scope.lookup.unknown(address, deadline)
    present = present_name(described)
    inherited = None
    if present is not None:
        of_present = await read(lambda: catalog.control(present), deadline, f"looking up job {present}")
        inherited = None if of_present is None else of_present.control
    return job_info(described, None if stored is None else stored.control, inherited)


async def order(scope: Scope, address: JobAddress, decide: Decide, deadline: Deadline) -> JobInfo:
    """Bring a job's orders to what `decide` says, and tell the hosts; the job as it is then.

    An answer that was lost is no matter: read again, the orders stand or are written once more.

    Raises:
        UnknownJobError: no host ever described it.
        AnswerUnknown: not confirmed in time; do it again.
        BrokerUnavailable: nothing was sent.
        PermissionMissing: this user may not.
    """
    found = await look_up(scope, address, deadline)
    now = await scope.time.now(scope.backend.broker, deadline)
    catalog, unconfirmed = scope.backend.catalog, Unconfirmed(deadline, f"orders for job {address}")
    while True:
        reading = read(lambda: catalog.control(address), deadline, f"looking up job {address}")
        stored = await unconfirmed.look(reading)
        before = JobControl(*address) if stored is None else stored.control
        after = decide(before, now)
        try:
            if after is not before:
                await catalog.set_control(after, 0 if stored is None else stored.revision)
            break
        except WrongRevision:
            continue
        except (AnswerUnknown, BrokerUnavailable) as error:
            await unconfirmed.pause(error)
    with suppress(BrokerError):  # without the bell hosts look within ten seconds
        await scope.backend.broker.ring_control(address)
    scope.lookup.note_paused(address, paused=after.paused)
    known = stored is not None or after is not before
    return job_info(found, after if known else None, found.inherited)
