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
bytes that may be a NaN) sends the whole value to `plain`, the one place that refuses, and knows the path.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final, Literal, NoReturn, cast
from uuid import UUID

import msgpack

from jetjobs._core.leaves import READERS, SET, WRITERS, write_float, write_int
from jetjobs._core.plain import MAX_DEPTH, SURE, WRITE_FAULTS, packb, plain, shown
from jetjobs.errors import PayloadError, PayloadInvalidError

_ATOMS: Final = SURE | {bytearray, int, float, str, datetime, date, timedelta, Decimal, UUID}
_type_of: Final = cast("Callable[[object], Any]", type)  # the type checker reads type(Any) as unknown
_STR_ONLY: Final = frozenset({str})
_unpack: Final = cast("Callable[..., Any]", msgpack.unpackb)
_NAN: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]|\xca[\x7f\xff][\x80-\xff]")
_BAD_DATA: Final = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError, MemoryError)


# ------------------------------------------------------------------------------------------------ encode


def encode(value: object, *, path: str = "payload") -> bytes:
    """The value as msgpack.

    Raises:
        PayloadError: it can't be stored; names the path to the part, as in `payload["x"][0]`, and what to write.
    """
    try:
        data = packb(value, default=_leaf)
        if _well_formed(value) and not _may_hold_nan(data):
            return data
    except (_DoubtfulError, BufferError, *WRITE_FAULTS):
        pass
    return packb(plain(value, path))


class _DoubtfulError(Exception):
    """Not evidently fine: let `plain` decide."""


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
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for part in level:
            kind = _type_of(part)
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
    # NaN and infinity are CB 7F F…, CB FF F…, or in four bytes CA 7F 8… and so on. A text may hold the same bytes: then
    # the walk finds nothing. Most values hold neither 7F nor FF, which C sees at once.
    return (b"\x7f" in data or b"\xff" in data) and _NAN.search(data) is not None


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
            plain(value, "payload")
    except PayloadError as error:
        raise PayloadInvalidError(str(error)) from error
    except _BAD_DATA as error:
        raise PayloadInvalidError(
            f"{len(data)} bytes can't be read as {encoding}: {type(error).__name__} {error}"[:500]
        ) from error
    return value


def _unpackb(data: bytes, depth: int) -> Any:
    # Inside a set everything must be hashable: tuples for lists, frozen sets for sets.
    hook = _read_outermost if depth == 0 else partial(_read_extension, depth)
    return _unpack(data, ext_hook=hook, timestamp=3, strict_map_key=True, use_list=depth == 0)


def _read_extension(depth: int, code: int, data: bytes) -> object:
    read = READERS.get(code)
    if read is not None:
        return read(data)
    if code != SET or depth >= MAX_DEPTH:
        raise ValueError(f"extension type {code} is unknown or nested too deep")
    parts = _unpackb(data, depth + 1)
    if not isinstance(parts, tuple):
        raise TypeError("a set's data is no array")
    members = cast("tuple[object, ...]", parts)
    return frozenset(members) if depth else set(members)


_read_outermost: Final = partial(_read_extension, 0)


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
    try:
        data = packb(_canonical(value))
    except WRITE_FAULTS:
        data = packb(_canonical(_stored(value)))
    return hashlib.sha256(data).hexdigest()[:32]


def _stored(value: object) -> Any:
    return decode(encode(value, path="value"))


def _canonical(value: Any) -> Any:
    kind = _type_of(value)
    if kind is str or kind is int or kind in SURE:
        return value
    if kind is dict and _STR_ONLY.issuperset(map(type, value)):
        return {key: _canonical(value[key]) for key in sorted(value)}
    if kind is list or kind is tuple:
        return [_canonical(part) for part in value]
    if kind is float and value.is_integer() and -(2.0**63) <= value < 2.0**64:
        return int(value)
    if kind is set or kind is frozenset:
        return msgpack.ExtType(SET, b"".join(sorted(packb(_canonical(part)) for part in value)))
    write = WRITERS.get(kind)
    return write(value) if write is not None else _canonical(_stored(value))


def to_jsonable(value: object) -> Any:
    """The value for people and JSON: texts for what JSON doesn't know, `repr` for what can't be stored at all.

    >>> to_jsonable({"at": date(2026, 3, 1), "raw": b"AB"})
    {'at': '2026-03-01', 'raw': 'base64:QUI='}
    """
    return _jsonable(value, MAX_DEPTH)


def _jsonable(value: Any, levels: int) -> Any:
    kind = _type_of(value)
    if kind in _JSON_ATOMS:
        return value
    if levels < 0:
        return "…"
    if kind is dict:
        return {str(key): _jsonable(part, levels - 1) for key, part in value.items()}
    if kind is list or kind is tuple or kind is set or kind is frozenset:
        parts = [_jsonable(part, levels - 1) for part in value]
        return parts if kind is list or kind is tuple else sorted(parts, key=json.dumps)
    return _SHOWN.get(kind, _show_other)(value)


def _show_other(value: object) -> Any:
    try:
        return to_jsonable(_stored(value))
    except PayloadError:
        return shown(value)


def _show_bytes(value: bytes) -> str:
    return "base64:" + base64.b64encode(value).decode()


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
}
