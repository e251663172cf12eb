"""Payloads, results and checkpoints as msgpack, and back. Knows no models; never pickle, nothing is executed.

Beside None, bool, int (64 bit), finite float, str, bytes, list and dict with str keys, these have extension types:

==== ========= ============================================================================
code type      data
==== ========= ============================================================================
1    datetime  RFC 3339 text; no offset when naive; `[Area/City]` appended for a `ZoneInfo`
2    date      `2026-03-01`
3    timedelta decimal seconds with six digits, `-1.500000`
4    Decimal   its text
5    UUID      its 16 bytes
6    set       the msgpack of an array
==== ========= ============================================================================

Models, dataclasses, named tuples and enums become what they are made of, tuples become lists, frozen sets sets.

`encode` first lets C pack what is evidently fine. Whatever makes that doubtful (an unknown type, a key, a depth,
bytes that may be a NaN) sends the whole value to `_plain`, the one place that refuses, and knows the path.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, NoReturn, cast
from uuid import UUID

import msgpack
from pydantic import BaseModel, Secret, SecretBytes, SecretStr

from jetjobs._core.leaves import READERS, SET, WRITERS, write_float, write_int
from jetjobs.errors import PayloadError, PayloadInvalidError

MAX_DEPTH: Final = 100

_SURE: Final = frozenset({bool, type(None), bytes})
_ATOMS: Final = _SURE | {bytearray, int, float, str, datetime, date, timedelta, Decimal, UUID}
_STR_ONLY: Final = frozenset({str})
_NAN: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
_BAD_DATA: Final = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError, MemoryError)
_WRITE: Final = (
    "write None, bool, int, float, str, bytes, list, dict, datetime, date, timedelta, Decimal, UUID, set, "
    "a pydantic model, a dataclass or an enum"
)


# ------------------------------------------------------------------------------------------------ encode


def encode(value: object, *, path: str = "payload") -> bytes:
    """The value as msgpack.

    Raises:
        PayloadError: it can't be stored; names the path to the part, as in `payload["x"][0]`, and what to write.
    """
    try:
        data = _packb(value, default=_leaf)
        if _well_formed(value) and not _may_hold_nan(data):
            return data
    except (_DoubtfulError, ValueError, TypeError, OverflowError, RecursionError, BufferError):
        pass
    return _packb(_plain(value, path))


class _DoubtfulError(Exception):
    """Not evidently fine: let `_plain` decide."""


def _packb(value: object, default: Callable[[Any], object] | None = None) -> bytes:
    # A new packer each time: a shared one breaks when `default` is entered twice or threads change inside it.
    return cast("bytes", msgpack.packb(value, default=default, strict_types=True))


def _leaf(value: object) -> object:
    kind = type(value)
    if kind is tuple:
        return list(cast("tuple[object, ...]", value))
    write = WRITERS.get(kind)
    if write is None:
        raise _DoubtfulError
    return write(value)


def _well_formed(value: object) -> bool:
    """True when all keys are str, all containers plain, and nothing lies deeper than `MAX_DEPTH`."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH + 1):
        deeper: list[Any] = []
        for part in level:
            kind = type(part)
            if kind is dict:
                if not _STR_ONLY.issuperset(map(type, part)):
                    return False
                deeper += part.values()
            elif kind is list or kind is tuple:
                deeper += part
            elif kind not in _ATOMS:
                return False
        level = [part for part in deeper if type(part) not in _ATOMS]
        if not level:
            return True
    return False


def _may_hold_nan(data: bytes) -> bool:
    # NaN and infinity are CB 7F F… or CB FF F…. A text may hold the same bytes: then the walk finds nothing.
    return (b"\xcb\x7f" in data or b"\xcb\xff" in data) and _NAN.search(data) is not None


def _plain(value: object, path: str, above: tuple[int, ...] = ()) -> Any:
    """The value made of nothing but what msgpack knows, or the refusal of the part that can't be."""
    kind = type(value)
    if kind in _SURE:
        return value
    write = WRITERS.get(kind) or next((write for base, write in WRITERS.items() if isinstance(value, base)), None)
    if write is not None and not isinstance(value, Enum):
        try:
            return write(value)
        except ValueError as error:
            _refuse(path, f"is {_shown(value)}, which can't be stored: {error}")
    if id(value) in above:
        _refuse(path, "contains itself; store a value that ends")
    if len(above) >= MAX_DEPTH:
        _refuse(path, f"is nested deeper than {MAX_DEPTH} levels; store a flatter value")
    return _plain_parts(value, path, (*above, id(value)))


def _plain_parts(value: object, path: str, above: tuple[int, ...]) -> Any:
    match value:
        case Enum():
            return _plain(value.value, path, above)
        case dict():
            return _plain_dict(cast("dict[object, object]", value), path, above)
        case list() | tuple():
            return _plain_list(cast("Iterable[object]", value), path, above)
        case set() | frozenset():
            return _plain_set(cast("Iterable[object]", value), path, above)
        case BaseModel():
            return _plain(_dumped(value, path), path, above)
        case SecretStr() | SecretBytes() | Secret():
            _refuse(path, "is a secret, which would be stored in clear; store a reference to it instead")
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            members = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return _plain_dict(members, path, above)
        case _:
            pass
    kind = type(value)
    _refuse(path, f"is a {kind.__module__}.{kind.__qualname__}, which can't be stored; {_WRITE}")


def _plain_dict(value: Mapping[Any, object], path: str, above: tuple[int, ...]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, part in value.items():
        if not isinstance(key, str):
            _refuse(path, f"has the key {_shown(key)} of type {type(key).__name__}; keys must be str")
        name = _plain(key.value if isinstance(key, Enum) else key, f"a key of {path}")
        plain[name] = _plain(part, f"{path}[{_key(name)}]", above)
    return plain


def _plain_list(value: Iterable[object], path: str, above: tuple[int, ...]) -> list[Any]:
    return [_plain(part, f"{path}[{index}]", above) for index, part in enumerate(value)]


def _plain_set(value: Iterable[object], path: str, above: tuple[int, ...]) -> msgpack.ExtType:
    parts = _plain_list(value, path, above)
    if _holds_dict(parts):
        _refuse(path, "is a set of models, which come back as dicts and fit no set; store a list of them")
    return msgpack.ExtType(SET, _packb(parts))


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


def _shown(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


# ------------------------------------------------------------------------------------------------ decode


def decode(data: bytes, encoding: Literal["msgpack", "json"] = "msgpack") -> Any:
    """The value in the bytes; `None` for no bytes at all. Safe on bytes from anybody.

    Raises:
        PayloadInvalidError: they aren't `encoding`, or hold what `encode` would refuse.
    """
    if not data:
        return None
    try:
        value = _unpackb(data, 0) if encoding == "msgpack" else _read_json(data)
        if not _well_formed(value) or _DOUBTS[encoding](data):
            _plain(value, "payload")
    except PayloadError as error:
        raise PayloadInvalidError(str(error)) from error
    except _BAD_DATA as error:
        raise PayloadInvalidError(
            f"{len(data)} bytes can't be read as {encoding}: {type(error).__name__} {error}"[:500]
        ) from error
    return value


def _unpackb(data: bytes, depth: int) -> Any:
    # Inside a set everything must be hashable: tuples for lists, frozen sets for sets.
    hook = partial(_read_extension, depth)
    return msgpack.unpackb(data, ext_hook=hook, timestamp=3, strict_map_key=True, use_list=depth == 0)


def _read_extension(depth: int, code: int, data: bytes) -> object:
    read = READERS.get(code)
    if read is not None:
        return read(data)
    if code != SET or depth >= MAX_DEPTH:
        raise ValueError(f"extension type {code} is unknown or nested too deep")
    parts = _unpackb(data, depth + 1)
    if not isinstance(parts, tuple):
        raise TypeError("a set's data is no array")
    return (frozenset if depth else set)(cast("tuple[object, ...]", parts))


def _read_json(data: bytes) -> Any:
    return json.loads(data.decode(), parse_constant=_no_constant, parse_float=_read_float, parse_int=_read_int)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _read_float(text: str) -> float:
    return write_float(float(text))


def _read_int(text: str) -> int:
    return write_int(int(text))


def _may_hold_half_a_character(data: bytes) -> bool:
    return b"\\ud" in data or b"\\uD" in data


_DOUBTS: Final[dict[str, Callable[[bytes], bool]]] = {"msgpack": _may_hold_nan, "json": _may_hold_half_a_character}


# ------------------------------------------------------------------------------------------------ compare, show


def digest(value: object) -> str:
    """32 hex digits that are equal for equal values, whatever they were encoded as.

    It is sha256 over the canonical msgpack: keys sorted, tuples as lists, sets sorted by their packed parts, and a
    whole float that fits 64 bits as the integer it equals, because `1` and `1.0` are one number to JSON's other users.

    >>> digest({"a": 1, "b": (2.0,)}) == digest({"b": [2], "a": 1})
    True

    Raises:
        PayloadError: the value can't be stored.
    """
    return hashlib.sha256(_packb(_canonical(value))).hexdigest()[:32]


def _canonical(value: Any) -> Any:
    kind: type = type(value)
    if kind is str or kind is int or kind in _SURE:
        return value
    if kind is dict and _STR_ONLY.issuperset(map(type, value)):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if kind is list or kind is tuple:
        return [_canonical(part) for part in value]
    if kind is float and value.is_integer() and -(2.0**63) <= value < 2.0**64:
        return int(value)
    if kind is set or kind is frozenset:
        return msgpack.ExtType(SET, b"".join(sorted(_packb(_canonical(part)) for part in value)))
    write = WRITERS.get(kind)
    return write(value) if write is not None else _canonical(decode(encode(value, path="value")))


def to_jsonable(value: Any) -> Any:
    """The value for people and JSON: texts for what JSON doesn't know, `repr` for what can't be stored at all.

    >>> to_jsonable({"at": date(2026, 3, 1), "raw": b"AB"})
    {'at': '2026-03-01', 'raw': 'base64:QUI='}
    """
    kind: type = type(value)
    if kind in _JSON_ATOMS:
        return value
    if kind is dict:
        return {str(key): to_jsonable(part) for key, part in value.items()}
    if kind is list or kind is tuple:
        return [to_jsonable(part) for part in value]
    show = _SHOWN.get(kind)
    if show is not None:
        return show(value)
    try:
        return to_jsonable(decode(encode(value)))
    except PayloadError:
        return _shown(value)


def _show_bytes(value: bytes) -> str:
    return "base64:" + base64.b64encode(value).decode()


def _show_set(value: Iterable[object]) -> list[Any]:
    return sorted((to_jsonable(part) for part in value), key=json.dumps)


_JSON_ATOMS: Final = frozenset({type(None), bool, int, str})
_SHOWN: Final[dict[type, Callable[[Any], Any]]] = {
    float: lambda value: value if value - value == 0 else str(value),
    bytes: _show_bytes,
    bytearray: _show_bytes,
    datetime: datetime.isoformat,
    date: date.isoformat,
    timedelta: timedelta.total_seconds,
    Decimal: str,
    UUID: str,
    set: _show_set,
    frozenset: _show_set,
}
