"""`redact`, end to end: what it names is stored and read whole, and shown by no command."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

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
        assert (await run.result(timeout=45))["card"] == order["card"]
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


class Card(BaseModel):
    number: int
    name: str = ""


class Order(BaseModel):
    card: Card
    pad: str = ""


async def test_nor_by_those_that_follow_and_change_runs(tmp_path: Path, nats_url: str, project: str):
    """Runs that wait, that are large, that were refused for their payload; what is watched, logged and retried."""
    shop = Module("shop")

    @shop.job(redact=("card.number",), timeout="5s")
    async def pay(ctx: JobContext, order: Order) -> dict[str, Any]:
        ctx.log("paying", name=order.card.name)
        return order.model_dump()

    terminal = Terminal(tmp_path, nats=nats_url, project=project)
    secret = {"number": 41115555, "name": "visible"}
    async with JobHost([shop], project=project, nats=nats_url), JobClient(nats_url, project=project) as client:
        job = client.get_job("shop", "pay")
        with terminal.start("runs", "watch", "--json") as watching:
            await asyncio.to_thread(watching.wait_for, "watching")
            plain = await job.trigger({"card": secret})
            large = await job.trigger({"card": secret, "pad": "p" * 40_000})
            refused = await job.trigger({"card": {**secret, "number": "no 41115555"}})
            ended = [await run.wait(timeout=45) for run in (plain, large, refused)]
            waiting = await job.trigger({"card": secret}, delay="1h")
            commands = [("runs", "show", run.run_id, "--json") for run in (large, refused, waiting)]
            commands += [("runs", "logs", plain.run_id), ("runs", "show", waiting.run_id)]
            commands += [("runs", "retry", plain.run_id, refused.run_id, "--dry-run", "--json")]
            said = [await asyncio.to_thread(terminal.run, *command) for command in commands]
            watched = await asyncio.to_thread(watching.wait_for, refused.run_id)
    assert [record.status for record in ended] == ["SUCCEEDED", "SUCCEEDED", "FAILED"]
    assert [done.code for done in said] == [0] * len(said), said
    assert all("41115555" not in text for text in (watched, *(done.out + done.err for done in said)))
    assert "[redacted]" in said[2].out
    assert "name=visible" in said[3].out
