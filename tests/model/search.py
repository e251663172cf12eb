"""Breadth-first search through a world: the shortest way to each broken rule, and states without a way out."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from tests.model.run_world import RunWorld, World


@dataclass
class Found:
    """How many states there are, and the shortest way to each thing that is wrong."""

    states: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def search(world: RunWorld, *, limit: int = 400_000, first: bool = False) -> Found:
    """Everything reachable from the start of `world`, or an error past `limit` states.

    `first` ends the search at the first thing that is wrong.
    """
    start = world.start()
    number = {start: 0}
    states = [start]
    came: list[tuple[int, str]] = [(-1, "")]
    back: list[list[int]] = [[]]
    found = Found()
    todo = deque([0])
    while todo:
        here = todo.popleft()
        for label, after, luck, wrong in world.moves(states[here]):
            if wrong is not None:
                if wrong not in found.wrong:
                    found.wrong[wrong] = [*_way(came, here), label]
                if first:
                    return found
                continue
            there = number.get(after)
            if there is None:
                there = number[after] = len(states)
                states.append(after)
                came.append((here, label))
                back.append([])
                todo.append(there)
                if there > limit:
                    raise RuntimeError(f"more than {limit} states: the bounds are too wide, or something grows")
            if not luck:
                back[there].append(here)
    found.states = len(states)
    stuck = _stuck(world, states, back)
    if stuck is not None and not found.wrong:
        found.wrong["no way to an end"] = [*_way(came, stuck), str(states[stuck])]
    return found


def _way(came: list[tuple[int, str]], state: int) -> list[str]:
    labels: list[str] = []
    while state > 0:
        state, label = came[state]
        labels.append(label)
    return labels[::-1]


def _stuck(world: RunWorld, states: list[World], back: list[list[int]]) -> int | None:
    """The first state from which no good end can be reached without luck."""
    ways_out = bytearray(len(states))
    todo = [place for place, state in enumerate(states) if world.good(state)]
    for place in todo:
        ways_out[place] = 1
    while todo:
        for before in back[todo.pop()]:
            if not ways_out[before]:
                ways_out[before] = 1
                todo.append(before)
    return next((place for place, out in enumerate(ways_out) if not out), None)
