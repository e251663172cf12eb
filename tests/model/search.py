"""Breadth-first search through a world: the shortest way to each broken rule, and states without a way out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.model.run_world import RunWorld
from tests.model.values import World


@dataclass
class Found:
    """How many states there are, and the shortest way to each thing that is wrong."""

    states: int = 0
    wrong: dict[str, list[str]] = field(default_factory=dict[str, list[str]])


def search(world: RunWorld, *, limit: int = 400_000, first: bool = False) -> Found:
    """Everything reachable from the start of `world`, or an error past `limit` states.

    `first` ends the search at the first thing that is wrong.
    """
    graph = _Graph(world.start())
    found = Found()
    for here in graph.in_order():
        for label, after, luck, wrong in world.moves(graph.states[here]):
            if wrong is None:
                graph.add(here, label, after, luck=luck)
            elif wrong not in found.wrong:
                found.wrong[wrong] = [*graph.way(here), label]
        if first and found.wrong:
            return found
        if len(graph.states) > limit:
            raise RuntimeError(f"more than {limit} states: the bounds are too wide, or something grows")
    found.states = len(graph.states)
    stuck = graph.stuck(world)
    if stuck is not None and not found.wrong:
        found.wrong["no way to an end"] = [*graph.way(stuck), str(graph.states[stuck])]
    return found


class _Graph:
    """The states found so far, how each was reached first, and from where without luck."""

    def __init__(self, start: World) -> None:
        self.states = [start]
        self._numbers = {start: 0}
        self._came: list[tuple[int, str]] = [(-1, "")]
        self._back: list[list[int]] = [[]]

    def in_order(self) -> Iterator[int]:
        """Every state's number, those included that are added meanwhile."""
        here = 0
        while here < len(self.states):
            yield here
            here += 1

    def add(self, here: int, label: str, after: World, *, luck: bool) -> None:
        """Note a step from one state to another."""
        there = self._numbers.setdefault(after, len(self.states))
        if there == len(self.states):
            self.states.append(after)
            self._came.append((here, label))
            self._back.append([])
        if not luck:
            self._back[there].append(here)

    def way(self, state: int) -> list[str]:
        """The steps of a shortest way to a state."""
        labels: list[str] = []
        while state > 0:
            state, label = self._came[state]
            labels.append(label)
        return labels[::-1]

    def stuck(self, world: RunWorld) -> int | None:
        """The first state from which no good end can be reached without luck."""
        ways_out = bytearray(map(world.good, self.states))
        todo = [place for place, out in enumerate(ways_out) if out]
        while todo:
            for before in self._back[todo.pop()]:
                if not ways_out[before]:
                    ways_out[before] = 1
                    todo.append(before)
        return next((place for place, out in enumerate(ways_out) if not out), None)
