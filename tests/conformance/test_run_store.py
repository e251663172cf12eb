from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from jetjobs._core.models import JobAddress, LogLine, Owner, RunKey, RunRecord, RunStatus
from jetjobs._ports import Backend, RunStore, Stored
from jetjobs.errors import PayloadInvalidError, WrongRevision
from tests.support.worlds import World, eventually

SEND = JobAddress("billing.invoices", "send")


def running(run_id: str, job: JobAddress = SEND) -> RunRecord:
    return RunRecord(run_id, job.module, job.job, RunStatus.RUNNING, starts=1, claim="c1", host_id="h1")


@pytest.fixture
def runs(backend: Backend) -> RunStore:
    return backend.runs


async def test_what_was_created_is_read_back_with_its_revision_and_time(runs: RunStore, backend: Backend):
    at = backend.broker.now().replace(microsecond=123000)
    record = replace(
        running("r1"),
        owner=Owner(7, at, 2, "h1"),
        started_at=at,
        logs=(LogLine(at, "info", "grüße", {"n": 1}),),
    )
    revision = await runs.create(record)
    stored = await runs.get(record.run_key)
    assert stored is not None
    assert (stored.record, stored.revision) == (record, revision)
    assert abs(stored.stored_at - backend.broker.now()) < timedelta(seconds=5)


async def test_no_record_is_none(runs: RunStore):
    assert await runs.get(RunKey("billing", "send", "nobody")) is None
    assert await runs.find("nobody") == []
    assert not await runs.delete(RunKey("billing", "send", "nobody"), 1)


async def test_create_refuses_a_second_record_and_says_what_is_there(runs: RunStore):
    first = await runs.create(running("r1"))
    with pytest.raises(WrongRevision) as lost:
        await runs.create(replace(running("r1"), claim="c2"))
    assert lost.value.actual == first
    stored = await runs.get(RunKey(*SEND, "r1"))
    assert stored is not None
    assert stored.record.claim == "c1"


async def test_one_of_many_creators_wins(runs: RunStore, world: World):
    other = (await world.connect()).runs
    stores = [runs, other] * 10
    results = await asyncio.gather(
        *(store.create(replace(running("r1"), claim=f"c{n}")) for n, store in enumerate(stores)),
        return_exceptions=True,
    )
    winners = [n for n, result in enumerate(results) if isinstance(result, int)]
    assert len(winners) == 1
    assert sum(isinstance(result, WrongRevision) for result in results) == 19
    stored = await other.get(RunKey(*SEND, "r1"))
    assert stored is not None
    assert stored.record.claim == f"c{winners[0]}"


async def test_update_needs_the_last_revision(runs: RunStore):
    first = await runs.create(running("r1"))
    second = await runs.update(replace(running("r1"), status=RunStatus.SUCCEEDED), first)
    assert second > first
    with pytest.raises(WrongRevision) as lost:
        await runs.update(running("r1"), first)
    assert lost.value.actual == second
    stored = await runs.get(RunKey(*SEND, "r1"))
    assert stored is not None
    assert (stored.record.status, stored.revision) == (RunStatus.SUCCEEDED, second)


async def test_update_of_what_was_never_there_loses(runs: RunStore):
    with pytest.raises(WrongRevision):
        await runs.update(running("r1"), 41)
    assert await runs.get(RunKey(*SEND, "r1")) is None


async def test_a_record_with_a_lifetime_goes_and_may_be_created_again(runs: RunStore, world: World):
    revision = await runs.create(running("r1"))
    await runs.update(replace(running("r1"), status=RunStatus.SKIPPED), revision, ttl=timedelta(seconds=1))
    assert await runs.get(RunKey(*SEND, "r1")) is not None

    async def gone() -> bool:
        return await runs.get(RunKey(*SEND, "r1")) is None

    await eventually(world, gone)
    await runs.create(running("r1"))


async def test_a_record_may_be_created_with_a_lifetime(runs: RunStore, world: World):
    await runs.create(replace(running("r1"), status=RunStatus.MISSED), ttl=timedelta(seconds=1))
    assert await runs.get(RunKey(*SEND, "r1")) is not None

    async def gone() -> bool:
        return await runs.get(RunKey(*SEND, "r1")) is None

    await eventually(world, gone)


async def test_a_lifetime_is_counted_in_whole_seconds_and_a_part_of_one_counts(
    runs: RunStore, backend: Backend, world: World
):
    await runs.create(running("r1"), ttl=timedelta(seconds=1.2))
    stored = await runs.get(RunKey(*SEND, "r1"))
    assert stored is not None

    async def gone() -> bool:
        return await runs.get(RunKey(*SEND, "r1")) is None

    await eventually(world, gone)
    assert backend.broker.now() - stored.stored_at > timedelta(seconds=1.9)


async def test_a_lifetime_without_end_is_a_long_one(runs: RunStore):
    await runs.create(running("r1"), ttl=timedelta.max)
    assert await runs.get(RunKey(*SEND, "r1")) is not None


async def test_a_write_without_lifetime_takes_it_away_and_another_run_keeps_its_own(runs: RunStore, world: World):
    kept = await runs.create(running("kept"))
    kept = await runs.update(running("kept"), kept, ttl=timedelta(seconds=1))
    await runs.update(running("kept"), kept)
    short = await runs.create(running("short"))
    await runs.update(running("short"), short, ttl=timedelta(seconds=1.2))  # a part of a second counts as a whole

    async def short_is_gone() -> bool:
        return await runs.get(RunKey(*SEND, "short")) is None

    await eventually(world, short_is_gone)
    assert await runs.get(RunKey(*SEND, "kept")) is not None


async def test_delete_needs_the_last_revision_and_leaves_no_marker(runs: RunStore):
    key = RunKey(*SEND, "r1")
    first = await runs.create(running("r1"))
    second = await runs.update(running("r1"), first)
    assert not await runs.delete(key, first)
    assert await runs.get(key) is not None
    assert await runs.delete(key, second)
    assert await runs.get(key) is None
    assert not await runs.delete(key, second)
    assert await runs.create(running("r1")) > second
    assert [stored.record.run_id async for stored in runs.scan()] == ["r1"]


async def test_delete_spares_neighbours(runs: RunStore):
    revisions = {name: await runs.create(running(name)) for name in ("r1", "r10", "r1-0")}
    assert await runs.delete(RunKey(*SEND, "r1"), revisions["r1"])
    assert {stored.record.run_id async for stored in runs.scan()} == {"r10", "r1-0"}


async def test_find_sees_the_id_in_every_job_and_nothing_like_it(runs: RunStore):
    others = [SEND, JobAddress("billing", "invoices"), JobAddress("billing", "Send")]
    for job in others:
        await runs.create(running("k-abc", job))
    for near in ("k-abcd", "k-ab", "K-abc"):
        await runs.create(running(near))
    found = await runs.find("k-abc")
    assert sorted(stored.record.run_key.address for stored in found) == sorted(others)
    assert all(stored.record.run_id == "k-abc" for stored in found)


async def _ids(runs: RunStore, job: JobAddress | None = None, module: str | None = None) -> list[str]:
    return sorted([stored.record.run_id async for stored in runs.scan(job, module=module)])


async def test_scan_of_thousands_gives_each_once_by_project_module_and_job(runs: RunStore):
    jobs = [JobAddress("a", "x"), JobAddress("a", "y"), JobAddress("a.b", "x")]
    everything = [running(f"r{n:04}", jobs[n % 3]) for n in range(3000)]
    for start in range(0, 3000, 250):
        await asyncio.gather(*(runs.create(record) for record in everything[start : start + 250]))

    def wanted(*within: JobAddress) -> list[str]:
        return sorted(record.run_id for record in everything if record.run_key.address in within)

    assert await _ids(runs) == wanted(*jobs)
    assert await _ids(runs, module="a") == wanted(jobs[0], jobs[1])
    assert await _ids(runs, module="a.b") == wanted(jobs[2])
    assert await _ids(runs, jobs[1]) == wanted(jobs[1])
    assert await _ids(runs, JobAddress("b", "x")) == []


async def test_scan_can_be_left_early_and_begun_again(runs: RunStore):
    for n in range(5):
        await runs.create(running(f"r{n}"))
    async for _ in runs.scan():
        break
    assert len(await _ids(runs)) == 5


async def test_scan_shows_the_newest_form_of_a_record(runs: RunStore):
    revision = await runs.create(running("r1"))
    revision = await runs.update(replace(running("r1"), status=RunStatus.FAILED), revision)
    found = [stored async for stored in runs.scan()]
    assert [(stored.record.status, stored.revision) for stored in found] == [(RunStatus.FAILED, revision)]


async def test_projects_never_see_each_other(runs: RunStore, world: World):
    await runs.create(running("r1"))
    world.project += "x"
    other = await world.connect()
    await other.broker.ensure_project()
    assert await other.runs.get(RunKey(*SEND, "r1")) is None
    assert await _ids(other.runs) == []
    await other.runs.create(running("r1"))


@pytest.mark.parametrize("garbage", [b"\xc1 not msgpack", b"\x93\x01\x02\x03", b"{}"])
async def test_unreadable_records_raise_alone_and_are_left_out_of_lists(runs: RunStore, world: World, garbage: bytes):
    await runs.create(running("good"))
    await world.write_record(RunKey(*SEND, "bad"), garbage)
    with pytest.raises(PayloadInvalidError):
        await runs.get(RunKey(*SEND, "bad"))
    assert await runs.find("bad") == []
    assert await _ids(runs) == ["good"]
    with pytest.raises(WrongRevision):
        await runs.create(running("bad"))


async def test_a_record_of_half_a_mebibyte_is_kept(runs: RunStore, backend: Backend):
    line = LogLine(backend.broker.now().replace(microsecond=0), "info", "x" * 500_000)
    record = replace(running("big"), logs=(line,))
    revision = await runs.create(record)
    stored = await runs.get(record.run_key)
    assert isinstance(stored, Stored)
    assert stored.record == record
    assert stored.revision == revision


async def test_what_it_holds(runs: RunStore):
    assert (await runs.holding()).entries == 0
    first = await runs.create(running("r1"))
    second = await runs.create(running("r2"))
    assert await runs.holding() == (2, second)
    assert await runs.delete(RunKey(*SEND, "r1"), first)
    assert await runs.holding() == (1, second), "a removal is no write"


async def test_newest_gives_what_was_written_last_first_and_tells_how_far_back_it_is(runs: RunStore, world: World):
    revisions: dict[str, int] = {}
    for n in range(60):
        revisions[f"r{n:02}"] = await runs.create(running(f"r{n:02}"))
        if n % 20 == 19:
            await world.elapse(0.05)
    await runs.update(replace(running("r00"), status=RunStatus.FAILED), revisions["r00"])
    untils: list[datetime] = []
    found: list[Stored] = []
    async for page, until in runs.newest():
        assert not untils or all(stored.stored_at <= untils[-1] for stored in page)
        untils.append(until)
        found += page
    assert {stored.record.run_id for stored in found} == set(revisions)
    assert next(s.record.status for s in found if s.record.run_id == "r00") is RunStatus.FAILED
    assert untils[:-1] == sorted(untils[:-1], reverse=True)


async def test_newest_of_a_job_or_module_as_far_as_wanted(runs: RunStore):
    other = JobAddress("billing", "send")
    for n in range(6):
        await runs.create(running(f"r{n}", SEND if n % 2 else other))
    await runs.create(replace(running("bad"), status=RunStatus.FAILED))

    async def ids(*where: JobAddress, **options: Any) -> set[str]:
        return {stored.record.run_id async for page, _ in runs.newest(*where, **options) for stored in page}

    assert await ids(SEND) == {"r1", "r3", "r5", "bad"}
    assert await ids(module="billing") == {"r0", "r2", "r4"}

    def failed(seen: Mapping[str, Any]) -> bool:
        return seen.get("status") == "FAILED"

    assert await ids(wanted=failed) == {"bad"}
    assert await ids(JobAddress("no", "such")) == set()


async def test_newest_misses_none_that_is_written_again_meanwhile(runs: RunStore):
    revisions = {f"r{n:04}": await runs.create(running(f"r{n:04}")) for n in range(700)}
    found: set[str] = set()
    async for page, _ in runs.newest():
        found |= {stored.record.run_id for stored in page}
        name = min(revisions)  # the one that would come last
        revisions[name] = await runs.update(running(name), revisions.pop(name))
        if len(found) > 400:
            break
    moved: set[str] = set()
    async for page, _ in runs.newest():
        moved |= {stored.record.run_id for stored in page}
        for name in sorted(revisions)[:3]:
            revisions[name] = await runs.update(running(name), revisions[name])
    assert moved == {f"r{n:04}" for n in range(700)}


async def test_newest_leaves_out_what_can_not_be_read(runs: RunStore, world: World):
    await runs.create(running("good"))
    await world.write_record(RunKey(*SEND, "bad"), b"\xc1 not msgpack")
    found = [stored.record.run_id async for page, _ in runs.newest(wanted=lambda _: True) for stored in page]
    assert found == ["good"]
    assert [stored.record.run_id async for stored in runs.written_after(0)] == ["good"]


async def test_what_was_written_after_a_revision(runs: RunStore):
    first = await runs.create(running("r1"))
    second = await runs.create(running("r2"))
    third = await runs.create(running("r3", JobAddress("other", "job")))
    last = await runs.update(replace(running("r1"), status=RunStatus.FAILED), first)

    async def after(revision: int, *where: JobAddress) -> list[tuple[str, int]]:
        return [(stored.record.run_id, stored.revision) async for stored in runs.written_after(revision, *where)]

    assert await after(0) == [("r2", second), ("r3", third), ("r1", last)]
    assert await after(second) == [("r3", third), ("r1", last)]
    assert await after(first, SEND) == [("r2", second), ("r1", last)]
    assert await after(last) == []
