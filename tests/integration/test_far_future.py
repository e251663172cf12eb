"""Instants the broker can't count to: it would fire them at once, so they are refused at the call."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jetjobs import JobContext, Module, RunStatus
from jetjobs.errors import ConfigError
from tests.support.field import field_of

pytestmark = pytest.mark.integration


def later() -> Module:
    module = Module("later")

    @module.job(timeout="20s")
    async def go(ctx: JobContext) -> None:
        """Nothing."""

    return module


@pytest.mark.parametrize(
    "options",
    [
        {"delay": "100000d"},
        {"delay": timedelta.max},
        {"at": datetime(2262, 1, 1, tzinfo=UTC)},
        {"at": datetime.max.replace(tzinfo=UTC)},
        {"expires_in": "11001d"},
        {"expires_in": timedelta.max},
    ],
    ids=repr,
)
async def test_beyond_what_can_be_counted(nats_url: str, project: str, options: dict[str, Any]):
    async with field_of(nats_url, project) as field:
        await field.host(later())
        with pytest.raises(ConfigError, match=next(iter(options))):
            await field.client.get_job("later.go").trigger(**options)
        assert await field.messages() == {}


async def test_the_last_that_can_waits(nats_url: str, project: str):
    async with field_of(nats_url, project) as field:
        await field.host(later())
        job = field.client.get_job("later.go")
        options: tuple[dict[str, Any], ...] = (
            {"at": datetime(2261, 12, 31, tzinfo=UTC)},
            {"delay": "80000d"},
            {"delay": "1h", "expires_in": "11000d"},
        )
        runs = [await job.trigger(**each) for each in options]
        for run in runs:
            with pytest.raises(TimeoutError):
                await run.wait(timeout=0.5)
            assert await run.status() is RunStatus.SCHEDULED
        with pytest.raises(ConfigError, match="2261"):
            await runs[2].reschedule(datetime(2262, 1, 1, tzinfo=UTC))
        for run in runs[:2]:
            await run.reschedule(datetime.now(UTC))
            assert (await run.wait(45)).status is RunStatus.SUCCEEDED
