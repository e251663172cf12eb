from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import pytest

from jetjobs._clock import Clock, SystemClock
from jetjobs.testing import ManualClock


async def test_the_system_clock_tells_aware_utc_and_never_goes_back():
    clock: Clock = SystemClock()
    first, before = clock.now(), clock.monotonic()
    await clock.sleep(-1)
    assert first.tzinfo is UTC
    assert clock.monotonic() >= before
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)


async def test_an_offset_moves_the_wall_clock_alone():
    clock = SystemClock()
    before = clock.monotonic()
    clock.offset = timedelta(hours=-3)
    assert abs(clock.now() - (datetime.now(UTC) - timedelta(hours=3))) < timedelta(seconds=5)
    assert clock.monotonic() - before < 5


async def test_the_system_clock_calls_back_unless_cancelled():
    clock = SystemClock()
    called: asyncio.Queue[str] = asyncio.Queue()
    clock.call_later(0.0, lambda: called.put_nowait("never")).cancel()
    clock.call_later(0.0, lambda: called.put_nowait("called"))
    assert await asyncio.wait_for(called.get(), 5) == "called"
    assert called.empty()


async def test_a_manual_clock_moves_both_times_together_and_only_when_told():
    start = datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=2)))
    clock = ManualClock(start, monotonic=50.0)
    assert clock.now() == start
    assert clock.now().tzinfo is UTC
    await clock.advance(90)
    await clock.advance(timedelta(milliseconds=500))
    assert clock.now() == start + timedelta(seconds=90.5)
    assert clock.monotonic() == 140.5


def test_a_manual_clock_refuses_a_naive_start():
    with pytest.raises(ValueError, match="aware"):
        ManualClock(datetime(2031, 1, 1))  # noqa: DTZ001


async def test_sleepers_wake_in_order_each_at_its_own_instant():
    clock = ManualClock()
    start = clock.monotonic()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, *spans: float) -> None:
        for span in spans:
            await clock.sleep(span)
            woken.append((name, clock.monotonic() - start))

    async with asyncio.TaskGroup() as group:
        group.create_task(sleeper("late", 5))
        group.create_task(sleeper("twice", 2, 2))
        group.create_task(sleeper("tie", 4))
        await clock.advance(4)
        # "tie" set its timer before "twice" set its second one, so it comes first.
        assert woken == [("twice", 2.0), ("tie", 4.0), ("twice", 4.0)]
        await clock.advance(1)
    assert woken[-1] == ("late", 5.0)


async def test_advance_lets_what_it_woke_come_to_rest_before_time_goes_on():
    clock = ManualClock()
    seen: list[datetime] = []

    async def slow_reaction() -> None:
        await clock.sleep(1)
        for _ in range(40):
            await asyncio.sleep(0)
        seen.append(clock.now())

    start = clock.now()
    async with asyncio.TaskGroup() as group:
        group.create_task(slow_reaction())
        await clock.advance(10)
        assert seen == [start + timedelta(seconds=1)]


async def test_a_cancelled_sleep_and_a_cancelled_timer_leave_nothing_behind():
    clock = ManualClock()
    called: list[str] = []
    sleeper = asyncio.ensure_future(clock.sleep(3))
    timer = clock.call_later(2, lambda: called.append("timer"))
    await clock.settle()
    assert clock.next_due == timedelta(seconds=2)
    timer.cancel()
    sleeper.cancel()
    await clock.settle()
    assert clock.next_due is None
    await clock.advance(5)
    assert called == []


async def test_a_timer_without_a_span_waits_for_the_next_advance():
    clock = ManualClock()
    called: list[str] = []
    clock.call_later(0, lambda: called.append("now"))
    await clock.settle()
    assert called == []
    await clock.advance(0)
    assert called == ["now"]


async def test_sleeping_for_nothing_only_gives_others_a_turn():
    clock = ManualClock()
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    async with asyncio.TaskGroup() as group:
        group.create_task(other())
        await clock.sleep(0)
        order.append("sleeper")
    assert order == ["other", "sleeper"]
    assert clock.next_due is None
