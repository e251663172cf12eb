from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from jetjobs._core import names
from jetjobs._core.descriptors import HostPresence, JobDescriptor
from jetjobs._core.models import JobAddress
from jetjobs._ports import Backend, Catalog
from tests.support.worlds import NatsWorld, World, eventually

SEND = JobDescriptor(
    "billing.invoices",
    "send",
    description="Sends one invoice.",
    max_concurrency=8,
    timeout=timedelta(minutes=2),
    payload_schema={"type": "object", "properties": {"id": {"type": "integer"}}},
    triggers=({"kind": "cron", "line": "0 2 * * *"},),
    digest="d1",
)


@pytest.fixture
def catalog(backend: Backend) -> Catalog:
    return backend.catalog


async def test_a_descriptor_is_published_and_found(catalog: Catalog):
    assert await catalog.job(SEND.address) is None
    assert await catalog.jobs() == []
    assert await catalog.describe(SEND) is None
    assert await catalog.job(SEND.address) == SEND
    assert await catalog.job(JobAddress("billing", "invoices")) is None


async def test_an_equal_descriptor_is_left_alone(catalog: Catalog):
    await catalog.describe(SEND)
    assert await catalog.describe(replace(SEND, host_id="another")) is None
    assert await catalog.job(SEND.address) == SEND


async def test_another_descriptor_replaces_and_gives_what_was_there(catalog: Catalog):
    await catalog.describe(SEND)
    newer = replace(SEND, max_attempts=5, digest="d2")
    assert await catalog.describe(newer) == SEND
    assert await catalog.job(SEND.address) == newer


async def test_an_older_release_replaces_no_newer_ones_descriptor(catalog: Catalog):
    new = replace(SEND, version="2", host_id="b", digest="d2", max_concurrency=2)
    await catalog.describe(replace(SEND, version="1", host_id="a"))
    assert await catalog.describe(new) is not None
    assert await catalog.describe(replace(SEND, version="1", host_id="a")) is None
    assert await catalog.describe(replace(SEND, host_id="c")) is None
    assert await catalog.job(SEND.address) == new


async def test_a_newer_release_that_says_the_same_signs_it(catalog: Catalog):
    await catalog.describe(replace(SEND, version="1"))
    assert await catalog.describe(replace(SEND, version="2")) == replace(SEND, version="1")
    assert await catalog.describe(replace(SEND, version="1.5", digest="d2")) is None
    assert await catalog.job(SEND.address) == replace(SEND, version="2")


async def test_without_a_release_the_word_of_a_living_host_stands(catalog: Catalog):
    theirs, mine = replace(SEND, host_id="a"), replace(SEND, host_id="b", digest="d2")
    await catalog.describe(theirs)
    assert await catalog.describe(mine, living={"a", "c"}) is None
    assert await catalog.describe(mine, living={"c"}) == theirs


async def test_hosts_that_start_together_agree(catalog: Catalog, world: World):
    catalogs = [catalog, (await world.connect()).catalog]
    descriptors = [replace(SEND, digest=f"d{n % 2}", max_attempts=n % 2 + 1) for n in range(8)]
    await asyncio.gather(*(catalogs[n % 2].describe(descriptor) for n, descriptor in enumerate(descriptors)))
    found = await catalog.job(SEND.address)
    assert found in descriptors
    assert await catalogs[1].jobs() == [found]


async def test_jobs_come_by_module_and_job(catalog: Catalog):
    addresses = [("b", "x"), ("a.b", "x"), ("a", "z"), ("a", "y")]
    for module, job in addresses:
        await catalog.describe(replace(SEND, module=module, job=job))
    assert [tuple(found.address) for found in await catalog.jobs()] == sorted(addresses)


def host(backend: Backend, host_id: str) -> HostPresence:
    at = backend.broker.now().replace(microsecond=0)
    return HostPresence(
        host_id,
        "box",
        42,
        version="1.2",
        started_at=at,
        seen_at=at,
        jobs=("billing.send",),
        running=3,
        descriptors={"billing.send": "d1"},
    )


async def test_a_host_is_listed_until_it_leaves(catalog: Catalog, backend: Backend):
    first, second = host(backend, "box.example:1"), host(backend, "h2")
    for presence in (second, first):
        await catalog.say(presence, timedelta(seconds=30))
    assert list(await catalog.hosts()) == [first, second]
    await catalog.leave(first.host_id)
    await catalog.leave("never there")
    assert list(await catalog.hosts()) == [second]


async def test_a_host_that_stops_saying_so_goes_by_itself(catalog: Catalog, backend: Backend, world: World):
    steady, silent = host(backend, "steady"), host(backend, "silent")
    await catalog.say(silent, timedelta(seconds=1))

    async def silent_is_gone() -> bool:
        await catalog.say(replace(steady, running=4), timedelta(seconds=1))
        return [presence.host_id for presence in await catalog.hosts()] == ["steady"]

    await eventually(world, silent_is_gone)
    assert [presence.running for presence in await catalog.hosts()] == [4]
    await catalog.say(silent, timedelta(seconds=1))
    assert len(await catalog.hosts()) == 2


@pytest.mark.integration
async def test_entries_nobody_can_read_are_left_out_and_replaced(nats_url: str, project: str):
    world = NatsWorld(project, nats_url)
    backend = await world.connect()
    await backend.broker.ensure_project()
    other = replace(SEND, job="other")
    await backend.catalog.describe(other)
    await world.publish(names.bucket_subject(names.jobs_bucket(project), names.job_key(SEND.address)), b"\xc1")
    await world.publish(names.bucket_subject(names.hosts_bucket(project), "h1"), b"\xc1")
    with capture_logs() as logs:
        for _ in range(3):
            assert await backend.catalog.jobs() == [other]
            assert await backend.catalog.job(SEND.address) is None
    assert [line["log_level"] for line in logs] == ["warning"], "a host looks every few seconds"
    assert list(await backend.catalog.hosts()) == []
    assert await backend.catalog.describe(SEND) is None
    assert await backend.catalog.job(SEND.address) == SEND
    await world.close()


async def test_a_lease_is_one_holders_until_it_ends(catalog: Catalog, world: World):
    others = [(await world.connect()).catalog for _ in range(4)]
    won = await asyncio.gather(
        *(each.lease("pruner", f"h{n}", timedelta(seconds=1)) for n, each in enumerate([catalog, *others]))
    )
    assert won.count(True) == 1
    assert await catalog.lease("another", "h0", timedelta(seconds=1))
    assert list(await catalog.hosts()) == []

    async def free_again() -> bool:
        return await catalog.lease("pruner", "h9", timedelta(seconds=30))

    await eventually(world, free_again)
    assert not await others[0].lease("pruner", "h9", timedelta(seconds=30)), "not even for its holder"
