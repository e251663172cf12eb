"""What some other KV client deletes leaves a marker, which is no entry: everything can be made again there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta

import nats
import pytest

from jetjobs._core import names
from jetjobs._core.controls import JobControl
from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._ports import Backend
from jetjobs.errors import WrongRevision
from tests.support.worlds import NatsWorld

pytestmark = pytest.mark.integration

SEND = JobAddress("billing", "send")
RUN = RunRecord("r1", *SEND, RunStatus.RUNNING, starts=1, claim="c1", host_id="h1")
NIGHTLY = ScheduleRecord("s1", "billing.send/cron", *SEND, "cron", "0 2 * * *")
HOUR = timedelta(hours=1)


Make = Callable[[Backend], Awaitable[object]]

# What makes an entry, in which bucket it lies, and under which key.
RUNS, SCHEDULES, JOBS, HOSTS = names.runs_bucket, names.schedules_bucket, names.jobs_bucket, names.hosts_bucket
RUN_KEY = names.record_subject("p", RUN.run_key).removeprefix(names.bucket_subject(RUNS("p"), ""))
NAME_KEY = names.schedule_name_key(NIGHTLY.name)
CREATES: dict[str, tuple[Make, Callable[[str], str], str]] = {
    "run": (lambda ports: ports.runs.create(RUN), RUNS, RUN_KEY),
    "run with a lifetime": (lambda ports: ports.runs.create(RUN, ttl=HOUR), RUNS, RUN_KEY),
    "schedule": (lambda ports: ports.schedules.create(NIGHTLY), SCHEDULES, names.schedule_key("s1")),
    "schedule's name": (lambda ports: ports.schedules.create(NIGHTLY), SCHEDULES, NAME_KEY),
    "descriptor": (lambda ports: ports.catalog.describe(JobDescriptor(*SEND)), JOBS, names.job_key(SEND)),
    "orders": (lambda ports: ports.catalog.set_control(JobControl(*SEND), 0), JOBS, names.control_key(SEND)),
    "lease": (lambda ports: ports.catalog.lease("pruner", "h1", HOUR), HOSTS, names.lease_key("pruner")),
}


@pytest.mark.parametrize("what", CREATES)
async def test_a_marker_is_written_over(nats_url: str, project: str, what: str):
    make, bucket, key = CREATES[what]
    world = NatsWorld(project, nats_url)
    backend = await world.connect()
    await backend.broker.ensure_project()
    subject = names.bucket_subject(bucket(project), key)
    await world.publish(subject, b"a former one")
    client = await nats.connect(nats_url)
    entries = await client.jetstream().key_value(bucket(project))
    await entries.delete(key)
    assert await make(backend) is not False
    stored = await client.jetstream().get_last_msg(names.bucket_stream(bucket(project)), subject)
    assert stored.data
    await client.close()
    await world.close()


async def test_of_those_that_find_the_marker_one_writes(nats_url: str, project: str):
    world = NatsWorld(project, nats_url)
    backend = await world.connect()
    await backend.broker.ensure_project()
    await world.publish(names.record_subject(project, RUN.run_key), b"")
    first = await backend.runs.create(RUN)
    with pytest.raises(WrongRevision) as lost:
        await backend.runs.create(RUN)
    assert lost.value.actual == first
    stored = await backend.runs.get(RunKey(*SEND, "r1"))
    assert stored is not None
    assert (stored.record, stored.revision) == (RUN, first)
    await world.close()
