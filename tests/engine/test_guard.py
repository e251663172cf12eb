"""The guard of child processes, beside the tests that freeze a host."""

from __future__ import annotations

import math
import sys
import threading

import pytest

from jetjobs._engine import guard

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no guard there")


class Idle:
    """Work that has no process yet."""

    told_until = math.inf

    def allowance(self) -> None:
        return None


def test_a_guard_that_is_closed_while_it_starts_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    starting, go_on, spawn = threading.Event(), threading.Event(), guard._spawn

    def slowly() -> object:
        starting.set()
        assert go_on.wait(10)
        return spawn()

    monkeypatch.setattr(guard, "_spawn", slowly)
    made = guard.Guard()
    made.watch(Idle(), 1.0)
    assert starting.wait(10)
    closing = threading.Thread(target=made.close)
    closing.start()
    assert made._closed.wait(10)
    go_on.set()
    closing.join(10)
    process = made._process
    assert process is not None
    assert process.poll() is not None
