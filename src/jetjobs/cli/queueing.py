"""Why a run is still QUEUED, as far as the project's own records tell."""

from __future__ import annotations

from jetjobs._core.controls import JobInfo
from jetjobs._core.descriptors import takers
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs.cli.orders import orders_text
from jetjobs.client import JobClient
from jetjobs.errors import BrokerError, UnknownJobError


async def queued_because(client: JobClient, record: RunRecord) -> str | None:
    """What a QUEUED run waits for; `None` for any other, and for a user who may not look."""
    if record.status is not RunStatus.QUEUED:
        return None
    address = record.run_key.address
    try:
        job = await client.jobs.get(*address)
        hosts = takers(await client.hosts.list())[address]
    except UnknownJobError:
        return f"a host that describes {address}; none ever did: look at the name, or start one with `jetjobs run PATH`"
    except BrokerError:  # the run itself could be read; this is an extra
        return None
    return waits_text(job, hosts)


def waits_text(job: JobInfo, hosts: int) -> str:
    """The first thing that keeps runs of the job from starting; `hosts` take them."""
    if job.paused:
        return f"`jetjobs jobs resume {job.address}`: the job is {orders_text(job)}"
    if not hosts:
        return f"a host that takes {job.address}: none lives; start one with `jetjobs run PATH`"
    return f"its turn, or room on a host: at most {job.limit} at once over all hosts; live hosts with it: {hosts}"
