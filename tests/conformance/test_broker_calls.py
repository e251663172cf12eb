"""Call gateways: of the hosts that hear a job's calls one hears each, and its answer reaches the caller."""

from __future__ import annotations

import asyncio

import pytest

from jetjobs._core.models import JobAddress
from jetjobs._ports import Backend, Call
from tests.support.worlds import World

SEND = JobAddress("billing.invoices", "send")
OTHER = JobAddress("billing.invoices", "other")


@pytest.fixture
async def other(world: World, backend: Backend) -> Backend:
    return await world.connect()


async def test_with_nobody_to_hear_it_a_call_is_told_so(world: World, backend: Backend) -> None:
    await backend.broker.answer_calls([OTHER], lambda call: call.answer(b"other"))
    await world.rest()
    assert await world.call(SEND, b"{}", {}) is None


async def test_a_call_arrives_with_job_headers_and_body(world: World, backend: Backend) -> None:
    heard: list[Call] = []

    def on_call(call: Call) -> None:
        heard.append(call)
        call.answer(b"to " + call.data)

    await backend.broker.answer_calls([SEND, OTHER], on_call)
    await world.rest()
    assert await world.call(SEND, b"one", {"Jetjobs-Key": "k"}) == b"to one"
    assert await world.call(OTHER, b"", {}) == b"to "
    assert [(call.job, dict(call.headers), call.data) for call in heard] == [
        (SEND, {"Jetjobs-Key": "k"}, b"one"),
        (OTHER, {}, b""),
    ]


async def test_an_answer_may_come_later(world: World, backend: Backend) -> None:
    heard: asyncio.Queue[Call] = asyncio.Queue()
    await backend.broker.answer_calls([SEND], heard.put_nowait)
    await world.rest()
    asked = asyncio.ensure_future(world.call(SEND, b"one", {}))
    call = await asyncio.wait_for(heard.get(), 10)
    await world.rest()
    assert not asked.done()
    call.answer(b"late")
    assert await asyncio.wait_for(asked, 10) == b"late"


async def test_of_two_hosts_one_hears_each_call(world: World, backend: Backend, other: Backend) -> None:
    heard: list[str] = []

    def hears(name: str, call: Call) -> None:
        heard.append(name)
        call.answer(name.encode())

    for name, each in (("mine", backend), ("theirs", other)):
        await each.broker.answer_calls([SEND], lambda call, name=name: hears(name, call))
    await world.rest()
    answers = [await world.call(SEND, b"", {}) for _ in range(40)]
    assert [answer.decode() for answer in answers if answer] == heard
    assert set(heard) == {"mine", "theirs"}
    assert len(heard) == 40


async def test_one_that_stopped_hears_no_more_and_the_other_hears_all(
    world: World, backend: Backend, other: Backend
) -> None:
    service = await backend.broker.answer_calls([SEND], lambda call: call.answer(b"mine"))
    await other.broker.answer_calls([SEND], lambda call: call.answer(b"theirs"))
    await world.rest()
    await service.stop()
    await service.stop()
    assert [await world.call(SEND, b"", {}) for _ in range(10)] == [b"theirs"] * 10
    await other.close()
    assert await world.call(SEND, b"", {}) is None
