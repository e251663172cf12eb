from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from jetjobs.testing.jumping_clock import JumpingClock


async def test_it_goes_as_the_machines_does_and_jumps_ahead():
    clock = JumpingClock()
    began, ticked = clock.now(), clock.monotonic()
    assert abs(began - datetime.now(UTC)) < timedelta(seconds=5)
    clock.jump(timedelta(hours=2))
    assert timedelta(hours=2) <= clock.now() - began < timedelta(hours=2, seconds=5)
    assert 7200 <= clock.monotonic() - ticked < 7205
    clock.jump(timedelta(hours=-1))  # never back
    assert clock.now() - began >= timedelta(hours=2)


async def test_what_a_jump_passes_over_comes_due_in_order():
    clock, fired = JumpingClock(), list[str]()
    over = asyncio.Event()
    for name, seconds in (("late", 90.0), ("early", 30.0), ("after", 4000.0), ("cancelled", 60.0)):
        timer = clock.call_later(seconds, lambda name=name: fired.append(name))
        if name in {"cancelled", "after"}:
            clock.call_later(seconds, lambda: None).cancel()
        if name == "cancelled":
            timer.cancel()
    clock.call_later(100, over.set)
    assert fired == []
    clock.jump(timedelta(seconds=200))
    async with asyncio.timeout(5):
        await over.wait()
    assert fired == ["early", "late"]


async def test_a_sleeper_is_woken_by_a_jump():
    clock = JumpingClock()
    await clock.sleep(0)
    sleeper = asyncio.create_task(clock.sleep(3600))
    await asyncio.sleep(0)
    clock.jump(timedelta(hours=1))
    async with asyncio.timeout(5):
        await sleeper


async def test_a_timer_that_came_due_is_forgotten():
    clock, fired = JumpingClock(), asyncio.Event()
    clock.call_later(0, fired.set)
    async with asyncio.timeout(5):
        await fired.wait()
    fired.clear()
    clock.jump(timedelta(days=1))
    await asyncio.sleep(0)
    assert not fired.is_set()
