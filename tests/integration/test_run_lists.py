"""Lists over runs of every outcome: each filter alone and together, statuses in any case, pages without a gap."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetjobs import JobContext, Module, RunStatus
from jetjobs._core.models import RunRecord
from jetjobs.errors import AmbiguousRunId, ClientError, ConfigError, RunNotFound
from tests.support.field import Field, field_of
from tests.support.raw_socket import head

pytestmark = pytest.mark.integration


class OddError(Exception):
    pass


def mixed() -> Module:
    module = Module("mixed.a")

    @module.job(timeout="500ms", max_concurrency=8)
    async def end(ctx: JobContext, how: str) -> str:
        match how:
            case "skip":
                ctx.skip("nothing to do")
            case "fail":
                raise ValueError("Bad Value")
            case "odd":
                ctx.log("a hint of Marzipan")
                raise OddError
            case "hang":
                await asyncio.sleep(60)
            case _:
                return how
        return ""

    @module.job(timeout="20s")
    async def other(ctx: JobContext, payload: Any = None) -> None:
        """The same run ids may be there."""

    return module


OUTCOMES = {
    "ok": RunStatus.SUCCEEDED,
    "skip": RunStatus.SKIPPED,
    "fail": RunStatus.FAILED,
    "odd": RunStatus.FAILED,
    "hang": RunStatus.TIMED_OUT,
    "cancel": RunStatus.CANCELLED,
    "miss": RunStatus.MISSED,
}


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    """Runs named after their outcome, made in the order of `OUTCOMES`, one of another job last."""
    async with field_of(nats_url, project) as made:
        await made.host(mixed())
        for how, status in OUTCOMES.items():
            lines = head(Jetjobs_Start_Deadline="2001-01-01T00:00:00Z") if how == "miss" else None
            if how == "cancel":
                run = await made.client.get_job("mixed.a.end").trigger("ok", delay="1h", idempotency_key="of Anna")
                await run.cancel()
                continue
            await made.raw.pub(made.subject("mixed.a.end", f"run.{how}"), f'"{how}"'.encode(), lines)
            assert (await made.ended("mixed.a.end", how)).status is status
        await made.raw.pub(made.subject("mixed.a.other", "run.ok"), b"")
        await made.ended("mixed.a.other", "ok")
        yield made


async def listed(field: Field, **filters: Any) -> list[str]:
    """What a list shows, by how each run ended; `iter` must show the same."""
    records = await field.client.runs.list(**filters)
    iterated = [record async for record in field.client.runs.iter(**filters)]
    assert iterated == records
    created = [record.created_at for record in records]
    assert created == sorted(created, key=str, reverse=True)
    return [
        "cancel" if record.key == "of Anna" else f"{record.run_id}" + "*" * (record.job == "other")
        for record in records
    ]


NEWEST_FIRST = ["ok*", "miss", "cancel", "hang", "odd", "fail", "ok"]


async def test_all_filters(field: Field):
    assert await listed(field) == NEWEST_FIRST
    assert await listed(field, include_skipped=True) == [*NEWEST_FIRST[:-1], "skip", "ok"]
    assert await listed(field, module="mixed.a", job="other") == ["ok*"]
    assert await listed(field, module="mixed.a") == NEWEST_FIRST
    assert await listed(field, module="mixed") == []
    assert await listed(field, job="end", status=["FAILED", "missed"]) == ["miss", "odd", "fail"]
    assert await listed(field, error_type="OddError") == ["odd"]
    assert await listed(field, error_type="Odd") == []
    assert await listed(field, text="bad vaLUE") == ["fail"]
    assert await listed(field, text="marzipan") == ["odd"]
    assert await listed(field, text="OF ANNA") == ["cancel"]
    assert await listed(field, text="nothing to do") == []
    assert await listed(field, text="nothing to do", include_skipped=True) == ["skip"]
    assert await listed(field, text="start deadline") == ["miss"]


def dashed(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.parametrize("spell", [str.upper, str.lower, str.title, dashed])
async def test_a_status_in_any_case(field: Field, spell: Any):
    for status in RunStatus:
        assert RunStatus(spell(status.value)) is status
        if status in {RunStatus.QUEUED, RunStatus.SCHEDULED}:
            with pytest.raises(ClientError, match="no record"):
                await field.client.runs.list(status=spell(status.value))
            continue
        expected = [how for how in reversed(OUTCOMES) if OUTCOMES[how] is status]
        assert await listed(field, job="end", status=spell(status.value)) == expected
    with pytest.raises(ConfigError, match="SUCCEEDED"):
        await field.client.runs.list(status="done")


async def test_since_and_until_by_creation(field: Field):
    records = await field.client.runs.list(include_skipped=True)
    middle = records[3].created_at
    assert middle is not None
    later = await field.client.runs.list(include_skipped=True, since=middle)
    earlier = await field.client.runs.list(include_skipped=True, until=middle)
    assert (later, earlier) == (records[:4], records[4:])
    assert await field.client.runs.list(since=datetime.now(UTC) + timedelta(hours=1)) == []
    assert await field.client.runs.list(until=1.0) == []
    with pytest.raises(ConfigError, match="has no zone"):
        await field.client.runs.list(since=datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
async def test_pages_have_no_gap_and_no_double(field: Field, limit: int):
    whole = await field.client.runs.list(include_skipped=True)
    pages: list[RunRecord] = []
    before: RunRecord | None = None
    while page := await field.client.runs.list(include_skipped=True, limit=limit, before=before):
        pages += page
        before = page[-1]
    assert pages == whole
    for wrong in (0, -1):
        with pytest.raises(ConfigError):
            await field.client.runs.list(limit=wrong)


async def test_one_run_by_its_id(field: Field):
    assert (await field.client.runs.get("fail")).status is RunStatus.FAILED
    assert (await field.client.runs.get("skip")).skip_reason == "nothing to do"
    with pytest.raises(AmbiguousRunId, match=r"mixed\.a\.end.*mixed\.a\.other"):
        await field.client.runs.get("ok")
    assert (await field.client.runs.get("ok", job="other")).job == "other"
    assert (await field.client.runs.get("ok", module="mixed.a", job="end")).result == "ok"
    for names in ({}, {"job": "end"}, {"module": "mixed.a"}, {"module": "mixed.a", "job": "end"}):
        with pytest.raises(RunNotFound):
            await field.client.runs.get("nobody", **names)
    with pytest.raises(RunNotFound):
        await field.client.runs.get("fail", job="other")
