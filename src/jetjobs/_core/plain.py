"""The walk through a value that makes it plain for msgpack, or refuses it and says where and why.

`codec.encode` takes it only when C could not pack a value that is evidently fine.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import msgpack

from jetjobs._core.leaves import SET, WRITERS
from jetjobs._core.pydantic_values import is_model, is_secret
from jetjobs.errors import PayloadError

if TYPE_CHECKING:
    from pydantic import BaseModel

MAX_DEPTH: Final = 100
SURE: Final = frozenset({bool, type(None), bytes})

# A writer's own refusal, or whatever a user's tzinfo raises when it is asked for its offset.
WRITE_FAULTS: Final = (ValueError, TypeError, ArithmeticError, LookupError, RuntimeError, AttributeError)
_WRITE: Final = (
    "write None, bool, int, float, str, bytes, list, dict, datetime, date, timedelta, Decimal, UUID, set, "
    "a pydantic model, a dataclass or an enum"
)


def plain(value: object, path: str, above: tuple[int, ...] = ()) -> Any:
    """The value made of nothing but what msgpack knows.

    Raises:
        PayloadError: a part of it can't be stored; names the path to it, and what to write.
    """
    kind = type(value)
    if kind in SURE:
        return value
    write = WRITERS.get(kind) or next((write for base, write in WRITERS.items() if isinstance(value, base)), None)
    if write is not None and not isinstance(value, Enum):
        try:
            return write(value)
        except WRITE_FAULTS as error:
            _refuse(path, f"is {shown(value)}, which can't be stored: {error}")
    if id(value) in above:
        _refuse(path, "contains itself; store a value that ends")
    if len(above) >= MAX_DEPTH:
        _refuse(path, f"is nested deeper than {MAX_DEPTH} levels; store a flatter value")
    return _plain_parts(value, path, (*above, id(value)))


def _plain_parts(value: object, path: str, above: tuple[int, ...]) -> Any:
    match value:
        case Enum():
            return plain(value.value, path, above)
        case dict():
            return _plain_dict(cast("dict[object, object]", value), path, above)
        case list() | tuple():
            return _plain_list(cast("Iterable[object]", value), path, above)
        case set() | frozenset():
            return _plain_set(cast("Iterable[object]", value), path, above)
        case _ if is_model(value):
            return plain(_dumped(value, path), path, above)
        case _:
            return _plain_dict(_members(value, path), path, above)


def _members(value: object, path: str) -> dict[str, object]:
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        _refuse(path, _why_not(value))
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _why_not(value: object) -> str:
    if is_secret(value):
        return "is a secret, which would be stored in clear; store a reference to it instead"
    return f"is {what_it_is(value)}, which can't be stored; {_WRITE}"


def what_it_is(value: object) -> str:
    """The value's type as its user calls it, with an article.

    >>> what_it_is(1j), what_it_is(object()), what_it_is(int), what_it_is(json.JSONEncoder())
    ('a complex', 'an object', 'the class int', 'a json.encoder.JSONEncoder')
    """
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"


def _plain_dict(value: Mapping[Any, object], path: str, above: tuple[int, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, part in value.items():
        if not isinstance(key, str):
            _refuse(path, f"has the key {shown(key)} of type {type(key).__name__}; keys must be str")
        name = plain(key.value if isinstance(key, Enum) else key, f"a key of {path}")
        made[name] = plain(part, f"{path}[{_key(name)}]", above)
    return made


def _plain_list(value: Iterable[object], path: str, above: tuple[int, ...]) -> list[Any]:
    return [plain(part, f"{path}[{index}]", above) for index, part in enumerate(value)]


def _plain_set(value: Iterable[object], path: str, above: tuple[int, ...]) -> msgpack.ExtType:
    parts = _plain_list(value, path, above)
    if _holds_dict(parts):
        _refuse(path, "is a set of models, which come back as dicts and fit no set; store a list of them")
    return msgpack.ExtType(SET, packb(parts))


def _holds_dict(parts: Iterable[object]) -> bool:
    return any(
        isinstance(part, dict) or (isinstance(part, list) and _holds_dict(cast("list[object]", part))) for part in parts
    )


def _dumped(model: BaseModel, path: str) -> object:
    try:
        # By alias and for a round trip, because the handler's side validates what is stored.
        return model.model_dump(mode="python", by_alias=True, round_trip=True)
    except (ValueError, TypeError, RecursionError) as error:
        _refuse(path, f"is a {type(model).__name__} that can't be dumped: {error}")


def _refuse(path: str, why: str) -> NoReturn:
    shown = path if len(path) <= 300 else f"{path[:200]}…{path[-60:]}"
    raise PayloadError(f"{shown} {why}")


def _key(name: str) -> str:
    return json.dumps(name if len(name) <= 60 else name[:57] + "...", ensure_ascii=False)


def shown(value: object) -> str:
    """The value's `repr` in ASCII, short enough for a message."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


def packb(value: object, default: Callable[[Any], object] | None = None) -> bytes:
    """The value as msgpack; subclasses and unknown types go through `default`."""
    # A new packer each time: a shared one breaks when `default` is entered twice or threads change inside it.
    return cast("bytes", msgpack.packb(value, default=default, strict_types=True))
