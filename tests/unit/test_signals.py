"""Whose the signals are, at the edges of a host's own run."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from jetjobs._engine.signals import EXIT_INTERRUPTED, EXIT_OK, StopSignals


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    yield
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize("number, code", [(signal.SIGTERM, EXIT_OK), (signal.SIGINT, EXIT_INTERRUPTED)])
class TestTheFirstSignal:
    def test_ends_what_waits_for_it(self, number: signal.Signals, code: int):
        async def wait(signals: StopSignals) -> int:
            stop = signals.stop()
            signal.raise_signal(number)
            return await asyncio.wait_for(stop, 5)

        with StopSignals() as signals:
            assert asyncio.run(wait(signals)) == code

    def test_is_not_lost_before_there_is_a_loop(self, number: signal.Signals, code: int):
        async def wait(signals: StopSignals) -> int:
            return await asyncio.wait_for(signals.stop(), 5)

        with StopSignals() as signals:
            signal.raise_signal(number)
            assert asyncio.run(wait(signals)) == code


def test_a_signal_after_the_loop_has_gone_does_no_harm():
    async def begin(signals: StopSignals) -> asyncio.Future[int]:
        return signals.stop()

    with StopSignals() as signals:
        stop = asyncio.run(begin(signals))
        signal.raise_signal(signal.SIGTERM)
        assert not stop.done()


def test_handlers_are_put_back_after_an_error_too():
    with pytest.raises(RuntimeError), StopSignals():
        raise RuntimeError
