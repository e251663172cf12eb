from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jetjobs._core.redaction import HIDDEN, redact


@pytest.mark.parametrize(
    "value, paths, expected",
    [
        ({"a": 1, "b": 2}, ["a"], {"a": HIDDEN, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, ["a.b"], {"a": {"b": HIDDEN, "c": 2}}),
        ({"a": {"b": 1, "c": 2}}, ["a.*"], {"a": {"b": HIDDEN, "c": HIDDEN}}),
        ({"a": [{"b": 1}, {"b": 2}]}, ["a.b"], {"a": [{"b": HIDDEN}, {"b": HIDDEN}]}),
        ({"a": [1, 2]}, ["a.1"], {"a": [1, HIDDEN]}),
        ({"a": (1, 2)}, ["a.*"], {"a": [HIDDEN, HIDDEN]}),
        ({"a": {7}}, ["a.*"], {"a": [HIDDEN]}),
        ({"a": {"b": 1}}, ["a"], {"a": HIDDEN}),
        ({"a": 1}, ["b", "a.b.c"], {"a": 1}),
        ("text", ["a"], "text"),
        (None, ["a"], None),
        ({"a": 1, "b": 2}, ["a", "b"], {"a": HIDDEN, "b": HIDDEN}),
    ],
)
def test_what_is_hidden(value: Any, paths: list[str], expected: Any) -> None:
    assert redact(value, paths) == expected


def test_the_value_given_stays_as_it_is() -> None:
    value = {"card": {"number": "4111"}}
    assert redact(value, ["card.number"])["card"]["number"] == HIDDEN
    assert value == {"card": {"number": "4111"}}
    assert redact(value, ()) is value


@settings(max_examples=30)
@given(st.dictionaries(st.sampled_from("abc"), st.lists(st.dictionaries(st.sampled_from("xyz"), st.integers()))))
def test_nothing_under_a_path_is_left_and_twice_is_once(value: dict[str, Any]) -> None:
    hidden = redact(value, ["a", "b.x"])
    assert hidden.get("a", HIDDEN) == HIDDEN
    assert all(item.get("x", HIDDEN) == HIDDEN for item in hidden.get("b", []))
    assert redact(hidden, ["a", "b.x"]) == hidden
