"""A result as the handler's return type, where one is declared that a plain value isn't already."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable
from enum import Enum
from typing import Any, TypeVar, cast

from jetjobs._core.pydantic_values import is_model_class
from jetjobs.errors import PayloadInvalidError
from jetjobs.job import Job

R = TypeVar("R")


def result_reader(job: Job[Any, R]) -> Callable[[Any], R] | None:
    """Turns a decoded result into what the handler returned; `None` when decoded values are that already.

    Models, dataclasses, tuples, frozen sets and enums were stored as what they are made of, and are made again.
    """
    try:
        declared: Any = typing.get_type_hints(job.handler, include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):  # an annotation only a type checker can read
        return None
    if not _is_made_again(declared):
        return None
    from pydantic import (  # noqa: PLC0415 - most results need no pydantic, and a process perhaps none at all
        PydanticSchemaGenerationError,
        PydanticUserError,
        TypeAdapter,
        ValidationError,
    )

    try:
        adapter: TypeAdapter[R] = TypeAdapter(declared)
    except (PydanticSchemaGenerationError, PydanticUserError):
        return None

    def read(value: Any) -> R:
        try:
            return adapter.validate_python(value, strict=False)  # stored, it knows no tuples and no enums
        except ValidationError as error:
            raise PayloadInvalidError(
                f"the result of {job.address} doesn't fit {declared!r}: {error.error_count()} fields differ; "
                "the run's record has the plain value"
            ) from None

    return read


def _is_made_again(declared: Any) -> bool:
    """Whether a type, or one inside it, is stored as something else."""
    if isinstance(declared, type) and not typing.get_origin(declared):
        kind = cast("type[Any]", declared)
        return (
            is_model_class(cast("Any", kind))
            or issubclass(kind, (Enum, tuple, frozenset))
            or dataclasses.is_dataclass(declared)
        )
    origin = typing.get_origin(declared)
    return origin in {tuple, frozenset} or any(_is_made_again(part) for part in typing.get_args(declared))
