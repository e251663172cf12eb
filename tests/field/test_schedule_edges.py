"""Schedules at their edges: before and after their time, under failing runs, declared twice, of another kind."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from jetjobs import Backoff, Cron, Every, JobContext, Module, Snooze
from jetjobs._core import names
from jetjobs._core.messages import Message
from jetjobs._core.models import JobAddress
from jetjobs._core.schedule_record import ScheduleRecord, ScheduleState
from jetjobs._core.triggers import schedule_id
from tests.support.field import Field
from tests.support.links import until, until_it

pytestmark = pytest.mark.integration


class Due:
    """A module whose jobs note which instants they ran for, and how often each was started."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self.module = Module("m")
        self.starts: dict[str, list[float]] = {}

    def add(self, job: str, *triggers: Cron | Every, raises: BaseException | None = None, **policy: Any) -> None:
        noted = self.starts.setdefault(job, [])

        async def note(ctx: JobContext[Any]) -> None:
            assert ctx.trigger.scheduled_for is not None
            noted.append(ctx.trigger.scheduled_for.timestamp())
            if raises is not None and noted.count(noted[-1]) < 3:
                raise raises

        self.module.expose_job(job, note, triggers=triggers, timeout="5s", **policy)

    async def record(self, job: str, name: str) -> ScheduleRecord:
        backend = self.field.client._scope.backend  # type: ignore[union-attr]
        stored = await backend.schedules.get(schedule_id(JobAddress("m", job), name))
        assert stored is not None
        return stored.schedule

    async def message(self, job: str, name: str) -> Message | None:
        address = JobAddress("m", job)
        subject = names.schedule_subject(self.field.project, address, schedule_id(address, name))
        return await self.field.client._scope.backend.broker.last(subject)  # type: ignore[union-attr]


@pytest.fixture
def due(field: Field) -> Due:
    return Due(field)


async def test_b19_a_run_that_waits_for_its_retry_is_going_on(field: Field, due: Due):
    """And one that snoozes: what falls due meanwhile is skipped and counted, and no second run begins."""
    backoff = Backoff("1200ms", factor=1, jitter=0)
    due.add("fails", Every("1s"), raises=ValueError("again"), max_attempts=3, backoff=backoff, max_concurrency=5)
    due.add("snoozes", Every("1s"), raises=Snooze("1200ms"), max_concurrency=5)
    await field.host(due.module)
    await until(lambda: min(len(each) for each in due.starts.values()) >= 6)
    for job, starts in due.starts.items():
        assert starts == sorted(starts)  # none begins before the one before it is through with its three starts
        assert set(Counter(starts[:6]).values()) == {3}
        found = await due.record(job, "every")
        assert found.counters.overlap_skips >= 2
        assert found.counters.missed == found.counters.coalesced == 0


async def test_b21_before_its_start_and_after_its_end_nothing_fires(field: Field, due: Due):
    """The end is kept over restarts, and so is an end that was past when it was declared."""
    now = datetime.now(UTC)
    window: dict[str, Any] = {"start_at": now + timedelta(seconds=3), "end_at": now + timedelta(seconds=5)}
    due.add("every", Every("1s", **window))
    due.add("cron", Cron("* * * * * *", **window))
    due.add("over", Every("1s", end_at=now - timedelta(hours=1)))
    due.add("too_late", Cron("0 0 1 1 *", end_at=now + timedelta(seconds=2)))
    triggers = {"every": "every", "cron": "cron", "over": "every", "too_late": "cron"}

    async def completed() -> bool:
        found = [await due.record(job, name) for job, name in triggers.items()]
        return all(each.state is ScheduleState.COMPLETED for each in found)

    host = await field.host(due.module)
    await until_it(completed)
    ran = {job: list(starts) for job, starts in due.starts.items()}
    assert ran["over"] == ran["too_late"] == []
    for job in ("every", "cron"):
        assert window["start_at"].timestamp() <= ran[job][0] <= ran[job][-1] < window["end_at"].timestamp()
        assert len(ran[job]) == 2
    await host.close()
    await field.host(due.module)
    await until_it(completed)
    for job, name in triggers.items():
        assert await due.message(job, name) is None
    assert due.starts == ran


async def test_b01_two_hosts_of_one_release_that_declare_another_interval_do_not_take_turns(field: Field, due: Due):
    """The last one that started has it; written again at each upkeep, the interval would never come to its end."""
    other = Due(field)
    due.add("j", Every("2s"))
    other.add("j", Every("3s"))
    await field.host(due.module, version="1.0")
    await field.host(other.module, version="1.0")
    message = await due.message("j", "every")
    assert message is not None
    assert message.headers["Nats-Schedule"] == "@every 3s"
    await until(lambda: len({*due.starts["j"], *other.starts["j"]}) >= 3)
    assert await due.message("j", "every") == message
    ran = sorted([*due.starts["j"], *other.starts["j"]])[-3:]
    assert [later - sooner for sooner, later in pairwise(ran)] == [3, 3]


async def test_b03_another_kind_of_trigger_under_the_same_name(field: Field):
    """One schedule, edited: its history stays, each instant runs once, none of the old kind comes later."""
    ran: list[tuple[str, float]] = []
    versions = [Every("1s", name="x"), Cron("*/2 * * * * *", name="x"), Every("2s", name="x")]
    for number, trigger in enumerate(versions):
        due = Due(field)
        due.add("j", trigger)
        host = await field.host(due.module, version=f"1.{number}")
        await until(lambda due=due: len(due.starts["j"]) >= 2)
        await host.close()
        found = await due.record("j", "x")
        kind = "cron" if isinstance(trigger, Cron) else "every"
        ran += [(kind, at) for at in due.starts["j"]]
        assert (found.kind, found.revision, found.counters.runs) == (kind, number + 1, len(ran))
    assert [at for _, at in ran] == sorted({at for _, at in ran})
    assert all(at % 2 == 0 for kind, at in ran if kind == "cron")


async def test_b01_names_that_differ_in_case_alone_are_schedules_of_their_own(field: Field, due: Due):
    for job in ("j", "J"):
        due.add(job, Every("1s", name="a"), Every("1s", name="A"), Cron("* * * * * *", name="every"), max_concurrency=3)
    await field.host(due.module)
    await until(lambda: min(len(each) for each in due.starts.values()) >= 6)
    ids = {schedule_id(JobAddress("m", job), name) for job in ("j", "J") for name in ("a", "A", "every")}
    assert len(ids) == 6
    runs = await asyncio.wait_for(field.client.runs.list(module="m", limit=100), 45)
    assert {run.trigger.schedule_id for run in runs} == ids
