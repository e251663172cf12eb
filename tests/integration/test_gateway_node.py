"""The official client for Node: calls the gateway, and publishes plainly beside it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from jetjobs import JobContext, Module, RunStatus
from jetjobs._core import names
from tests.support.field import field_of

# It downloads the client.
pytestmark = [
    pytest.mark.integration,
    pytest.mark.soak,
    pytest.mark.skipif(not (shutil.which("node") and shutil.which("npm")), reason="no Node here"),
]

SCRIPT = """
import { connect, headers, JSONCodec } from "nats";

const { NATS_URL, PROJECT } = process.env;
const json = JSONCodec();
const nc = await connect({ servers: NATS_URL });

async function call(job, payload, key) {
  const head = headers();
  if (key) head.set("Jetjobs-Key", key);
  const message = await nc.request(`jetjobs.${PROJECT}.call.billing.${job}`, json.encode(payload), {
    timeout: 5000,
    headers: key ? head : undefined,
  });
  return json.decode(message.data);
}

const said = { calls: [await call("send", { id: 7 }, "order-7"), await call("send", { id: 7 }, "order-7")] };
said.refused = await call("send", { id: "x" });
said.many = await Promise.all(Array.from({ length: 50 }, (_, id) => call("send", { id })));
said.nobody = await call("nonsense", {}).then(() => "answered", (error) => error.code);

const head = headers();
head.set("Nats-Expected-Last-Subject-Sequence", "0");
const subject = `jetjobs.${PROJECT}.trigger.billing.send.run.plain-8`;
said.published = (await nc.jetstream().publish(subject, json.encode({ id: 8 }), { headers: head })).stream;
console.log(JSON.stringify(said));
await nc.drain();
"""


async def _run(folder: Path, *command: str, **env: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, env={**os.environ, **env}, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(100):
        out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return out.decode()


async def test_node_calls_and_publishes(nats_url: str, project: str, tmp_path: Path):
    module = Module("billing")

    @module.job(timeout="20s", max_concurrency=8)
    async def send(ctx: JobContext[Any], order: dict[str, int]) -> int:
        return order["id"]

    await _run(tmp_path, "npm", "install", "--no-audit", "--no-fund", "--silent", "nats")
    (tmp_path / "call.mjs").write_text(SCRIPT)
    async with field_of(nats_url, project) as field:
        await field.host(module)
        said = json.loads(await _run(tmp_path, "node", "call.mjs", NATS_URL=nats_url, PROJECT=project))
        run_id = names.run_id_for_key("billing", "send", "order-7")
        assert said["calls"] == [{"run_id": run_id, "duplicate": False}, {"run_id": run_id, "duplicate": True}]
        assert said["refused"]["error"]["type"] == "PayloadInvalidError"
        assert (said["nobody"], said["published"]) == ("503", names.stream(project))
        ids = [answer["run_id"] for answer in said["many"]]
        results = [(await field.ended("billing.send", each)).result for each in (run_id, "plain-8", *ids)]
        assert results == [7, 8, *range(50)]
        assert (await field.ended("billing.send", "plain-8")).status is RunStatus.SUCCEEDED
