"""Values of every kind that a payload may have."""

from __future__ import annotations

import dataclasses
from datetime import timedelta, timezone
from typing import Any, NamedTuple
from uuid import UUID

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=("Cs",)))


floats = st.floats(allow_nan=False, allow_infinity=False)


ints = st.integers(-(2**63), 2**64 - 1)


zones = (
    st.none() | st.timezones() | st.integers(-86_399, 86_399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
)


hashables = (
    st.none()
    | st.booleans()
    | ints
    | floats
    | texts
    | st.binary()
    | st.datetimes(timezones=zones)
    | st.dates()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
)


sets = st.sets(st.recursive(hashables, lambda p: st.frozensets(p, max_size=3) | st.lists(p, max_size=3).map(tuple)))


values = st.recursive(
    hashables | sets,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(texts, parts, max_size=4),
    max_leaves=12,
)


class Point(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass(frozen=True)
class Order:
    id: UUID
    lines: tuple[Point, ...] = ()


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def cyclic_dict() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["me"] = [value]
    return value
