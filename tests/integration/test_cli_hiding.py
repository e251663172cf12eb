"""`redact`, end to end: what it names is stored and read whole, and shown by no command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from jetjobs import JobClient, JobContext, JobHost, Module
from tests.support.commands import Terminal

pytestmark = pytest.mark.integration


async def test_what_a_job_hides_is_shown_by_no_command(tmp_path: Path, nats_url: str, project: str):
    shop = Module("shop")

    @shop.job(redact=("card.number",), timeout="5s")
    async def pay(ctx: JobContext, order: dict[str, Any]) -> dict[str, Any]:
        return {"card": order["card"], "paid": True}

    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    order = {"card": {"number": "4111-secret", "name": "visible"}}
    async with JobHost([shop], project=project, nats=nats_url), JobClient(nats_url, project=project) as client:
        run = await client.get_job(pay).trigger(order)
        assert (await run.result(timeout=10))["card"] == order["card"]
        said = [
            await asyncio.to_thread(terminal.run, *command)
            for command in (
                ("runs", "show", run.run_id),
                ("runs", "show", run.run_id, "--json"),
                ("runs", "list", "--json"),
                ("trigger", "shop.pay", '{"card": {"number": "4111-secret", "name": "visible"}}', "--wait"),
                ("trigger", "shop.pay", '{"card": {"number": "4111-secret", "name": "visible"}}', "--wait", "--json"),
            )
        ]
    assert [done.code for done in said] == [0] * 5
    assert all("4111-secret" not in done.out + done.err for done in said)
    assert all("[redacted]" in done.out and "visible" in done.out for done in (*said[:2], *said[3:]))
