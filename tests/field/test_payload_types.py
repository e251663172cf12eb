"""Every type a payload may be made of, from a caller through a handler and back: the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, NamedTuple
from uuid import UUID, uuid4
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from jetjobs import JobContext, Module
from jetjobs._core import codec
from jetjobs.errors import PayloadInvalidError
from tests.support.field import Field, field_of

pytestmark = pytest.mark.integration

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.binary(max_size=40)
    | st.datetimes(timezones=st.none() | st.timezones())
    | st.dates()
    | st.timedeltas()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.uuids()
)
values = st.recursive(
    leaves | st.sets(leaves, max_size=4),
    lambda parts: st.lists(parts, max_size=4) | st.dictionaries(texts, parts, max_size=4),
    max_leaves=12,
)


class Colour(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Line(BaseModel):
    sku: str
    price: Decimal
    colour: Colour = Colour.RED


class Order(BaseModel):
    id: UUID
    at: datetime
    lines: list[Line] = []


@dataclass
class Box:
    size: int
    parts: list[int]


class Point(NamedTuple):
    x: int
    y: int


def types() -> Module:
    module = Module("types")

    @module.job(max_concurrency=50, timeout="30s")
    async def echo(ctx: JobContext, payload: Any = None) -> Any:
        return payload

    @module.job(timeout="30s")
    async def order(ctx: JobContext, payload: Order) -> Order:
        assert isinstance(payload, Order)
        return payload

    @module.job(timeout="30s")
    async def box(ctx: JobContext, payload: Box) -> list[Box]:
        assert isinstance(payload, Box)
        return [payload]

    @module.job(timeout="30s")
    async def point(ctx: JobContext, payload: Point) -> Point:
        assert isinstance(payload, Point)
        return payload

    @module.job(timeout="30s")
    async def colour(ctx: JobContext, payload: Colour) -> dict[str, Level]:
        assert payload is Colour.RED
        return {"level": Level.HIGH}

    return module


@pytest.fixture
async def field(nats_url: str, project: str) -> AsyncIterator[Field]:
    async with field_of(nats_url, project) as made:
        await made.host(types())
        yield made


def test_b46_any_value_goes_there_and_back(nats_url: str, project: str):
    """One host for all examples, on one loop."""
    with asyncio.Runner() as runner:
        opened = field_of(nats_url, project)
        field = runner.run(opened.__aenter__())
        try:
            runner.run(field.host(types()))

            @settings(max_examples=100)
            @given(values)
            def there_and_back(value: Any) -> None:
                async def once() -> Any:
                    return await (await field.client.get_job("types.echo").trigger(value)).result(timeout=45)

                found = runner.run(once())
                assert found == value
                assert codec.digest(found) == codec.digest(value)

            there_and_back()
        finally:
            runner.run(opened.__aexit__(None, None, None))


PARIS = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1)


@pytest.mark.parametrize(
    "value",
    [
        datetime(2026, 3, 1, 12, 0, 0, 1),  # noqa: DTZ001  # naive on purpose
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        PARIS,
        date(2026, 3, 1),
        timedelta(days=-1, microseconds=1),
        UUID(int=7),
        Decimal("1.10"),
        b"\x00\xff",
        {1, 2},
        {"a": [{"b": {frozenset({1})}}]},
        2**64 - 1,
        -(2**63),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_b46_values_keep_their_type(field: Field, value: Any):
    """Dates with and without zone, spans, UUIDs, bytes."""
    run = await field.client.get_job("types.echo").trigger({"x": value})
    result = (await run.result(timeout=45))["x"]
    assert (result, type(result)) == (value, type(value))
    if isinstance(value, datetime):
        assert (result.utcoffset(), result.fold, str(result.tzinfo)) == (
            value.utcoffset(), value.fold, str(value.tzinfo),
        )  # fmt: skip
    assert (await field.client.runs.get(run.run_id)).payload == {"x": value}


async def test_b46_bytes_by_other_names_come_as_bytes(field: Field):
    """A memoryview, also one with holes, and a bytearray."""
    echo = field.client.get_job("types.echo")
    for value in (bytearray(b"ab"), memoryview(b"ab"), memoryview(b"axbx")[::2]):
        assert await (await echo.trigger(value)).result(timeout=45) == b"ab"


async def test_b46_models_and_their_like_come_as_what_they_are(nats_url: str, project: str):
    """Payloads in handlers and results in callers, by their declared types."""
    module = types()
    order = Order(id=uuid4(), at=PARIS, lines=[Line(sku="a", price=Decimal("1.10"))])
    async with field_of(nats_url, project) as field:
        await field.host(module)
        expected: dict[str, tuple[Any, Any]] = {
            "order": (order, order),
            "box": (Box(1, [2]), [Box(1, [2])]),
            "point": (Point(1, 2), Point(1, 2)),
            "colour": (Colour.RED, {"level": Level.HIGH}),
        }
        for name, (payload, result) in expected.items():
            run = await field.client.get_job(module.jobs[name]).trigger(payload)
            found = await run.result(timeout=45)
            assert (found, type(found)) == (result, type(result))
            # By name there is no type to make it again: the plain value comes.
            by_name = await field.client.get_job("types", name).trigger(payload)
            assert codec.encode(await by_name.result(timeout=45)) == codec.encode(result)


async def test_b52_a_wrong_type_is_refused_in_the_caller(nats_url: str, project: str):
    module = types()
    async with field_of(nats_url, project) as field:
        await field.host(module)
        with pytest.raises(PayloadInvalidError, match=r"lines\.0\.price"):
            await field.client.get_job(module.jobs["order"]).trigger(
                {"id": uuid4(), "at": PARIS, "lines": [{"sku": "a"}]}
            )
        assert await field.messages() == {}
