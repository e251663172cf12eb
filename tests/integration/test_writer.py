"""The pipelined writer: what each error promises, and that nothing is sent which the caller doesn't know of."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from jetjobs._nats import writer as writer_module
from jetjobs._nats.connection import connect
from jetjobs._nats.link import Link
from jetjobs._nats.writer import PipelinedWriter
from jetjobs.errors import (
    AnswerUnknown,
    BrokerUnavailable,
    PayloadTooLargeError,
    PermissionMissing,
    StorageFull,
    WrongRevision,
)
from tests.support.links import open_link, until
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration

EXPECTED = "Nats-Expected-Last-Subject-Sequence"


async def with_stream(url: str, stream: str, *, outstanding: int = 4096, **config: Any) -> Link:
    link = await open_link(url, outstanding=outstanding)
    await link.api(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"], **config})
    return link


@pytest.fixture
async def link(nats_url: str, project: str) -> AsyncIterator[Link]:
    link = await with_stream(nats_url, project)
    yield link
    await link.api(f"STREAM.DELETE.{project}")
    await link.connection.close()


@pytest.fixture
async def own(own_server: RealServer) -> AsyncIterator[Link]:
    """A link to a server of the test's own, with a stream `s`."""
    link = await with_stream(own_server.url, "s")
    yield link
    with suppress(AssertionError):  # killed
        own_server.sigcont()
    await link.connection.close()


async def took(awaitable: Awaitable[object], kind: type[Exception]) -> float:
    """Seconds until it raised."""
    begun = time.monotonic()
    with pytest.raises(kind):
        await awaitable
    return time.monotonic() - begun


class TestAnswers:
    async def test_every_write_gets_its_own_sequence(self, link: Link, project: str):
        async def write(number: int) -> tuple[int, int]:
            return number, await link.writer.write(f"{project}.{number}", b"%d" % number, timeout=5)

        written = dict(await asyncio.gather(*(write(number) for number in range(500))))
        assert sorted(written.values()) == list(range(1, 501))
        for number in (0, 123, 499):
            stored = await link.api(f"STREAM.MSG.GET.{project}", {"last_by_subj": f"{project}.{number}"})
            assert stored["message"]["seq"] == written[number]
        assert link.writer.outstanding == 0

    async def test_lost_compare_and_set_tells_the_sequence_found(self, link: Link, project: str):
        subject = f"{project}.a"
        await link.writer.write(f"{project}.other", b"", timeout=5)
        first = await link.writer.write(subject, b"1", {EXPECTED: "0"}, timeout=5)
        with pytest.raises(WrongRevision) as lost:
            await link.writer.write(subject, b"2", {EXPECTED: "0"}, timeout=5)
        assert lost.value.actual == first
        assert await link.writer.write(subject, b"3", {EXPECTED: str(first)}, timeout=5) == first + 1

    async def test_duplicate_gives_the_first_sequence(self, link: Link, project: str):
        twice = [await link.writer.write(f"{project}.a", b"", {"Nats-Msg-Id": "x"}, timeout=5) for _ in range(2)]
        assert twice == [1, 1]

    async def test_no_stream_and_nobody_there(self, link: Link):
        with pytest.raises(BrokerUnavailable, match="no stream"):
            await link.writer.write("nobody.listens", b"", timeout=5)
        with pytest.raises(BrokerUnavailable):
            await link.writer.request("nobody.answers", timeout=5)

    async def test_full_stream_stores_nothing(self, nats_url: str, project: str):
        link = await with_stream(nats_url, project, max_bytes=2000, discard="new")
        await link.writer.write(f"{project}.a", b"x" * 1000, timeout=5)
        with pytest.raises(StorageFull):
            await link.writer.write(f"{project}.b", b"x" * 1000, timeout=5)
        assert (await link.api(f"STREAM.INFO.{project}"))["state"]["messages"] == 1
        await link.connection.close()


class TestSize:
    @pytest.mark.parametrize("headers", [None, {EXPECTED: "0", "X": "é" * 100}])
    async def test_the_last_byte_that_fits(self, link: Link, project: str, headers: dict[str, str] | None):
        limit = link.connection.max_payload
        block = 12 + sum(len(key) + len(value.encode()) + 4 for key, value in headers.items()) if headers else 0
        drops: list[None] = []
        link.connection.on_disconnect(lambda: drops.append(None))
        assert await link.writer.write(f"{project}.a", bytes(limit - block), headers, timeout=5) == 1
        with pytest.raises(PayloadTooLargeError, match=str(limit)) as refused:
            await link.writer.write(f"{project}.b", bytes(limit - block + 1), headers, timeout=5)
        assert str(limit + 1) in str(refused.value)
        assert await link.writer.write(f"{project}.c", b"", timeout=5) == 2
        assert not drops


class TestPermissions:
    @pytest.fixture
    def restricted(self, tmp_path: Path) -> Iterator[RealServer]:
        may = 'permissions: { publish: ["s.open.>", "$JS.API.>"], subscribe: ["_INBOX.>"] }'
        with RealServer(
            tmp_path / "r", extra_conf=f"authorization {{ users: [ {{ user: u, password: p, {may} }} ] }}"
        ) as server:
            yield server

    async def test_refused_publish_fails_at_once_and_alone(self, restricted: RealServer):
        link = await with_stream(f"nats://u:p@127.0.0.1:{restricted.port}", "s")
        forbidden = asyncio.create_task(took(link.writer.write("s.Closed.X", b"", timeout=30), PermissionMissing))
        allowed = [link.writer.write(f"s.open.{number}", b"", timeout=5) for number in range(20)]
        assert len(await asyncio.gather(*allowed)) == 20
        assert await forbidden < 10
        with pytest.raises(PermissionMissing) as missing:
            await link.writer.write("s.Closed.X", b"", timeout=30)
        assert missing.value.subject == "s.Closed.X"
        assert link.connection.is_connected
        await link.connection.close()

    async def test_inbox_that_may_not_be_heard(self, tmp_path: Path):
        may = 'permissions: { publish: [">"], subscribe: ["_INBOX_u.>"] }'
        with RealServer(
            tmp_path / "r", extra_conf=f"authorization {{ users: [ {{ user: u, password: p, {may} }} ] }}"
        ) as server:
            url = f"nats://u:p@127.0.0.1:{server.port}"
            ours = await connect({"servers": url, "inbox_prefix": "_INBOX_u"}, name="test")
            answer = await PipelinedWriter(ours).request("$JS.API.INFO", timeout=5)
            assert b"streams" in answer
            await ours.close()


class TestLoss:
    async def test_sent_and_connection_lost_is_unknown_at_once(self, own: Link, own_server: RealServer):
        own_server.sigstop()
        writing = [asyncio.create_task(took(own.writer.write(f"s.{n}", b"", timeout=60), AnswerUnknown)) for n in "abc"]
        await until(lambda: own.writer.outstanding == 3)
        await asyncio.to_thread(own_server.kill9)
        assert all(seconds < 10 for seconds in await asyncio.gather(*writing))
        assert own.writer.outstanding == 0

    async def test_sent_and_not_answered_is_unknown_at_the_deadline(self, own: Link, own_server: RealServer):
        own_server.sigstop()
        short, long = await asyncio.gather(
            took(own.writer.write("s.a", b"", timeout=0.2), AnswerUnknown),
            took(own.writer.write("s.b", b"", timeout=2), AnswerUnknown),
        )
        assert 0.2 <= short < 2 <= long < 10
        own_server.sigcont()
        # Both had been sent: unknown is the truth.
        sequence = await own.writer.write("s.c", b"", timeout=5)
        assert sequence == 3

    async def test_not_connected_until_the_deadline_sends_nothing(self, own: Link, own_server: RealServer):
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: not own.connection.is_connected)
        assert 0.2 <= await took(own.writer.write("s.lost", b"", timeout=0.2), BrokerUnavailable) < 5
        waiting = asyncio.create_task(own.writer.write("s.kept", b"", timeout=20))
        await asyncio.to_thread(own_server.start)
        assert await waiting == 1
        assert (await own.api("STREAM.INFO.s", {"subjects_filter": ">"}))["state"]["subjects"] == {"s.kept": 1}

    async def test_nothing_goes_out_on_the_next_connection(self, own: Link, own_server: RealServer):
        # The socket's buffers are full of what a frozen server doesn't read: the rest waits in this process.
        own_server.sigstop()
        blob = bytes(900_000)
        writes = [asyncio.create_task(own.writer.write(f"s.{n}", blob, timeout=60)) for n in range(60)]
        await until(lambda: own.writer.outstanding == 60)
        await asyncio.to_thread(own_server.kill9)
        ended = await asyncio.gather(*writes, return_exceptions=True)
        assert {type(end) for end in ended} == {AnswerUnknown}
        await asyncio.to_thread(own_server.start)
        await own.connection.wait_connected(10)
        await own.writer.write("s.after", b"", timeout=5)
        subjects = (await own.api("STREAM.INFO.s", {"subjects_filter": ">"}))["state"]["subjects"]
        assert len(subjects) < 60

    async def test_requests_too(self, own: Link, own_server: RealServer):
        own_server.sigstop()
        assert await took(own.api("STREAM.INFO.s", timeout=0.2), AnswerUnknown) < 4


class TestBackPressure:
    async def test_never_more_outstanding_than_allowed(self, nats_url: str, project: str):
        link = await with_stream(nats_url, project, outstanding=4)
        most = 0

        async def write(number: int) -> int:
            nonlocal most
            sequence = await link.writer.write(f"{project}.{number}", b"", timeout=10)
            most = max(most, link.writer.outstanding)
            return sequence

        written = await asyncio.gather(*(write(number) for number in range(300)))
        assert sorted(written) == list(range(1, 301))
        assert 1 <= most <= 4
        await link.connection.close()

    async def test_without_a_place_until_the_deadline_nothing_was_sent(self, own_server: RealServer):
        link = await with_stream(own_server.url, "s2", outstanding=2)
        own_server.sigstop()
        sent = [asyncio.create_task(took(link.writer.write(f"s2.{n}", b"", timeout=3), AnswerUnknown)) for n in "ab"]
        await until(lambda: link.writer.outstanding == 2)
        assert 0.2 <= await took(link.writer.write("s2.c", b"", timeout=0.2), BrokerUnavailable) < 3
        await asyncio.gather(*sent)
        own_server.sigcont()
        await link.writer.write("s2.d", b"", timeout=5)
        subjects = (await link.api("STREAM.INFO.s2", {"subjects_filter": ">"}))["state"]["subjects"]
        assert set(subjects) == {"s2.a", "s2.b", "s2.d"}
        await link.connection.close()

    async def test_a_cancelled_write_gives_its_place_back(self, own_server: RealServer):
        link = await with_stream(own_server.url, "s3", outstanding=1)
        own_server.sigstop()
        writing = asyncio.create_task(link.writer.write("s3.a", b"", timeout=20))
        queued = asyncio.create_task(link.writer.write("s3.b", b"", timeout=20))
        await until(lambda: link.writer.outstanding == 1)
        for task in (writing, queued):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        own_server.sigcont()
        assert await link.writer.write("s3.c", b"", timeout=5) == 2
        await link.connection.close()

    async def test_the_queue_moves_on_after_a_lost_connection(self, own_server: RealServer):
        link = await with_stream(own_server.url, "s4", outstanding=2)
        await asyncio.to_thread(own_server.sigstop)
        writes = [asyncio.create_task(link.writer.write(f"s4.{n}", b"", timeout=20)) for n in range(12)]
        await until(lambda: link.writer.outstanding == 2)
        await asyncio.to_thread(own_server.kill9)
        await until(lambda: not link.connection.is_connected)
        await asyncio.to_thread(own_server.start)
        ended = await asyncio.wait_for(asyncio.gather(*writes, return_exceptions=True), 45)
        assert [type(end) for end in ended[:2]] == [AnswerUnknown] * 2
        assert all(isinstance(end, int) for end in ended[2:])
        await link.connection.close()

    async def test_a_place_given_to_a_cancelled_one_goes_on(self, own_server: RealServer):
        link = await with_stream(own_server.url, "s5", outstanding=1)
        own_server.sigstop()
        first, second, third = (asyncio.create_task(link.writer.write(f"s5.{n}", b"", timeout=20)) for n in "abc")
        await until(lambda: link.writer.outstanding == 1)
        first.add_done_callback(lambda _: second.cancel())
        own_server.sigcont()
        assert await asyncio.wait_for(third, 45) >= 2
        await asyncio.gather(first, second, return_exceptions=True)
        await link.connection.close()

    async def test_bytes_count_too(self, own_server: RealServer, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(writer_module, "OUTSTANDING_BYTES", 1000)
        link = await with_stream(own_server.url, "s6")
        own_server.sigstop()
        sent = [asyncio.create_task(link.writer.write(f"s6.{n}", bytes(500), timeout=20)) for n in range(3)]
        await until(lambda: link.writer.outstanding == 2)
        assert 0.1 <= await took(link.writer.write("s6.c", b"", timeout=0.1), BrokerUnavailable) < 10
        own_server.sigcont()
        assert sorted(await asyncio.gather(*sent)) == [1, 2, 3]
        await link.connection.close()

    async def test_idle_means_no_timer(self, link: Link, project: str):
        await link.writer.write(f"{project}.a", b"", timeout=5)
        await until(lambda: link.writer._sweeper is None)
