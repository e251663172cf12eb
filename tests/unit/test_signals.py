"""Whose the signals are, at the edges of a host's own run."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from jetjobs._engine.signals import EXIT_INTERRUPTED, EXIT_OK, StopSignals

OWNED = [signal.SIGINT, signal.SIGTERM, *([] if sys.platform == "win32" else [signal.SIGHUP])]


@pytest.fixture(autouse=True)
def kept() -> Iterator[None]:
    found = [(number, signal.getsignal(number)) for number in OWNED]
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under `nohup` it isn't owned
    before = [signal.getsignal(number) for number in OWNED]
    yield
    assert [signal.getsignal(number) for number in OWNED] == before
    for number, handler in found:
        signal.signal(number, handler)


@pytest.mark.parametrize(
    "number, code", [(number, EXIT_INTERRUPTED if number is signal.SIGINT else EXIT_OK) for number in OWNED]
)
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


def hears(*_: object) -> None: ...


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGHUP")
@pytest.mark.parametrize("kept_as", [signal.SIG_IGN, hears], ids=["ignored", "the-programs-own"])
def test_a_hang_up_that_ends_nothing_is_not_owned(kept_as: Any):
    before = signal.signal(signal.SIGHUP, kept_as)
    with StopSignals():
        assert signal.getsignal(signal.SIGHUP) is kept_as
    assert signal.signal(signal.SIGHUP, before) is kept_as


def test_handlers_are_put_back_after_an_error_too():
    with pytest.raises(RuntimeError), StopSignals():
        raise RuntimeError
