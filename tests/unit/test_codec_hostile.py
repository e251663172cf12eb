"""Bytes that somebody else made: none breaks the codec, and people can read each."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Any, cast
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from jetjobs._core import codec
from jetjobs.errors import PayloadInvalidError
from tests.support.coded import Order, Point, cyclic_dict, cyclic_list, deep, values

_packb = cast("Callable[..., bytes]", msgpack.packb)


class Colour(StrEnum):
    RED = "red"


class Vault(BaseModel):
    password: SecretStr


def ext(code: int, data: bytes) -> bytes:
    return _packb(msgpack.ExtType(code, data))


def nested_sets(levels: int) -> bytes:
    data = b"\x90"
    for _ in range(levels):
        data = b"\x91" + ext(6, data)
    return ext(6, data)


class TestHostile:
    @given(st.binary(), st.sampled_from(["msgpack", "json"]))
    def test_any_bytes(self, data: bytes, encoding: Any) -> None:
        try:
            value = codec.decode(data, encoding)
        except PayloadInvalidError:
            return
        assert codec.decode(codec.encode(value)) == value

    @given(values, st.data())
    def test_bytes_cut_or_changed(self, value: object, data: st.DataObject) -> None:
        raw = bytearray(codec.encode(value))
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        with suppress(PayloadInvalidError):
            codec.decode(bytes(raw[: data.draw(st.integers(0, len(raw)))]))

    @given(st.integers(0, 127), st.binary(max_size=40))
    def test_any_extension(self, code: int, data: bytes) -> None:
        with suppress(PayloadInvalidError):
            codec.decode(ext(code, data))

    @pytest.mark.parametrize(
        "data",
        [
            b"\x91" * 100_000 + b"\x01",
            b"\x91" * 100 + b"\x90",
            b"\xdd\xff\xff\xff\xff",
            b"\xdb\xff\xff\xff\xff",
            b"\xc1",
            b"\x01\x02",
            b"\xa2\xff\xff",
            b"\x81\x01\x02",
            b"\x81\xc4\x01a\x01",
            b"\x81\x91\x01\x01",
            b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
            b"\xca\x7f\xc0\x00\x00",
            ext(1, b"yesterday"),
            ext(1, b"2026-03-01[[a]"),
            ext(1, b"\xff"),
            ext(2, b"2026-13-01"),
            ext(3, b"1"),
            ext(3, b"9" * 30 + b".000000"),
            ext(4, b"one"),
            ext(4, b"NaN"),
            ext(5, b"short"),
            ext(6, b"\x01"),
            ext(6, b"\x91\x80"),
            ext(6, b"\xc1"),
            ext(7, b""),
            b"\xc7\x0c\xff" + b"\xff" * 12,
            b"\xc7\x0c\xff\x00\x00\x00\x00" + b"\x7f" + b"\xff" * 7,
            nested_sets(150),
            nested_sets(2000),
        ],
    )
    def test_msgpack(self, data: bytes) -> None:
        with pytest.raises(PayloadInvalidError) as caught:
            codec.decode(data)
        assert len(str(caught.value)) <= 500

    @pytest.mark.parametrize(
        "data",
        [
            b"[" * 100_000,
            b"[" * 101 + b"]" * 101,
            b"{}{}",
            b"NaN",
            b"[Infinity]",
            b"-Infinity",
            b"1e999",
            b"18446744073709551616",
            b"9" * 5000,
            b'"\\ud800"',
            b'{"\\uD800": 1}',
            b"\xff",
            b"\xff\xfe[\x00]\x00",
            b"'a'",
        ],
    )
    def test_json(self, data: bytes) -> None:
        with pytest.raises(PayloadInvalidError) as caught:
            codec.decode(data, "json")
        assert len(str(caught.value)) <= 500

    def test_nested_sets_within_the_limit_come_back(self) -> None:
        assert codec.decode(ext(6, b"\x91" + ext(6, b"\x91\x01"))) == {frozenset({1})}


class TestForPeople:
    @given(values)
    def test_json_takes_it(self, value: object) -> None:
        json.dumps(codec.to_jsonable(value), allow_nan=False)

    @pytest.mark.parametrize(
        "value,shown",
        [
            (datetime(2026, 3, 1, tzinfo=UTC), "2026-03-01T00:00:00+00:00"),
            (timedelta(seconds=1.5), 1.5),
            (Decimal("1.50"), "1.50"),
            (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
            (b"AB", "base64:QUI="),
            (bytearray(b"AB"), "base64:QUI="),
            ({"b", "a"}, ["a", "b"]),
            ((1, float("inf")), [1, "inf"]),
            ({1: None}, {"1": None}),
            (Point(1, 2), [1, 2]),
            (Colour.RED, "red"),
            (Order(UUID(int=1)), {"id": "00000000-0000-0000-0000-000000000001", "lines": []}),
        ],
    )
    def test_texts(self, value: object, shown: object) -> None:
        assert codec.to_jsonable(value) == shown

    @pytest.mark.parametrize("value", [object(), [1j], SecretStr("hunter2"), Vault(password=SecretStr("hunter2"))])
    def test_what_cant_be_stored_is_shown_without_secrets(self, value: object) -> None:
        assert "hunter2" not in json.dumps(codec.to_jsonable(value))

    @pytest.mark.parametrize("value", [cyclic_list(), cyclic_dict(), deep(100_000)])
    def test_what_never_ends_is_cut(self, value: object) -> None:
        assert "…" in json.dumps(codec.to_jsonable(value), ensure_ascii=False)
