"""What may end the loop of a host that owns its process."""

from __future__ import annotations

import asyncio
import signal
import sys

import pytest
from structlog.testing import capture_logs

from jetjobs._engine.leaving import to_its_end


async def leaves(how: type[BaseException]) -> None:
    raise how


async def work(how: type[BaseException]) -> int:
    with pytest.raises(how):
        await asyncio.create_task(leaves(how))
    asyncio.get_running_loop().call_soon(sys.exit)
    await asyncio.sleep(0.01)
    return 7


@pytest.mark.parametrize("how", [SystemExit, KeyboardInterrupt])
def test_a_task_that_leaves_ends_nothing_else(how: type[BaseException]) -> None:
    with capture_logs() as said, asyncio.Runner() as runner:
        assert to_its_end(runner.get_loop(), work(how)) == 7
    assert [entry["error"] for entry in said] == [how.__name__, "SystemExit"]
    assert "in leaves" in said[0]["at"]


def test_the_work_itself_may_leave() -> None:
    async def ends() -> int:
        sys.exit(5)

    with pytest.raises(SystemExit) as left, asyncio.Runner() as runner:
        to_its_end(runner.get_loop(), ends())
    assert left.value.code == 5


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal")
def test_a_signals_handler_may_leave() -> None:
    def on_signal(_number: int, _frame: object) -> None:
        sys.exit(6)

    before = signal.signal(signal.SIGUSR2, on_signal)
    try:
        with asyncio.Runner() as runner:
            runner.get_loop().call_soon(signal.raise_signal, signal.SIGUSR2)
            with pytest.raises(SystemExit) as left:
                to_its_end(runner.get_loop(), asyncio.sleep(1, 7))
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert left.value.code == 6
