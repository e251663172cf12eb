"""Whether this process is still the one that started something.

A handler may fork, and its child must not finish its parent's run. Asking the kernel for the process id before and
after every handler costs more than the rest of the check, so forks are counted instead: a child counts one more.
"""

from __future__ import annotations

import os

_forks = [0]


def _count() -> None:
    _forks[0] += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count)


def lineage() -> int:
    """A number that differs in every child forked after this call."""
    return _forks[0]


def leave_if_forked(at_start: int) -> None:
    """End this process if it was forked since `lineage()` gave `at_start`."""
    if _forks[0] != at_start:
        os._exit(0)
