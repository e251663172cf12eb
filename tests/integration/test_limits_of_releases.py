"""Whose limit a job has at the broker while releases come, go and come back."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs import HostSettings, JobContext, JobHost, Module
from jetjobs._core import names
from jetjobs._core.models import JobAddress
from jetjobs.errors import UnknownJobError
from tests.support.field import QUICK, Field
from tests.support.links import until_it

pytestmark = pytest.mark.integration

SEND = JobAddress("shop", "send")


def shop(limit: int) -> Module:
    module = Module("shop")

    @module.job(timeout="20s", max_concurrency=limit)
    async def send(ctx: JobContext[Any]) -> None: ...

    return module


async def limit(field: Field) -> int | None:
    return (await field.consumer("shop.send")).config.max_ack_pending


async def described(field: Field) -> tuple[int, str | None]:
    (found,) = await field.client.jobs.list()
    return found.max_concurrency, found.version


@pytest.mark.parametrize("old, new", [(2, 5), (5, 2)], ids=["up", "down"])
async def test_the_newer_release_decides_and_a_roll_back_does_not_undo_it(field: Field, old: int, new: int):
    first = await field.host(shop(old), version="1")
    assert await limit(field) == old
    second = await field.host(shop(new), version="2")
    assert await limit(field) == new
    await first.close()
    with capture_logs() as said:
        await field.host(shop(old), version="1")
    assert await limit(field) == new
    assert await described(field) == (new, "2")
    (told,) = [each for each in said if each["event"] == "job_description_stands"]
    assert (told["mine"], told["max_concurrency"]) == (old, new)
    assert told["reason"] == "as release 2 described it, since release 1 is older"
    await second.close()
    await field.host(shop(old), version="2.0.1")  # the old code, released anew
    assert await limit(field) == old


async def test_a_release_that_says_the_same_keeps_older_ones_from_changing_it(field: Field):
    await (await field.host(shop(3), version="1")).close()
    await (await field.host(shop(3), version="2")).close()
    await (await field.host(shop(9), version="1.5")).close()
    assert await limit(field) == 3
    assert await described(field) == (3, "2")


async def test_without_releases_the_change_comes_when_the_old_host_has_gone(field: Field):
    old = await field.host(shop(2))
    await field.host(shop(5))
    assert await limit(field) == 2
    await old.close()

    async def changed() -> bool:
        return await limit(field) == 5

    await until_it(changed)
    assert await described(field) == (5, None)


async def test_a_removed_job_that_was_cleared_away_is_unknown_and_can_come_back(field: Field):
    """As the page on upgrades says: with the `nats` command."""
    await (await field.host(shop(2), version="1")).close()
    jetstream = field.nats.jetstream()
    await jetstream.delete_consumer(names.stream(field.project), names.consumer(SEND))
    await (await jetstream.key_value(names.jobs_bucket(field.project))).delete(names.job_key(SEND))
    assert await field.client.jobs.list() == []
    with pytest.raises(UnknownJobError):
        await field.client.get_job("shop.send").trigger()
    await field.host(shop(3), version="1")
    assert await described(field) == (3, "1")
    run = await field.client.get_job("shop.send").trigger()
    assert (await run.wait(timeout=45)).ok


async def test_prepare_makes_what_is_missing_and_changes_no_limit(field: Field):
    await field.host(shop(2), version="1")
    hosts = await field.client.hosts.list()
    module = shop(5)

    @module.job(timeout="20s")
    async def fresh(ctx: JobContext[Any]) -> None: ...

    coming = JobHost([module], project=field.project, nats=field.url, version="2", settings=HostSettings(**QUICK))
    await coming.prepare()
    assert await limit(field) == 2
    assert (await field.consumer("shop.fresh")).config.max_ack_pending == 1
    run = await field.client.get_job("shop.fresh").trigger()
    assert run.no_host
    assert [host.host_id for host in await field.client.hosts.list()] == [host.host_id for host in hosts]
    await coming.close()
