from __future__ import annotations

import hashlib
import random
from dataclasses import replace
from datetime import timedelta

import pytest

from jetjobs._ports import Backend, PayloadStore
from jetjobs.errors import PayloadInvalidError, PayloadTooLargeError
from tests.support.worlds import World


@pytest.fixture
def payloads(backend: Backend) -> PayloadStore:
    return backend.payloads


def some_bytes(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("size", [0, 1, 16 * 1024 + 1, 512 * 1024, 512 * 1024 + 1, 1024 * 1024, 5_000_000])
async def test_bytes_of_any_size_come_back(payloads: PayloadStore, world: World, size: int):
    data = some_bytes(size)
    claim = await payloads.put("r1", "in", digest(data), data)
    assert (claim.size, claim.sha256) == (size, digest(data))
    assert claim.chunks >= 1
    assert await (await world.connect()).payloads.get(claim) == data


async def test_the_same_name_and_bytes_again_is_harmless(payloads: PayloadStore):
    data = some_bytes(1_500_000)
    first = await payloads.put("r1", "out", "claim-7", data)
    assert await payloads.put("r1", "out", "claim-7", data) == first
    assert await payloads.get(first) == data


async def test_a_put_that_broke_off_is_completed_by_the_next(payloads: PayloadStore, world: World):
    data = some_bytes(1_500_000)
    claim = await payloads.put("r1", "in", digest(data), data)
    await world.write_chunk(claim, 1, None)
    with pytest.raises(PayloadInvalidError):
        await payloads.get(claim)
    await payloads.put("r1", "in", digest(data), data)
    assert await payloads.get(claim) == data


async def test_who_may_send_less_puts_the_same_beside_it(payloads: PayloadStore, monkeypatch: pytest.MonkeyPatch):
    data = some_bytes(1_500_000)
    first = await payloads.put("r1", "in", digest(data), data)
    monkeypatch.setattr("jetjobs._nats.connection.Connection.max_payload", 60_000)
    second = await payloads.put("r1", "in", digest(data), data)
    assert [await payloads.get(claim) for claim in (first, second)] == [data, data]


@pytest.mark.parametrize("number", [0, 2])
async def test_changed_bytes_are_refused(payloads: PayloadStore, world: World, number: int):
    data = some_bytes(1_500_000)
    claim = await payloads.put("r1", "in", digest(data), data)
    size = 512 * 1024 if number == 0 else 1_500_000 - 2 * 512 * 1024
    await world.write_chunk(claim, number, b"\0" * size)
    with pytest.raises(PayloadInvalidError, match="changed"):
        await payloads.get(claim)


async def test_a_claim_that_says_something_else_is_refused(payloads: PayloadStore):
    data = some_bytes(100)
    claim = await payloads.put("r1", "in", digest(data), data)
    for wrong in (replace(claim, size=99), replace(claim, sha256=digest(b"other")), replace(claim, chunks=2)):
        with pytest.raises(PayloadInvalidError):
            await payloads.get(wrong)


async def test_purge_removes_all_of_a_run_and_nothing_else(payloads: PayloadStore):
    mine = [
        await payloads.put("r1", "in", "a", some_bytes(600_000)),
        await payloads.put("r1", "out", "b", some_bytes(10)),
    ]
    other = await payloads.put("r10", "in", "a", some_bytes(20))
    await payloads.purge("r1")
    for claim in mine:
        with pytest.raises(PayloadInvalidError):
            await payloads.get(claim)
    assert await payloads.get(other) == some_bytes(20)
    await payloads.purge("r1")
    again = await payloads.put("r1", "in", "a", some_bytes(600_000))
    assert await payloads.get(again) == some_bytes(600_000)


async def test_more_than_the_limit_is_refused_before_anything_is_stored(payloads: PayloadStore):
    with pytest.raises(PayloadTooLargeError, match="67108865"):
        await payloads.put("r1", "in", "a", b"\0" * (64 * 1024 * 1024 + 1))


async def test_the_ids_of_runs_that_have_something_and_since_when(payloads: PayloadStore, backend: Backend):
    async def ids() -> set[str]:
        return {run_id async for run_id in payloads.run_ids()}

    assert await ids() == set()
    assert await payloads.newest("r1") is None
    assert (await payloads.holding()).entries == 0
    for run_id in ("r1", "r10", "k-abc"):
        await payloads.put(run_id, "in", "a", some_bytes(600_000))
    await payloads.put("r1", "out", "b", some_bytes(10))
    assert await ids() == {"r1", "r10", "k-abc"}
    newest = await payloads.newest("r1")
    assert newest is not None
    assert abs(newest - backend.broker.now()) < timedelta(seconds=5)
    assert (await payloads.holding()).entries == 7
    await payloads.purge("r1")
    assert await ids() == {"r10", "k-abc"}
    assert await payloads.newest("r1") is None
