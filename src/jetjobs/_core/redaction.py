"""Hiding parts of payloads and results from everything that shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

HIDDEN: Final = "[redacted]"


def redact(value: Any, paths: Iterable[str]) -> Any:
    """A copy of a decoded value with the fields at these dotted paths replaced; the value itself if there are none.

    `*` stands for every key or item. A path that leads nowhere hides nothing; lists are entered without a `*`, too,
    so that `lines.card` hides the field in each line.

    >>> redact({"card": {"number": "4111", "name": "x"}}, ["card.number"])
    {'card': {'number': '[redacted]', 'name': 'x'}}
    """
    found = value
    for path in paths:
        found = _hide(found, path.split("."))
    return found


def _hide(value: Any, path: list[str]) -> Any:
    if not path:
        return HIDDEN
    head, rest = path[0], path[1:]
    if isinstance(value, Mapping):
        fields = cast("Mapping[Any, Any]", value)
        return {name: _hide(part, rest) if head in {"*", name} else part for name, part in fields.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = list(cast("Iterable[Any]", value))
        if head == "*" or head.isdecimal():
            return [_hide(item, rest) if head in {"*", str(n)} else item for n, item in enumerate(items)]
        return [_hide(item, path) for item in items]
    return value
