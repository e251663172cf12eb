"""Payload types with rules of their own: what is accepted at the call is what the handler gets, or nothing is sent."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as part
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntFlag
from typing import Any, Literal, NamedTuple
from uuid import UUID

import pytest
from pydantic import (
    AliasPath,
    BaseModel,
    Field,
    Json,
    RootModel,
    computed_field,
    field_serializer,
)

from jetjobs import Backoff, JobContext, Module, RunStatus
from jetjobs.errors import PayloadError, PayloadInvalidError
from tests.support.field import Field as Project

pytestmark = pytest.mark.integration


class Colour(Enum):
    RED = "red"


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Pair(Enum):
    ONE = (1, 2)


class Aliased(BaseModel):
    order_id: int = Field(alias="orderId")


class Computed(BaseModel, extra="forbid"):
    a: int

    @computed_field
    @property
    def twice(self) -> int:
        return self.a * 2


class Strict(BaseModel, strict=True):
    pair: tuple[int, int]
    colour: Colour
    tags: frozenset[str]
    at: datetime
    price: Decimal
    id: UUID
    raw: bytes
    more: int = 3


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"


class Dog(BaseModel):
    kind: Literal["dog"] = "dog"
    name: str = "Rex"


class Owner(BaseModel):
    pet: Cat | Dog = Field(discriminator="kind")


class Text(BaseModel):
    inner: Json[dict[str, int]]


class Rows(RootModel[list[int]]):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    size: int
    kind: str = part(init=False, default="box")


class Point(NamedTuple):
    x: int
    y: str = "y"


SAME: dict[str, tuple[Any, Any]] = {
    "alias": (Aliased, Aliased(orderId=1)),
    "computed": (Computed, Computed(a=1)),
    "strict": (
        Strict,
        Strict(
            pair=(1, 2), colour=Colour.RED, tags=frozenset({"x"}), at=datetime(2026, 1, 2, tzinfo=UTC),
            price=Decimal("1.50"), id=UUID(int=7), raw=b"\xff",
        ),
    ),
    "union": (Owner, Owner(pet=Dog())),
    "json": (Text, Text(inner='{"a": 1}')),  # type: ignore[arg-type]
    "root": (Rows, Rows([1, 2])),
    "dataclass": (Box, Box(size=2)),
    "named-tuple": (Point, Point(1)),
    "tuple": (tuple[int, str], (1, "a")),
    "frozen-set": (frozenset[int], frozenset({1, 2})),
    "flag": (Right, Right.READ | Right.WRITE),
    "set-of-enums": (set[Colour], {Colour.RED}),
    "either": (int | str, "1"),
    "optional": (Aliased | None, None),
}  # fmt: skip


class Exported(BaseModel):
    order_id: int = Field(serialization_alias="oid")


class Imported(BaseModel):
    order_id: int = Field(validation_alias="oid")


class Deep(BaseModel):
    order_id: int = Field(validation_alias=AliasPath("order", "id"))


class Partly(BaseModel):
    a: int
    b: int = Field(exclude=True)


class German(BaseModel):
    day: date

    @field_serializer("day")
    def write(self, day: date) -> str:
        return day.strftime("%d.%m.%Y")


class Keyed(BaseModel):
    by_id: dict[int, str]


NOT_AGAIN: dict[str, tuple[Any, Any, str]] = {
    "serialization-alias": (Exported, Exported(order_id=1), "order_id: Field required; what a Exported is stored as"),
    "validation-alias": (Imported, Imported(oid=1), "oid: Field required"),  # type: ignore[call-arg]
    "alias-path": (Deep, Deep(order={"id": 1}), "order.id: Field required"),  # type: ignore[call-arg]
    "left-out": (Partly, Partly(a=1, b=2), "b: Field required"),
    "serializer": (German, German(day=date(2026, 1, 2)), "day: Input should be a valid date"),
    "tuple-in-an-enum": (Pair, Pair.ONE, "must fit, too"),
    "keys-that-are-no-text": (Keyed, Keyed(by_id={1: "a"}), 'payload["by_id"]'),
}


def typed(kind: Any, starts: list[Any]) -> Module:
    async def take(ctx: JobContext, payload: Any) -> Any:
        starts.append(payload)
        return payload

    take.__annotations__ |= {"payload": kind, "return": kind}
    module = Module("typed")
    module.expose_job("take", take, timeout="20s", max_attempts=3)
    return module


@pytest.mark.parametrize("name", SAME)
async def test_b46_b52_a_value_is_the_same_in_the_handler_and_as_a_result(field: Project, name: str):
    kind, value = SAME[name]
    starts: list[Any] = []
    module = typed(kind, starts)
    await field.host(module)
    found = await (await field.client.get_job(module.jobs["take"]).trigger(value)).result(timeout=45)
    assert (found, type(found)) == (value, type(value))
    assert (starts, [type(each) for each in starts]) == ([value], [type(value)])


@pytest.mark.parametrize("name", NOT_AGAIN)
async def test_b46_b52_a_value_that_is_none_once_stored_is_refused_at_the_call(field: Project, name: str):
    kind, value, says = NOT_AGAIN[name]
    starts: list[Any] = []
    module = typed(kind, starts)
    await field.host(module)
    for trigger in (field.client.get_job(module.jobs["take"]).trigger, module.jobs["take"].trigger):
        with pytest.raises(PayloadError) as refused:
            await trigger(value)
        assert says in str(refused.value)
    assert await field.messages() == {}
    assert starts == []


async def test_b52_a_strict_type_takes_no_other_value_than_its_own(field: Project):
    starts: list[Any] = []
    module = typed(Strict, starts)
    await field.host(module)
    _, value = SAME["strict"]
    good = value.model_dump()
    for wrong in ({"more": "3"}, {"pair": [1, "2"]}, {"colour": "blue"}, {"price": "1.5"}, {"raw": "x"}, {"pair": [1]}):
        with pytest.raises(PayloadInvalidError, match=next(iter(wrong))):
            await field.client.get_job(module.jobs["take"]).trigger({**good, **wrong})
        run = await field.client.get_job("typed.take").trigger({**good, **wrong})
        assert (await run.wait(45)).status is RunStatus.FAILED
    assert starts == []
    stored = {**good, "pair": [1, 2], "colour": "red", "tags": {"x"}}
    del stored["more"]
    run = await field.client.get_job("typed.take").trigger(stored)
    assert (await run.wait(45)).status is RunStatus.SUCCEEDED
    assert starts == [value]


async def test_b50_a_payload_changed_by_its_handler_comes_as_it_was(field: Project):
    """In the next attempt, and in the record."""
    seen: list[str] = []
    module = Module("typed")

    @module.job(timeout="20s", max_attempts=3, backoff=Backoff("10ms", factor=1, jitter=0))
    async def change(ctx: JobContext, payload: dict[str, Any]) -> int:
        seen.append(repr(payload))
        payload["x"].append(ctx.attempt)
        payload["new"] = object()
        if ctx.attempt < 3:
            raise ValueError("again")
        return ctx.attempt

    await field.host(module)
    run = await field.client.get_job("typed.change").trigger({"x": [0]})
    assert await run.result(timeout=45) == 3
    assert seen == ["{'x': [0]}"] * 3
    assert (await run.record()).payload == {"x": [0]}
