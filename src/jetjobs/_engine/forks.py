"""Whether this process is still the one that started something, and what its forked children must not keep.

A handler may fork, and its child must not finish its parent's run. Asking the kernel for the process id before and
after every handler costs more than the rest of the check, so forks are counted instead: a child counts one more.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_forks = [0]
_in_child: dict[object, Callable[[], None]] = {}


def _forked() -> None:
    _forks[0] += 1
    for action in list(_in_child.values()):
        action()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def in_child(action: Callable[[], None]) -> Callable[[], None]:
    """Call `action` in every child forked from now on, before its own code; the answer ends that."""
    key = object()
    _in_child[key] = action

    def end() -> None:
        _in_child.pop(key, None)

    return end


def lineage() -> int:
    """A number that differs in every child forked after this call."""
    return _forks[0]


def leave_if_forked(at_start: int) -> None:
    """End this process if it was forked since `lineage()` gave `at_start`."""
    if _forks[0] != at_start:
        os._exit(0)
