"""Jobs with schedules, as the environment says: `{"job": {"triggers": [["every", "1s", {}]], "takes": 0.5}}`."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from notes import noted

from jetjobs import Cron, Every, JobContext, Module

module = Module("t")


def _trigger(kind: str, line: str, options: dict[str, Any]) -> Cron | Every:
    return Cron(line, **options) if kind == "cron" else Every(line, **options)


def _handler(takes: float) -> Callable[[JobContext[Any]], Awaitable[None]]:
    async def handler(ctx: JobContext[Any]) -> None:
        due = ctx.trigger.scheduled_for
        with noted(ctx, due=due.timestamp() if due else None, now=time.time(), schedule=ctx.trigger.schedule_id):
            await asyncio.sleep(takes)

    return handler


for _name, _job in json.loads(os.environ["TICKING"]).items():
    module.expose_job(
        _name,
        _handler(_job.get("takes", 0)),
        triggers=[_trigger(*trigger) for trigger in _job.get("triggers", ())],
        max_concurrency=_job.get("at_once", 1),
        max_attempts=_job.get("attempts", 1),
        expires_in=_job.get("expires_in"),
        timeout="5m",
    )
