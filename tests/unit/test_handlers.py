from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from jetjobs import JobContext, PayloadInvalidError
from jetjobs.errors import DeclarationError
from jetjobs.handlers import inspect_handler, local_names, source_place

if TYPE_CHECKING:
    from decimal import Decimal


class Invoice(BaseModel):
    id: int
    email: str


class Colour(Enum):
    RED = "red"


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Line:
    sku: str


async def send(ctx: JobContext, invoice: Invoice) -> None:
    """Send it.

    Twice if need be.
    """


def sweep(ctx):  # pyright: ignore[reportMissingParameterType, reportUnknownParameterType]  # noqa: ANN001
    return ctx  # pyright: ignore[reportUnknownVariableType]


def test_a_handler_with_a_typed_payload() -> None:
    shape = inspect_handler(send)
    assert (shape.is_async, shape.takes_payload, shape.payload_required) == (True, True, True)
    assert shape.description == "Send it."
    assert shape.where == f"{__file__}:{send.__code__.co_firstlineno}"
    assert shape.payload_type is not None
    assert shape.payload_type.shown == "Invoice"
    assert shape.payload_type.schema == Invoice.model_json_schema()
    assert shape.payload_type.digest is not None
    assert len(shape.payload_type.digest) == 16
    assert shape.parse({"id": "7", "email": "a@b.c"}, "billing.send") == Invoice(id=7, email="a@b.c")


def test_a_handler_without_payload_ignores_what_comes() -> None:
    shape = inspect_handler(sweep)  # pyright: ignore[reportUnknownArgumentType]
    assert (shape.is_async, shape.takes_payload, shape.payload_required) == (False, False, False)
    assert shape.payload_type is None
    assert shape.description == ""
    assert shape.parse({"any": 1}, "billing.sweep") is None


@pytest.mark.parametrize("annotation", [None, Any, object])
def test_an_untyped_payload_passes_as_it_is(annotation: Any) -> None:
    def handler(ctx: JobContext, payload: Any) -> None: ...

    if annotation is None:
        del handler.__annotations__["payload"]
    else:
        handler.__annotations__["payload"] = annotation
    shape = inspect_handler(handler)
    assert shape.payload_type is None
    assert shape.parse({"x": [1]}, "a.b") == {"x": [1]}
    assert shape.parse(None, "a.b") is None


def test_a_default_stands_in_for_a_payload_that_is_missing() -> None:
    def handler(ctx: JobContext, limit: int = 5) -> None: ...

    shape = inspect_handler(handler)
    assert not shape.payload_required
    assert shape.parse(None, "a.b") == 5
    assert shape.parse("7", "a.b") == 7


@pytest.mark.parametrize(
    "value, message",
    [
        ({"id": 1}, "payload of billing.send doesn't fit Invoice: email: Field required"),
        ({}, "id: Field required; email: Field required"),
        ({"id": "x", "email": "y"}, "id: Input should be a valid integer"),
        ([1], "Input should be a valid dictionary or instance of Invoice"),
        (None, "payload of billing.send doesn't fit Invoice: there is none"),
    ],
)
def test_a_payload_that_does_not_fit_names_the_fields(value: Any, message: str) -> None:
    with pytest.raises(PayloadInvalidError, match=message):
        inspect_handler(send).parse(value, "billing.send")


def test_a_payload_that_does_not_fit_is_not_shown() -> None:
    with pytest.raises(PayloadInvalidError) as caught:
        inspect_handler(send).parse({"id": "s3cr3t", "email": ["s3cr3t"]}, "billing.send")
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_only_the_first_fields_are_named() -> None:
    class Wide(BaseModel):
        a: int
        b: int
        c: int
        d: int
        e: int
        f: int
        g: int

    def handler(ctx: JobContext, payload: Wide) -> None: ...

    with pytest.raises(PayloadInvalidError, match=r"e: Field required; and 2 more$"):
        inspect_handler(handler, names=local_names(1)).parse({}, "a.b")


@pytest.mark.parametrize(
    "declared, stored, parsed",
    [
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 2], {1, 2}),
        (frozenset[str], {"a"}, frozenset("a")),
        (deque[int], [1], deque([1])),
        (Point, [1, 2], Point(1, 2)),
        (Line, {"sku": "A"}, Line("A")),
        (Colour, "red", Colour.RED),
        (list[Invoice], [{"id": 1, "email": "x"}], [Invoice(id=1, email="x")]),
        (datetime, "2027-01-01T00:00:00Z", datetime(2027, 1, 1, tzinfo=UTC)),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (bytes, b"\xff", b"\xff"),
        (Invoice | None, None, None),
        (Annotated[int, Field(ge=1)], 1, 1),
    ],
)
def test_decoded_values_become_the_declared_type(declared: Any, stored: Any, parsed: Any) -> None:
    def handler(ctx: JobContext, payload: Any) -> None: ...

    handler.__annotations__["payload"] = declared
    assert inspect_handler(handler).parse(stored, "a.b") == parsed


def test_annotations_of_local_types_are_found() -> None:
    class Local(BaseModel):
        x: int

    async def handler(ctx: JobContext, payload: list[Local]) -> None: ...

    assert inspect_handler(handler, names=local_names(1)).parse([{"x": 1}], "a.b") == [Local(x=1)]


def test_annotations_of_closures_are_found() -> None:
    def make(model: type[BaseModel]) -> Callable[..., Any]:
        def handler(ctx: JobContext, payload: model) -> None:  # pyright: ignore
            print(model)  # noqa: T201 - keeps the name in the closure

        return handler  # pyright: ignore[reportUnknownVariableType]

    assert inspect_handler(make(Invoice)).parse({"id": 1, "email": "x"}, "a.b") == Invoice(id=1, email="x")


def test_a_closure_that_is_not_filled_yet_does_no_harm() -> None:
    def handler(ctx: JobContext, payload: int) -> None:
        print(later)  # noqa: T201

    assert inspect_handler(handler).parse("1", "a.b") == 1
    later = 1


def test_the_context_may_be_for_checkers_only() -> None:
    def handler(ctx: JobContext, payload: int) -> None: ...

    handler.__annotations__["ctx"] = "OnlyForCheckers"
    assert inspect_handler(handler).takes_payload


@pytest.mark.parametrize(
    "annotation", ["JobContext[int]", "jetjobs.JobContext", JobContext, JobContext[int], Any, object]
)
def test_what_the_context_may_be_called(annotation: Any) -> None:
    def handler(ctx: JobContext, payload: int) -> None: ...

    handler.__annotations__["ctx"] = annotation
    assert inspect_handler(handler).takes_payload


class Service:
    async def send(self, ctx: JobContext, invoice: Invoice) -> None: ...

    @classmethod
    def counted(cls, ctx: JobContext) -> None: ...

    @staticmethod
    def free(ctx: JobContext) -> None: ...

    def __call__(self, ctx: JobContext) -> None: ...


def test_bound_methods_are_handlers() -> None:
    assert inspect_handler(Service().send).is_async
    assert not inspect_handler(Service.counted).takes_payload
    assert not inspect_handler(Service.free).takes_payload
    assert inspect_handler(Service.send, is_method=True).takes_payload


def test_a_wrapped_function_keeps_its_signature() -> None:
    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        return wrapper

    shape = inspect_handler(traced(send))
    assert shape.is_async
    assert shape.parse({"id": 1, "email": "x"}, "a.b") == Invoice(id=1, email="x")
    assert shape.where == source_place(send)


def test_a_decorator_that_hides_an_async_function_is_refused() -> None:
    @functools.wraps(send)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return send(*args, **kwargs)

    with pytest.raises(
        DeclarationError, match="`async def` behind a decorator that isn't; write the decorator's wrapper"
    ):
        inspect_handler(wrapper)


def takes_nothing() -> None: ...
def takes_three(ctx: JobContext, a: int, b: int = 1) -> None: ...
def takes_many(ctx: JobContext, *args: int) -> None: ...
def takes_names(ctx: JobContext, **kwargs: int) -> None: ...
def takes_keyword(ctx: JobContext, *, a: int = 1) -> None: ...
def swapped(invoice: Invoice, ctx: JobContext) -> None: ...
def swapped_untyped(payload, ctx): ...  # pyright: ignore  # noqa: ANN001
def no_context(invoice: Invoice) -> None: ...
def for_checkers(ctx: JobContext, price: Decimal) -> None: ...


async def yields(ctx: JobContext) -> Any:
    yield 1


def generates(ctx: JobContext) -> Any:
    yield 1


MODEL = r"write `async def .*\(ctx: JobContext\) -> None` or `async def .*\(ctx: JobContext, payload: Invoice\)"


@pytest.mark.parametrize(
    "handler, message",
    [
        (lambda _ctx: None, f"a handler can't be a lambda .*, it has no name; {MODEL}"),  # pyright: ignore
        (functools.partial(takes_three, a=1), f"not a functools.partial .*; {MODEL}"),
        (Service(), f"not an object of class Service; {MODEL}"),
        (Service, "not the class Service"),
        (print, "not the builtin <built-in function print>"),
        (5, "not an object of class int"),
        (Service.__dict__["free"], "not a staticmethod .take that decorator away"),
        (Service.__dict__["counted"], "not a classmethod .take that decorator away"),
        (yields, f"yields .* yields, but a handler returns its one result; {MODEL}"),
        (generates, "generates .* yields, but a handler returns its one result"),
        (takes_nothing, f"takes_nothing .* takes no context; {MODEL}"),
        (takes_three, r"takes_three .* takes 3 parameters \(ctx, a, b\), at most context and payload .*one model"),
        (takes_many, r"takes_many .* has \*args, which no trigger can fill"),
        (takes_names, r"takes_names .* has \*\*kwargs, which no trigger can fill"),
        (takes_keyword, "takes_keyword .* has keyword-only a, which no trigger can fill"),
        (swapped, "the first parameter of swapped .* must be the context, not invoice"),
        (swapped_untyped, "must be the context, not payload"),
        (no_context, "the first parameter of no_context .* must be the context, not invoice"),
        (Service.send, r"takes 3 parameters \(self, ctx, invoice\).*methods are declared in a class-style module"),
        (
            Service.__call__,
            "__call__ .* is a method; in `class Billing.Module.` declare it with `from jetjobs import job`",
        ),
        (for_checkers, "the type 'Decimal' of price in for_checkers .* can't be found: .*not under TYPE_CHECKING"),
    ],
)
def test_handlers_that_are_refused(handler: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        inspect_handler(handler)


@pytest.mark.parametrize(
    "annotation, message",
    [
        ("int[", "'int\\[' of payload in handler .* is no type"),
        ("Invoice.missing", "is no type"),
        (Service, "Service, the payload type of handler .*, can't be validated: .*; write a pydantic model"),
        (5, "5"),
    ],
)
def test_payload_types_that_are_refused(annotation: Any, message: str) -> None:
    def handler(ctx: JobContext, payload: Any) -> None: ...

    handler.__annotations__["payload"] = annotation
    with pytest.raises(DeclarationError, match=message):
        inspect_handler(handler)


def test_a_type_without_json_form_is_validated_all_the_same() -> None:
    def handler(ctx: JobContext, payload: Any) -> None: ...

    handler.__annotations__["payload"] = Callable[[int], int]
    declared = inspect_handler(handler).payload_type
    assert declared is not None
    assert declared.schema is declared.digest is None


def test_the_place_of_what_is_no_function() -> None:
    assert source_place(print) == "an unknown place"
