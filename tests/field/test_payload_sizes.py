"""Payloads and results of every size and type: they arrive whole, or are refused with a word, and no line is cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import nats
import pytest

from jetjobs import Backoff, Every, JobClient, JobContext, JobHost, Module, RunStatus
from jetjobs._core import names
from jetjobs._core.bodies import INLINE_LIMIT, ClaimCheck
from jetjobs._core.messages import Outgoing
from jetjobs.errors import BrokerError, PayloadTooLargeError, RunFailed
from tests.support.field import Field, field_of
from tests.support.impostors import bare_server
from tests.support.links import until
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration

# msgpack's own bytes around a bytes value of the sizes below
SIZES = [0, INLINE_LIMIT - 4, INLINE_LIMIT - 3, INLINE_LIMIT - 2, INLINE_LIMIT + 1, 1_000_000, 5_000_000]


def sizes() -> Module:
    module = Module("sizes")

    @module.job(max_concurrency=4, timeout="30s")
    async def echo(ctx: JobContext, payload: Any = None) -> Any:
        return payload

    @module.job(max_concurrency=4, timeout="30s")
    async def make(ctx: JobContext, size: int) -> bytes:
        return b"x" * size

    @module.job(max_concurrency=4, timeout="30s", max_attempts=3)
    async def say(ctx: JobContext, size: int) -> None:
        for n in range(20):
            ctx.log("l" * (size // 20), n=n)
        ctx.checkpoint("c" * min(size, 60_000))
        ctx.progress(1, message="p" * size)
        raise ValueError("e" * size)

    return module


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    async with field_of(nats_url, project) as made:
        await made.host(sizes())
        yield made


@pytest.mark.parametrize("size", SIZES)
async def test_b38_bytes_of_any_size_go_there_and_back(field: Field, size: int):
    run = await field.client.get_job("sizes.echo").trigger(b"x" * size)
    assert await run.result(timeout=45) == b"x" * size
    record = await field.client.runs.get(run.run_id)
    inline = size <= INLINE_LIMIT - 3  # with three bytes around it
    assert isinstance(record.payload, bytes if inline else ClaimCheck)
    assert (await run.wait(45)).result == b"x" * size


async def test_nothing_and_no_bytes_are_two_things(field: Field):
    payloads: list[Any] = [None, b"", "", [], {}, 0, False]
    for payload in payloads:
        run = await field.client.get_job("sizes.echo").trigger(payload)
        result = await run.result(timeout=45)
        assert (result, type(result)) == (payload, type(payload))


async def test_b40_a_record_stays_small_whatever_its_parts(field: Field):
    """A message of megabytes, with logs, progress and checkpoint of megabytes beside it."""
    run = await field.client.get_job("sizes.say").trigger(3_000_000)
    record = await run.wait(45)
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.type == "ValueError"
    assert "cut, 3000000 characters" in record.error.message
    assert max((await field.record_sizes()).values()) < 512 * 1024


class TestMaxPayload:
    """The setting, on both sides."""

    LIMIT = 100_000

    @pytest.fixture
    async def field(self, nats_url: str, project: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Field]:
        monkeypatch.setenv("JETJOBS_MAX_PAYLOAD", str(self.LIMIT))
        async with field_of(nats_url, project) as made:
            await made.host(sizes())
            yield made

    async def test_b38_a_payload_over_it_is_refused_at_the_call(self, field: Field):
        job = field.client.get_job("sizes.echo")
        assert len(await (await job.trigger(b"x" * (self.LIMIT - 5))).result(timeout=45)) == self.LIMIT - 5
        with pytest.raises(PayloadTooLargeError, match=rf"{self.LIMIT + 1} bytes.*{self.LIMIT}"):
            await job.trigger(b"x" * (self.LIMIT - 4))
        await field.retired("sizes.echo")

    async def test_b38_a_result_over_it_is_a_failure_at_once(self, field: Field):
        """One attempt, no repetition, the slot free."""
        run = await field.client.get_job("sizes.make").trigger(self.LIMIT)
        with pytest.raises(RunFailed, match=str(self.LIMIT)) as failed:
            await run.result(timeout=45)
        assert failed.value.record.error is not None
        assert failed.value.record.error.type == "PayloadTooLargeError"
        info = await field.retired("sizes.make")
        assert info.num_redelivered == 0


@pytest.fixture(params=["64KB", "8MB"])
def other_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RealServer]:
    with RealServer(tmp_path / "nats", extra_conf=f"max_payload: {request.param}") as server:
        yield server


@asynccontextmanager
async def busy(field: Field) -> AsyncGenerator[JobHost]:
    """A host with a run in progress meanwhile, which must end well and have started once."""
    module = Module("busy")
    started, goes_on, starts = asyncio.Event(), asyncio.Event(), list[int]()

    @module.job(timeout="60s", max_attempts=3)
    async def hold(ctx: JobContext) -> str:
        starts.append(ctx.attempt)
        started.set()
        await goes_on.wait()
        return "held"

    host = await field.host(sizes(), module)
    run = await field.client.get_job("busy.hold").trigger()
    async with asyncio.timeout(45):
        await started.wait()
    yield host
    goes_on.set()
    assert await run.result(timeout=45) == "held"
    assert starts == [1]


async def test_b38_bodies_around_the_servers_limit(other_server: RealServer, project: str):
    """Each arrives or is refused; the connection stays, and so does a run in progress."""
    async with field_of(other_server.url, project) as field, busy(field):
        limit = field.nats.max_payload
        connected = field.client._scope.backend.broker.connected_since  # type: ignore[union-attr]
        job = field.client.get_job("sizes.echo")
        step = 64 if limit < 100_000 else 512
        around = [*range(limit - 4096, limit, step), limit - 1, limit, limit + 1]
        edges = [*range(INLINE_LIMIT - 128, INLINE_LIMIT + 64, 64)]
        for size in [*edges, *around]:
            assert len(await (await job.trigger(b"x" * size)).result(timeout=45)) == size
        assert field.client._scope.backend.broker.connected_since == connected  # type: ignore[union-attr]


async def test_b38_b40_a_record_fits_into_what_the_server_takes(other_server: RealServer, project: str):
    """On a server of 64 kB a record that may have 512 KiB could never be saved."""
    async with field_of(other_server.url, project) as field, busy(field):
        run = await field.client.get_job("sizes.say").trigger(200_000)
        record = await run.wait(45)
        assert (record.status, record.attempt) == (RunStatus.FAILED, 3)
        assert record.error is not None
        assert record.error.message.startswith("eee")
        await field.retired("sizes.say")


async def test_b38_a_run_keeps_its_payload_through_many_long_errors(tmp_path: Path, project: str):
    """What the server takes at least: payload, result and twenty attempts' errors are in one record."""
    module, seen = Module("long"), list[int]()
    body = b"x" * (INLINE_LIMIT - 3)

    @module.job(max_attempts=21, backoff=Backoff("1ms", factor=1, jitter=0), timeout="30s")
    async def tries(ctx: JobContext, payload: bytes) -> bytes:
        seen.append(len(payload))
        ctx.progress(ctx.attempt, 21, "\U0001f600" * 3000)
        if ctx.attempt < 21:
            raise ValueError("e" * 100_000)
        return payload

    with RealServer(tmp_path / "nats", extra_conf="max_payload: 60000") as server:
        async with field_of(server.url, project) as field:
            await field.host(module)
            run = await field.client.get_job("long.tries").trigger(body)
            assert await run.result(timeout=40) == body
            assert (await run.record()).payload == body
            await field.retired("long.tries")
    assert seen == [len(body)] * 21


async def test_b38_a_server_of_smaller_messages_is_refused(tmp_path: Path, project: str):
    """Records would lose their parts there. By host and caller, over a connection of theirs or one that is lent."""
    with bare_server(tmp_path / "nats", "-js", "-sd", str(tmp_path / "js"), conf="max_payload: 59999") as url:
        lent = await nats.connect(url)
        try:
            for target in (url, lent):
                host = JobHost([sizes()], project=project, nats=target)
                with pytest.raises(BrokerError, match=r"max_payload is 59999 bytes, and jetjobs needs 60000"):
                    await host.start()
                await host.close()
                with pytest.raises(BrokerError, match="max_payload is 59999"):
                    await JobClient(target, project=project).connect()
            assert lent.is_connected
        finally:
            await lent.close()


async def test_b38_a_schedules_payload_too_large_for_its_message(tmp_path: Path, project: str):
    """It travels in the schedule's message and in the job's description: either must fit, or no host starts."""
    server = RealServer(tmp_path / "nats", extra_conf="max_payload: 60000")
    server.start()
    due = list[int]()

    def ticking(size: int) -> Module:
        module = Module("m")

        @module.job(timeout="30s", triggers=[Every("1s", payload=b"z" * size)])
        async def tick(ctx: JobContext, payload: bytes) -> None:
            due.append(len(payload))

        return module

    try:
        async with field_of(server.url, project) as field:
            for size in range(58_000, 61_000, 250):
                host = JobHost([ticking(size)], project=project, nats=server.url)
                try:
                    await host.start()
                except PayloadTooLargeError as error:
                    assert "takes at most 60000" in str(error)  # noqa: PT017  # some fit, and others don't
                    due.append(-size)
                finally:
                    await host.close()
            refused = [-size for size in due if size < 0]
            assert refused == [*range(min(refused), 61_000, 250)]
            assert min(refused) > 58_500
            due.clear()
            await field.host(ticking(min(refused) - 250))
            await until(lambda: len(due) >= 2)
    finally:
        server.remove()


async def test_b38_the_bare_limit_of_the_line_is_a_size_error(nats_url: str, project: str):
    """Read from below: what would make the server hang up is refused before it is sent."""
    async with field_of(nats_url, project) as field:
        await field.host(sizes())
        client = field.client
        broker = client._scope.backend.broker  # type: ignore[union-attr]
        connected = broker.connected_since
        limit = field.nats.max_payload

        async def store(size: int, name: str) -> None:
            subject = f"jetjobs.{project}.trigger.sizes.unheard.run.{name}"
            await broker.store(Outgoing(subject, {}, b"x" * size), expected=0)

        refused = 0
        for n, size in enumerate(range(limit - 128, limit + 2)):
            try:
                await store(size, f"r{n}")
            except PayloadTooLargeError as error:
                refused += str(limit) in str(error)
        assert 30 < refused < 100
        assert broker.connected_since == connected


async def limited(field: Field, stream: str, most: int) -> None:
    jetstream = field.nats.jetstream()
    config = (await jetstream.stream_info(stream)).config
    await jetstream.update_stream(replace(config, max_msg_size=most))


async def test_b38_a_limit_that_somebody_sets_on_the_jobs_stream(field: Field):
    """The broker refuses each message over it: said at once, and not taken for an answer that was lost."""
    job = field.client.get_job("sizes.echo")
    await limited(field, names.stream(field.project), 1500)
    assert await (await job.trigger(b"small")).result(timeout=10) == b"small"
    with pytest.raises(PayloadTooLargeError, match="message size exceeds maximum allowed"):
        await job.trigger(b"x" * 3000, timeout=3)
    await field.retired("sizes.echo")


async def test_b38_a_limit_that_somebody_sets_on_the_records(nats_url: str, project: str):
    """Health says what isn't saved and why; with the limit lifted the run ends, done once."""
    async with field_of(nats_url, project) as field:
        host = await field.host(sizes())
        bucket = names.bucket_stream(names.runs_bucket(project))
        await limited(field, bucket, 1500)
        run = await field.client.get_job("sizes.make").trigger(3000)
        await until(lambda: any("exceeds maximum allowed" in said for said in host.health().problems))
        await limited(field, bucket, -1)
        record = await run.wait(10)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 1)
        await field.retired("sizes.make")


async def test_b38_a_limit_that_somebody_sets_on_the_jobs_stream_while_a_retry_is_due(nats_url: str, project: str):
    """Health says that the retry isn't stored and why; with the limit lifted it is, and the run goes on."""
    module, began, go = Module("late"), asyncio.Event(), asyncio.Event()

    @module.job(max_attempts=2, backoff=Backoff("1ms", factor=1, jitter=0), timeout="60s")
    async def twice(ctx: JobContext, payload: bytes) -> int:
        if ctx.attempt == 1:
            began.set()
            await go.wait()
            raise ValueError("once")
        return len(payload)

    async with field_of(nats_url, project) as field:
        host = await field.host(module)
        run = await field.client.get_job("late.twice").trigger(b"x" * 3000)
        await began.wait()
        await limited(field, names.stream(project), 1500)
        go.set()
        await until(lambda: any("exceeds maximum allowed" in said for said in host.health().problems))
        await limited(field, names.stream(project), -1)
        record = await run.wait(10)
        assert (record.status, record.starts) == (RunStatus.SUCCEEDED, 2)
        await field.retired("late.twice")
