"""The owner of the hot path's tasks."""

from __future__ import annotations

import asyncio

from jetjobs._engine.tasks import Tasks


async def test_all_who_wait_for_the_last_task_hear_of_its_end() -> None:
    """A host that is asked to drain and is closed meanwhile waits twice."""
    tasks, gate = Tasks(), asyncio.Event()
    tasks.start(gate.wait())
    waiting = [asyncio.ensure_future(tasks.wait_idle(10)) for _ in range(2)]
    await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(5):
        assert await asyncio.gather(*waiting) == [True, True]
    tasks.start(asyncio.sleep(10))
    assert not await tasks.wait_idle(0)
    await tasks.cancel_all()
    assert await tasks.wait_idle(0)
