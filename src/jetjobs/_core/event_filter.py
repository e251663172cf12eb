"""Filters of event triggers: a mapping from dotted paths to what the field must be, compiled once, matched often.

A scalar means equal, a list any of, a mapping names operators that must all hold. A missing field passes
`{"exists": False}` and nothing else. Values of different kinds never match: `1` is not `True`, `"5"` is not `5`.
Matching never raises, whatever the event.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final, cast

from jetjobs.errors import DeclarationError

MAX_CONDITIONS: Final = 64
_MISSING: Final = object()
_Test = Callable[[Any, Any], bool]


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A compiled filter. `spec` is the filter as given, as plain data that can't be changed any more.

    >>> compile_filter({"total": {"gte": 100}, "customer.land": ["FR", "DE"]}).matches(
    ...     {"total": 120, "customer": {"land": "FR"}}
    ... )
    True
    """

    spec: Mapping[str, Any]
    _conditions: tuple[tuple[tuple[str, ...], _Test, Any], ...] = field(repr=False, compare=False)

    def matches(self, event: object) -> bool:
        """Whether every condition holds."""
        return all(_holds(test, _at(event, path), operand) for path, test, operand in self._conditions)


def compile_filter(spec: object) -> EventFilter:
    """The filter, ready to match.

    Raises:
        DeclarationError: it means nothing; names the path and says what to write.
    """
    if not isinstance(spec, Mapping) or not spec:
        raise DeclarationError(f'filter must be a dict such as {{"total": {{"gte": 100}}}}, not {spec!r}')
    conditions: list[tuple[tuple[str, ...], _Test, Any]] = []
    kept: dict[str, Any] = {}
    for path, wanted in cast("Mapping[object, object]", spec).items():
        parts = _path(path)
        operators = _operators(str(path), wanted)
        conditions += [(parts, _TESTS[name], operand) for name, operand in operators.items()]
        kept[str(path)] = _plain(wanted, operators)
    if len(conditions) > MAX_CONDITIONS:
        raise DeclarationError(f"filter has {len(conditions)} conditions, at most {MAX_CONDITIONS}; narrow the subject")
    return EventFilter(MappingProxyType(kept), tuple(conditions))


def _path(path: object) -> tuple[str, ...]:
    parts = tuple(path.split(".")) if isinstance(path, str) else ()
    if not parts or not all(parts):
        raise DeclarationError(f'filter: {path!r} is no path to a field; write "total" or "customer.country"')
    return parts


def _operators(path: str, wanted: object) -> dict[str, Any]:
    if isinstance(wanted, Mapping):
        given = cast("Mapping[object, object]", wanted)
        if not given:
            raise DeclarationError(f'filter: {path} is an empty dict; write {{"{path}": {{"exists": True}}}}')
        return {_operator(path, name): _operand(path, str(name), value) for name, value in given.items()}
    if isinstance(wanted, (list, tuple, set, frozenset)):
        return {"in": _operand(path, "in", cast("object", wanted))}
    return {"eq": _operand(path, "eq", wanted)}


def _operator(path: str, name: object) -> str:
    if isinstance(name, str) and name in _TESTS:
        return name
    close = difflib.get_close_matches(str(name), _TESTS, n=1)
    hint = f"did you mean {close[0]}?" if close else f'for a nested field write "{path}.{name}"'
    raise DeclarationError(f"filter: {path} has no operator {name!r}; there are {' '.join(_TESTS)}; {hint}")


def _operand(path: str, name: str, value: object) -> Any:
    """The operand in the form the test takes.

    Raises:
        DeclarationError: the operator can't do anything with it.
    """
    match name:
        case "eq" | "ne" | "contains":
            good, instead = _is_scalar(value), "a text, number, True, False or None"
        case "gt" | "gte" | "lt" | "lte":
            good, instead = isinstance(value, str) or _is_number(value), "a number or text"
        case "prefix" | "suffix":
            good, instead = isinstance(value, str) and value != "", "a text that isn't empty"
        case "exists":
            good, instead = isinstance(value, bool), "True or False"
        case _:
            return _any_of(path, value)
    if not good:
        raise DeclarationError(f"filter: {path} {name} takes {instead}, not {value!r}")
    return value


def _any_of(path: str, value: object) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple, set, frozenset)) or not value:
        raise DeclarationError(f"filter: {path} takes a list that isn't empty, not {value!r}")
    options = tuple(cast("Sequence[object]", value))
    for option in options:
        if not _is_scalar(option):
            raise DeclarationError(f"filter: {path} can't be any of {option!r}; list texts, numbers, True, False, None")
    return tuple(sorted(options, key=repr)) if isinstance(value, (set, frozenset)) else options


def _plain(wanted: object, operators: Mapping[str, Any]) -> Any:
    """The condition as it was written, with lists and dicts of its own."""
    shown = {name: list(cast("tuple[Any, ...]", it)) if name == "in" else it for name, it in operators.items()}
    return shown if isinstance(wanted, Mapping) else next(iter(shown.values()))


def in_order(wanted: Any) -> Any:
    """A filter's `spec`, or a part of it, the same whatever the order of its fields, operators and alternatives.

    >>> in_order({"b": ["y", "x"], "a": 1})
    {'a': 1, 'b': ['x', 'y']}
    """
    if isinstance(wanted, Mapping):
        parts = cast("Mapping[str, Any]", wanted)
        return {name: in_order(parts[name]) for name in sorted(parts)}
    return sorted(cast("list[Any]", wanted), key=repr) if isinstance(wanted, list) else wanted


def _is_number(value: object) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int) or (isinstance(value, Decimal) and value.is_finite())


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, (str, bool)) or _is_number(value)


def _at(event: object, path: tuple[str, ...]) -> object:
    found = event
    for part in path:
        if isinstance(found, Mapping):
            found = cast("Mapping[object, object]", found).get(part, _MISSING)
        elif isinstance(found, (list, tuple)) and part.isdecimal() and part.isascii() and len(part) < 10:
            items = cast("Sequence[object]", found)
            found = items[int(part)] if int(part) < len(items) else _MISSING
        else:
            return _MISSING
    return found


def _holds(test: _Test, value: object, operand: Any) -> bool:
    if value is _MISSING:
        return test is _exists and not operand
    return test(value, operand)


def _equal(value: Any, operand: Any) -> bool:
    if _is_number(value) and _is_number(operand):
        return bool(value == operand)
    return type(value) is type(operand) and bool(value == operand)


def _ordered(compare: Callable[[Any, Any], bool]) -> _Test:
    def test(value: Any, operand: Any) -> bool:
        both_texts = isinstance(value, str) and isinstance(operand, str)
        return (both_texts or (_is_number(value) and _is_number(operand))) and compare(value, operand)

    return test


def _contains(value: Any, operand: Any) -> bool:
    if isinstance(value, str):
        return isinstance(operand, str) and operand in value
    if isinstance(value, (list, tuple, set, frozenset)):
        return any(_equal(item, operand) for item in cast("Sequence[object]", value))
    return False


def _exists(_value: Any, operand: Any) -> bool:
    return operand is True


_TESTS: Final[Mapping[str, _Test]] = MappingProxyType(
    {
        "eq": _equal,
        "ne": lambda value, operand: not _equal(value, operand),
        "in": lambda value, operand: any(_equal(value, option) for option in operand),
        "gt": _ordered(lambda value, operand: value > operand),
        "gte": _ordered(lambda value, operand: value >= operand),
        "lt": _ordered(lambda value, operand: value < operand),
        "lte": _ordered(lambda value, operand: value <= operand),
        "prefix": lambda value, operand: isinstance(value, str) and value.startswith(operand),
        "suffix": lambda value, operand: isinstance(value, str) and value.endswith(operand),
        "contains": _contains,
        "exists": _exists,
    }
)
