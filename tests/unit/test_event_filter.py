from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetjobs._core.event_filter import compile_filter
from jetjobs.errors import DeclarationError

ORDER = {
    "id": 7,
    "total": 120.5,
    "paid": True,
    "note": None,
    "customer": {"country": "FR", "tags": ["new", "vip"]},
    "lines": [{"sku": "A-1"}, {"sku": "B-2"}],
    "text": "order for Paris",
    "exact": Decimal("10.5"),
}


@pytest.mark.parametrize(
    "spec, expected",
    [
        ({"id": 7}, True),
        ({"id": 7.0}, True),
        ({"id": 8}, False),
        ({"id": "7"}, False),
        ({"paid": True}, True),
        ({"paid": 1}, False),
        ({"id": {"ne": True}}, True),
        ({"note": None}, True),
        ({"missing": None}, False),
        ({"customer.country": "FR"}, True),
        ({"customer.country": ["DE", "FR"]}, True),
        ({"customer.country": ("DE", "ES")}, False),
        ({"customer.country": {"FR"}}, True),
        ({"customer.country": {"in": ["FR"]}}, True),
        ({"customer.country.deeper": "FR"}, False),
        ({"customer.country": {"ne": "DE"}}, True),
        ({"customer.country": {"ne": "FR"}}, False),
        ({"missing": {"ne": "FR"}}, False),
        ({"total": {"gt": 120.5}}, False),
        ({"total": {"gte": 120.5}}, True),
        ({"total": {"lt": 121}}, True),
        ({"total": {"lte": 120}}, False),
        ({"total": {"gte": 100, "lt": 110}}, False),
        ({"total": {"gt": "100"}}, False),
        ({"exact": 10.5}, True),
        ({"exact": {"gt": 10}}, True),
        ({"paid": {"gt": 0}}, False),
        ({"text": {"gt": "a"}}, True),
        ({"text": {"prefix": "order", "suffix": "Paris"}}, True),
        ({"text": {"prefix": "Order"}}, False),
        ({"id": {"prefix": "7"}}, False),
        ({"id": {"suffix": "7"}}, False),
        ({"text": {"contains": "for"}}, True),
        ({"text": {"contains": 1}}, False),
        ({"customer.tags": {"contains": "vip"}}, True),
        ({"customer.tags": {"contains": "old"}}, False),
        ({"id": {"contains": 7}}, False),
        ({"lines.0.sku": "A-1"}, True),
        ({"lines.2.sku": "A-1"}, False),
        ({"lines.x": "A-1"}, False),
        ({"customer": {"exists": True}}, True),
        ({"missing": {"exists": True}}, False),
        ({"missing": {"exists": False}}, True),
        ({"id": {"exists": False}}, False),
        ({"id": 7, "paid": False}, False),
    ],
)
def test_what_matches(spec: dict[str, Any], *, expected: bool) -> None:
    assert compile_filter(spec).matches(ORDER) is expected


@pytest.mark.parametrize(
    "spec, message",
    [
        ("total>5", "filter must be a dict"),
        (None, "filter must be a dict"),
        ({"": 1}, "filter: '' is no path to a field"),
        ({"a..b": 1}, "filter: 'a..b' is no path"),
        ({5: 1}, "filter: 5 is no path"),
        (dict[str, Any](), "filter must be a dict such as"),
        ({"a": dict[str, Any]()}, "filter: a is an empty dict"),
        ({"a": list[str]()}, "filter: a takes a list that isn't empty"),
        ({"a": {"in": "text"}}, "filter: a takes a list that isn't empty, not 'text'"),
        ({"a": [object]}, "filter: a can't be any of <class 'object'>"),
        ({"a": {"gtt": 1}}, "filter: a has no operator 'gtt'; there are eq ne in .*; did you mean gt"),
        ({"customer": {"country": "FR"}}, "no operator 'country'.*for a nested field write \"customer.country\""),
        ({"a": {5: 1}}, "filter: a has no operator 5"),
        ({"a": {"gt": None}}, "filter: a gt takes a number or text, not None"),
        ({"a": {"gt": True}}, "filter: a gt takes a number or text, not True"),
        ({"a": {"gt": math.nan}}, "filter: a gt takes a number or text, not nan"),
        ({"a": {"prefix": ""}}, "filter: a prefix takes a text that isn't empty"),
        ({"a": {"suffix": 5}}, "filter: a suffix takes a text"),
        ({"a": {"exists": 1}}, "filter: a exists takes True or False, not 1"),
        ({"a": {"eq": [1]}}, r"filter: a eq takes a text, number, True, False or None, not \[1\]"),
        ({"a": object}, "filter: a eq takes"),
        ({"a": math.inf}, "filter: a eq takes"),
        ({f"p{n}": n for n in range(65)}, "filter has 65 conditions, at most 64"),
    ],
)
def test_what_is_refused_when_declared(spec: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        compile_filter(spec)


def test_the_spec_is_the_filter_as_plain_data_and_cannot_change() -> None:
    countries = ["DE", "FR"]
    compiled = compile_filter({"a": countries, "b": {"in": ("x",)}, "c": {"gte": 1, "lt": 5}, "d": None})
    countries.append("ES")
    assert compiled.spec == {"a": ["DE", "FR"], "b": {"in": ["x"]}, "c": {"gte": 1, "lt": 5}, "d": None}
    assert compile_filter(compiled.spec) == compiled
    with pytest.raises(TypeError):
        compiled.spec["a"] = 1  # pyright: ignore[reportIndexIssue]


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.decimals()
EVENTS: st.SearchStrategy[Any] = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
)
PATHS = st.lists(st.sampled_from(["a", "b", "c", "0", "1"]), min_size=1, max_size=3).map(".".join)
OPERANDS = st.booleans() | st.integers() | st.text(min_size=1, max_size=5)
NUMBERS_AND_TEXTS = st.integers() | st.text()


def conditions() -> st.SearchStrategy[Any]:
    equal = st.fixed_dictionaries({}, optional={"eq": OPERANDS, "ne": OPERANDS, "contains": OPERANDS})
    ordered = st.fixed_dictionaries({}, optional=dict.fromkeys(["gt", "gte", "lt", "lte"], NUMBERS_AND_TEXTS))
    exists = st.fixed_dictionaries({"exists": st.booleans()})
    return OPERANDS | st.lists(OPERANDS, min_size=1, max_size=3) | equal.filter(bool) | ordered.filter(bool) | exists


@settings(max_examples=50)
@given(st.dictionaries(PATHS, conditions(), min_size=1, max_size=4), EVENTS)
def test_matching_never_raises_and_is_the_and_of_its_parts(spec: dict[str, Any], event: Any) -> None:
    whole = compile_filter(spec).matches(event)
    assert whole is all(compile_filter({path: wanted}).matches(event) for path, wanted in spec.items())
    assert compile_filter(dict(reversed(spec.items()))).matches(event) is whole


@given(EVENTS, st.integers() | st.text())
def test_less_equal_and_greater_are_the_only_ways_to_differ(event: Any, bound: Any) -> None:
    def holds(name: str) -> bool:
        return compile_filter({"a": {name: bound}}).matches({"a": event})

    assert holds("gte") is (holds("gt") or holds("eq"))
    assert holds("lte") is (holds("lt") or holds("eq"))
    assert holds("ne") is not holds("eq")
    assert sum((holds("lt"), holds("gt"), holds("eq"))) <= 1


@given(EVENTS)
def test_exists_tells_a_field_from_none(event: Any) -> None:
    assert compile_filter({"a": {"exists": True}}).matches({"a": event})
    assert compile_filter({"a": {"exists": False}}).matches({"b": event})
