"""What a payload is declared to be, checked by pydantic. Imported with the first job that declares a type."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter, ValidationError

from jetjobs._core import codec
from jetjobs._core.digests import digest_of
from jetjobs.errors import DeclarationError, PayloadError

_SHOWN_ERRORS: Final = 5
_MODULES: Final = re.compile(r"""('[^']*'|"[^"]*")|(?:[A-Za-z_]\w*\.|<locals>\.)+(?=[A-Za-z_<])""")


@dataclass(frozen=True, slots=True)
class PayloadType:
    """A declared payload type: how values become it, and its JSON schema where there is one.

    `validate` raises `refusal`, which `explain` puts into words without the values.
    """

    refusal: ClassVar = ValidationError

    shown: str
    validate: Callable[[Any], Any]
    schema: Mapping[str, Any] | None
    digest: str | None

    def explain(self, error: ValidationError) -> str:
        """Which fields don't fit, and why."""
        found = error.errors(include_url=False, include_context=False, include_input=False)
        lines = [f"{_path(each['loc'])}{each['msg']}" for each in found[:_SHOWN_ERRORS]]
        more = len(found) - len(lines)
        return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


def payload_type(declared: Any, handler: str, where: str) -> PayloadType:
    """The type as something to check values with. `handler` and `where` are for the message.

    Raises:
        DeclarationError: pydantic can't check values against it.
    """
    shown = declared.__name__ if isinstance(declared, type) else _as_written(str(declared))
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(declared)
        validate = _reader(adapter)
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = str(error).partition("\n")[0]
        raise DeclarationError(
            f"{shown}, the payload type of {handler} ({where}), can't be validated: {reason}; "
            "write a pydantic model, dataclass, TypedDict or a builtin type"
        ) from error
    schema = _json_schema(adapter)
    return PayloadType(shown, validate, schema, None if schema is None else digest_of(schema))


def _as_written(shown: str) -> str:
    """The type without the modules its names are from; texts in it stay.

    >>> _as_written("dict[str, shop.models.Order] | typing.Literal['a.b']")
    "dict[str, Order] | Literal['a.b']"
    """
    return _MODULES.sub(lambda found: found[1] or "", shown)


def _reader(adapter: TypeAdapter[Any]) -> Callable[[Any], Any]:
    """Validates as pydantic does. A strict type also takes what its own values are stored as.

    Stored bytes know no tuple, frozen set or enum: a strict type would refuse what was dumped from it.
    """
    validate = adapter.validator.validate_python

    def read(value: Any) -> Any:
        try:
            return validate(value)
        except ValidationError:
            try:
                found = validate(value, strict=False)
            except ValidationError:
                pass
            else:
                if _is_stored_as(value, adapter, found):
                    return found
            raise

    return read


def _is_stored_as(value: Any, adapter: TypeAdapter[Any], found: Any) -> bool:
    try:
        dumped = adapter.dump_python(found, by_alias=True, exclude_unset=True, round_trip=True, warnings=False)
        return codec.digest(dumped) == codec.digest(value)
    except (PayloadError, ValueError, TypeError):  # it can't be dumped, or not stored
        return False


def _json_schema(adapter: TypeAdapter[Any]) -> dict[str, Any] | None:
    try:
        return adapter.json_schema()
    except PydanticUserError:  # a type without a JSON form: validated all the same, only not described
        return None


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location) + ": " if location else ""
