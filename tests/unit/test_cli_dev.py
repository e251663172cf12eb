"""How `jetjobs dev` ends its host."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jetjobs.cli.dev import HostProcess, Interrupts, Reloading


class Deaf(HostProcess):
    """A host that goes on until it is killed."""

    def __init__(self) -> None:
        super().__init__([], {}, report=Path("files.json"), paths=[])
        self.looks = 0
        self.killed = False

    @property
    def running(self) -> bool:
        self.looks += 1
        assert self.looks < 20, "it waits for its host, which was asked twice"
        return not self.killed

    def kill(self) -> None:
        self.killed = True


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield Interrupts()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_two_interrupts_that_came_before_it_drains_end_it_at_once(interrupts: Interrupts):
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert len(interrupts.heard) == 2
    host = Deaf()
    Reloading(host, interrupts)._drain()
    assert host.killed


def test_a_second_interrupt_ends_a_drain(interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch):
    host = Deaf()
    signal.raise_signal(signal.SIGINT)

    def press(_seconds: float) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("jetjobs.cli.dev.time.sleep", press)
    Reloading(host, interrupts)._drain()
    assert host.killed
    assert len(interrupts.heard) == 2
