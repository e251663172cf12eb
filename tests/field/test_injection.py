"""Names, ids and keys of strangers reach no subject unencoded, seen by a server that writes down every line it gets."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jetjobs import JobContext, Module, RunStatus
from jetjobs.errors import InvalidNameError, JetJobsError, RunNotFound
from tests.support.field import Field, field_of
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration

EVIL = [
    "*",
    ">",
    "x.>",
    "x.*",
    "x y\r\nPUB evil 0\r\n",
    "\r\nPUB evil 5\r\nhello\r\n",
    "x\nPUB evil 0\n",
    "x\tPUB",
    "../$JS.API.STREAM.DELETE.S",
    "$JS.API.STREAM.PURGE.KV_x",
    "$SYS.REQ.SERVER.PING",
    "\x00evil",
    "evil\u2028\x85\u00a0",
    "=2A",
    "_INBOX.evil.*",
]


@pytest.fixture
def tracing_server(tmp_path: Path) -> Iterator[RealServer]:
    with RealServer(tmp_path / "nats", extra_args=["-DVV"]) as server:
        yield server


def shop() -> Module:
    module = Module("shop")

    @module.job(timeout="20s", max_concurrency=4)
    async def pay(ctx: JobContext, payload: Any = None) -> Any:
        return payload

    return module


def subjects_sent(log: str, since: int) -> set[str]:
    """What clients published on or subscribed to."""
    return set(re.findall(r" - cid:.* <<- \[(?:H?PUB|SUB) ([^\s\]]+)", log[since:]))


async def call_all(field: Field, evil: str) -> None:
    """Everything a stranger's text can be given to; refused at once, or taken as a mere text."""
    client = field.client
    for name in (evil, ("shop", evil), (evil, "pay")):
        with pytest.raises(InvalidNameError):
            client.get_job(*(name if isinstance(name, tuple) else (name,)))
        with pytest.raises(InvalidNameError):
            client.run(*(name if isinstance(name, tuple) else ("shop", name)), "r")
    for address in ((evil, None), ("shop", evil)):
        with pytest.raises(InvalidNameError):
            await client.jobs.get(*address)
    with pytest.raises(InvalidNameError):
        await client.runs.list(module=evil)
    with pytest.raises(InvalidNameError):
        await client.runs.list(job=evil)
    assert await client.runs.list(text=evil) == []
    for ask in (
        lambda: client.runs.get(evil),
        lambda: client.runs.get(evil, module="shop", job="pay"),
        client.run("shop", "pay", evil).record,
        client.run("shop", "pay", evil).cancel,
        lambda: client.run("shop", "pay", evil).wait(timeout=45),
    ):
        with pytest.raises(RunNotFound):
            await ask()
    keyed = await client.get_job("shop.pay").trigger({evil: evil}, idempotency_key=evil)
    assert await keyed.result(timeout=45) == {evil: evil}
    assert (await keyed.record()).key == evil
    later = await client.get_job("shop.pay").trigger({evil: evil}, idempotency_key=evil + "later", delay="1h")
    assert (await later.record()).key == evil + "later"
    await later.cancel()
    assert await later.status() is RunStatus.CANCELLED


async def test_b119_no_text_of_strangers_becomes_a_subject(tracing_server: RealServer, project: str):
    """B119: get_job, run ids, filters and keys, on a server in trace mode."""
    own = re.compile(
        rf"(\$JS\.(API|ACK)\..*(JETJOBS|jetjobs)_{project}(_\w+)?\b.*|\$JS\.API\.INFO|\$KV\.jetjobs_{project}_\w+\..*"
        rf"|jetjobs\.{project}\..*|_INBOX\.[A-Za-z0-9]+(\.[A-Za-z0-9*>]+)*|\$JS\.API\.(CONSUMER|STREAM)\.NAMES)"
    )
    async with field_of(tracing_server.url, project) as field:
        await field.host(shop())
        await (await field.client.get_job("shop.pay").trigger()).result(timeout=45)
        since = len(tracing_server.log)
        for evil in EVIL:
            await call_all(field, evil)
        log = tracing_server.log
        sent = subjects_sent(log, since)
        assert len(sent) > 100  # the trace is really there
        assert [subject for subject in sent if not own.fullmatch(subject)] == []
        assert [subject for subject in sent if "evil" in subject and "=" not in subject] == []
        wild = [
            s for s in sent if ("*" in s or ">" in s) and not s.startswith(("_INBOX.", f"jetjobs.{project}.events."))
        ]
        assert [s for s in wild if "JSON" not in s] == []
        assert "[PUB evil" not in log
        # Nobody deleted or purged anything for them.
        assert not [subject for subject in sent if re.search(r"\$JS\.API\.STREAM\.(DELETE|UPDATE|CREATE)", subject)]


async def test_b119_what_is_not_a_text_is_refused_like_a_bad_one(nats_url: str, project: str):
    async with field_of(nats_url, project) as field:
        await field.host(shop())
        for wrong in (None, 7, b"pay", ["shop", "pay"], object()):
            with pytest.raises((InvalidNameError, TypeError)):
                field.client.get_job("shop", wrong) if wrong is not None else field.client.get_job(wrong)  # type: ignore[call-overload]
            with pytest.raises(InvalidNameError):
                field.client.run("shop", "pay", wrong)  # type: ignore[arg-type]
            if wrong is not None:
                with pytest.raises(JetJobsError):
                    await field.client.get_job("shop.pay").trigger(idempotency_key=wrong)  # type: ignore[arg-type]
        with contextlib.suppress(RunNotFound):
            await field.client.runs.get("x" * 100_000)
