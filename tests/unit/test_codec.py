from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from pathlib import Path
from typing import Any, cast
from uuid import UUID
from zoneinfo import TZPATH, ZoneInfo

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretBytes, SecretStr, field_serializer

from jetjobs._core import codec
from jetjobs.errors import PayloadError
from tests.support.coded import Order, Point, cyclic_dict, cyclic_list, deep, floats, ints, texts, values, zones

_packb = cast("Callable[..., bytes]", msgpack.packb)


json_values = st.recursive(
    st.none() | st.booleans() | ints | floats | texts,
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(texts, parts, max_size=4),
    max_leaves=12,
)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Odd(Enum):
    DAY = date(2026, 3, 1)


class Line(BaseModel):
    total: Decimal = Field(alias="grandTotal")
    colour: Colour = Colour.RED
    order: Order | None = None


class Vault(BaseModel):
    password: SecretStr


class Text(str):
    __slots__ = ()


class TestRoundTrip:
    @given(values)
    def test_every_listed_type(self, value: object) -> None:
        assert codec.decode(codec.encode(value)) == value

    @given(st.datetimes(timezones=zones, allow_imaginary=True), st.integers(0, 1))
    def test_a_datetime_keeps_wall_time_offset_and_zone(self, at: datetime, fold: int) -> None:
        at = at.replace(fold=fold)
        back = codec.decode(codec.encode(at))
        assert back.replace(tzinfo=None) == at.replace(tzinfo=None)
        assert back.utcoffset() == at.utcoffset()
        if isinstance(at.tzinfo, ZoneInfo):
            assert back.tzinfo is at.tzinfo

    def test_a_zone_without_a_name_leaves_its_offset(self) -> None:
        found = next(path for root in TZPATH if (path := Path(root) / "Europe/Paris").exists())
        with found.open("rb") as file:
            zone = ZoneInfo.from_file(file)
        back = codec.decode(codec.encode(datetime(2026, 3, 1, tzinfo=zone)))
        assert back == datetime(2026, 3, 1, tzinfo=timezone(timedelta(hours=1)))

    @pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "/etc/passwd", "Europe"])
    def test_a_zone_unknown_here_leaves_the_instant(self, zone: str) -> None:
        data = _packb(msgpack.ExtType(1, f"2026-03-01T12:00:00+01:00[{zone}]".encode()))
        assert codec.decode(data) == datetime(2026, 3, 1, 11, tzinfo=UTC)

    def test_when_a_zones_rules_changed_the_instant_counts(self) -> None:
        data = _packb(msgpack.ExtType(1, b"2026-03-01T12:00:00+05:00[Europe/Paris]"))
        back = codec.decode(data)
        assert back == datetime(2026, 3, 1, 7, tzinfo=UTC)
        assert back.hour == 8

    def test_a_naive_datetime_stays_naive_even_with_a_zone_in_brackets(self) -> None:
        data = _packb(msgpack.ExtType(1, b"2026-03-01T12:00:00[Europe/Paris]"))
        assert codec.decode(data) == datetime(2026, 3, 1, 12)  # noqa: DTZ001

    def test_msgpacks_own_timestamps_are_read(self) -> None:
        at = datetime(2026, 3, 1, 12, tzinfo=UTC)
        assert codec.decode(_packb(at, datetime=True)) == at

    @pytest.mark.parametrize(
        "given,stored",
        [
            ((1, 2), [1, 2]),
            (frozenset({1}), {1}),
            (Colour.RED, "red"),
            (Level.HIGH, 3),
            (Odd.DAY, date(2026, 3, 1)),
            (Point(1, 2), [1, 2]),
            (Order(UUID(int=7), (Point(1, 2),)), {"id": UUID(int=7), "lines": [[1, 2]]}),
            (Line(grandTotal=Decimal("1.50")), {"grandTotal": Decimal("1.50"), "colour": "red", "order": None}),
            ({"a": Line(grandTotal=Decimal(1), order=Order(UUID(int=1)))}, None),
            (bytearray(b"ab"), b"ab"),
            (memoryview(b"abcd")[::2], b"ac"),
            (cast("dict[str, str]", OrderedDict(a=Text("x"))), {"a": "x"}),
            ({Colour.RED: 1, Text("k"): True}, {"red": 1, "k": True}),
            (1.7e308, 1.7e308),
            ("\ue000\xcb\x7f\xf8", "\ue000\xcb\x7f\xf8"),
            (b"\xcb\x7f\xf8", b"\xcb\x7f\xf8"),
            (deep(100), deep(100)),
        ],
    )
    def test_what_things_become(self, given: object, stored: object) -> None:
        back = codec.decode(codec.encode(given))
        if stored is not None:
            assert back == stored
            assert type(back) is type(stored)

    def test_a_model_is_stored_as_its_validation_reads_it(self) -> None:
        line = Line(grandTotal=Decimal("1.50"), order=Order(UUID(int=7), (Point(1, 2),)))
        assert Line.model_validate(codec.decode(codec.encode(line))) == line

    def test_no_bytes_are_none(self) -> None:
        assert codec.decode(b"") is None
        assert codec.decode(b"", "json") is None

    @given(json_values)
    def test_json_in_any_order_and_spacing(self, value: object) -> None:
        assert codec.decode(json.dumps(value, indent=1).encode(), "json") == value

    def test_json_escapes_of_whole_characters(self) -> None:
        assert codec.decode(b'"\\ud83d\\ude00"', "json") == "\U0001f600"

    def test_the_bytes_are_fixed_for_other_languages(self) -> None:
        assert codec.encode({"a": timedelta(seconds=-1.5)}).hex() == "81a161c709032d312e353030303030"
        assert codec.encode(UUID(int=1)).hex() == "d805" + "00" * 15 + "01"
        assert codec.encode(date(2026, 3, 1)).hex() == "c70a02" + b"2026-03-01".hex()
        assert codec.encode(Decimal("1.50")).hex() == "d604" + b"1.50".hex()
        assert codec.encode({1}).hex() == "d5069101"


class Nowhere(tzinfo):
    def utcoffset(self, _: datetime | None, /) -> timedelta | None:
        raise ValueError("nowhere")

    def tzname(self, _: datetime | None, /) -> str:
        return "nowhere"


class NaT(datetime):
    """A datetime that isn't one, as pandas has it."""

    def isoformat(self, *_: str, **__: str) -> str:
        return "NaT"


class Grumpy(BaseModel):
    a: int

    @field_serializer("a")
    def never(self, _: int) -> int:
        raise ValueError("not today")


class Later(datetime):
    pass


class TestRefused:
    @pytest.mark.parametrize(
        "value,path,why",
        [
            ({"x": [object()]}, 'payload["x"][0]', "is an object, which"),
            ({"x": (1, {"y": 1j})}, 'payload["x"][1]["y"]', "is a complex, which"),
            (time(1), "payload", "datetime.time"),
            (Order, "payload", "is the class Order, which"),
            (iter([1]), "payload", "list_iterator"),
            ({"a": {1: 2}}, 'payload["a"]', "key 1 of type int"),
            ({b"a": 1}, "payload", "keys must be str"),
            ({None: 1}, "payload", "keys must be str"),
            ({"\ud800": 1}, "a key of payload", "half a character"),
            (["\ud800"], "payload[0]", "half a character"),
            ([2**64], "payload[0]", "64 bits"),
            ([-(2**63) - 1], "payload[0]", "64 bits"),
            ({"n": float("nan")}, 'payload["n"]', "store None"),
            ([float("inf")], "payload[0]", "store None"),
            ([-float("inf")], "payload[0]", "store None"),
            ([Decimal("NaN")], "payload[0]", "store None"),
            ([Decimal("-Infinity")], "payload[0]", "store None"),
            ({float("nan")}, "payload[0]", "store None"),
            ({"k" * 100: object()}, 'payload["kkk', "..."),
            (SecretStr("hunter2"), "payload", "secret"),
            (SecretBytes(b"hunter2"), "payload", "secret"),
            (Vault(password=SecretStr("hunter2")), 'payload["password"]', "secret"),
            (deep(101), "payload[0][0]", "deeper than 100"),
            (cyclic_list(), "payload[0]", "contains itself"),
            (cyclic_dict(), 'payload["me"][0]', "contains itself"),
            ({Order(UUID(int=1))}, "payload", "set of models"),
            ({(Order(UUID(int=1)),)}, "payload", "set of models"),
            (NaT(2026, 3, 1), "payload", "NaT"),
            (datetime(2026, 3, 1, tzinfo=Nowhere()), "payload", "can't be stored"),
            ([datetime(2026, 3, 1, tzinfo=tzinfo())], "payload[0]", "can't be stored"),
            (Grumpy(a=1), "payload", "not today"),
        ],
    )
    def test_with_the_path_and_the_reason(self, value: object, path: str, why: str) -> None:
        with pytest.raises(PayloadError) as caught:
            codec.encode(value)
        message = str(caught.value)
        assert message.startswith(path)
        assert why in message
        assert "hunter2" not in message
        assert len(message) < 600

    def test_the_path_begins_with_what_the_caller_says(self) -> None:
        with pytest.raises(PayloadError, match=r'^result\["a"\]'):
            codec.encode({"a": object()}, path="result")

    def test_a_subclass_of_datetime_is_a_datetime(self) -> None:
        assert codec.decode(codec.encode(Later(2026, 3, 1, tzinfo=UTC))) == datetime(2026, 3, 1, tzinfo=UTC)

    @given(st.recursive(st.floats() | st.integers() | texts, lambda p: st.lists(p) | st.dictionaries(texts, p)))
    @example(5e-324)
    def test_what_is_taken_can_be_read(self, value: object) -> None:
        try:
            data = codec.encode(value)
        except PayloadError:
            return
        assert codec.decode(data) == value


class TestDigest:
    @given(json_values)
    def test_equal_across_encodings(self, value: object) -> None:
        through_json = codec.decode(json.dumps(value).encode(), "json")
        assert codec.digest(codec.decode(codec.encode(value))) == codec.digest(through_json) == codec.digest(value)

    @given(values)
    def test_equal_after_a_round_trip(self, value: object) -> None:
        assert codec.digest(codec.decode(codec.encode(value))) == codec.digest(value)

    @given(st.dictionaries(texts, ints))
    def test_the_order_of_keys_says_nothing(self, value: dict[str, int]) -> None:
        assert codec.digest(dict(reversed(value.items()))) == codec.digest(value)

    @given(json_values, json_values)
    def test_different_for_different_values(self, one: object, other: object) -> None:
        assert (codec.digest(one) == codec.digest(other)) == (_typed(one) == _typed(other))

    def test_models_digest_like_what_they_are_stored_as(self) -> None:
        line = Line(grandTotal=Decimal(1))
        assert codec.digest(line) == codec.digest(codec.decode(codec.encode(line)))
        assert codec.digest({1: 2, "a": 1} and {Text("a"): 1}) == codec.digest({"a": 1})

    def test_a_whole_float_is_the_number_it_equals(self) -> None:
        assert codec.digest(1.0) == codec.digest(1)
        assert codec.digest(-0.0) == codec.digest(0)
        assert codec.digest(1.5) != codec.digest(1)
        assert codec.digest(1) != codec.digest(True)
        assert codec.digest(2.0**64) != codec.digest(2**64 - 1)

    def test_sets_digest_without_order(self) -> None:
        assert codec.digest({"b", "a", (1, 2)}) == codec.digest({(1, 2), "a", "b"})
        assert codec.digest({1}) != codec.digest([1])
        assert codec.digest(frozenset({1})) == codec.digest({1})

    def test_vector(self) -> None:
        # sha256 of 82 a1 61 01 a1 62 92 02 c3
        assert codec.digest({"b": (2.0, True), "a": 1}) == "52db0f0835cccbf323891960383dc9d2"

    @pytest.mark.parametrize("value", [object(), float("nan"), {1: 2}])
    def test_what_cant_be_stored_has_none(self, value: object) -> None:
        with pytest.raises(PayloadError):
            codec.digest(value)


def _typed(value: Any) -> Any:
    match value:
        case bool() | None:
            return (str(type(value)), value)
        case dict():
            return {key: _typed(part) for key, part in cast("dict[str, Any]", value).items()}
        case list():
            return [_typed(part) for part in cast("list[Any]", value)]
        case _:
            return value
