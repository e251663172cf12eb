"""What a handler is: `(ctx)` or `(ctx, payload[: T][= default])`, looked at once, where it is declared."""

from __future__ import annotations

import functools
import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from jetjobs._core import codec
from jetjobs.context import JobContext
from jetjobs.errors import DeclarationError, PayloadInvalidError

if TYPE_CHECKING:
    from jetjobs.payload_types import PayloadType

MODEL: Final = (
    "write `async def {name}(ctx: JobContext) -> None` or "
    "`async def {name}(ctx: JobContext, payload: Invoice) -> dict` (or the same with `def`)"
)
_STORED_AS_THEY_ARE: Final = frozenset({type(None), bool, int, float, str, bytes, list, dict})
_EMPTY: Final = inspect.Parameter.empty
_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class HandlerShape:
    """What a handler's signature says."""

    is_async: bool
    takes_payload: bool
    payload_required: bool
    default: Any
    payload_type: PayloadType | None
    description: str
    where: str

    def parse(self, value: Any, job: object) -> Any:
        """The payload as the handler gets it; `job` is who the message names when it doesn't fit.

        Raises:
            PayloadInvalidError: it doesn't fit; names the fields, never shows their values.
        """
        if not self.takes_payload:
            return None
        if value is None and not self.payload_required:
            return self.default
        declared = self.payload_type
        if declared is None:
            return value
        try:
            return declared.validate(value)
        except declared.refusal as error:
            found = declared.explain(error)
        # Outside the except block and from nothing: pydantic's own text shows the values.
        given = "there is none" if value is None else found
        raise PayloadInvalidError(f"payload of {job} doesn't fit {declared.shown}: {given}")

    def check_stored(self, value: Any, job: object) -> None:
        """Nothing, if a caller's value still fits once it was stored; a type may dump what it doesn't accept.

        Raises:
            PayloadError: it can't be stored, or doesn't fit then.
        """
        if self.payload_type is None or type(value) in _STORED_AS_THEY_ARE:
            return
        try:
            self.parse(codec.decode(codec.encode(value)), job)
        except PayloadInvalidError as error:
            raise PayloadInvalidError(f"{error}; what a {type(value).__name__} is stored as must fit, too") from None


def inspect_handler(
    handler: Callable[..., Any], *, is_method: bool = False, names: Mapping[str, Any] | None = None
) -> HandlerShape:
    """What the handler takes. `is_method`: its first parameter is `self`. `names`: local names annotations may use.

    Raises:
        DeclarationError: it is no function of the right form; says where it is and what to write.
    """
    function = _function_of(handler)
    where = source_place(function)
    parameters = list(inspect.signature(handler).parameters.values())
    if is_method:
        parameters = parameters[1:]
    _check_parameters(function, parameters, where)
    payload = parameters[1] if len(parameters) == 2 else None
    hints = _Annotations(function, names or {}, where)
    _check_context(function, parameters, hints)
    return HandlerShape(
        is_async=inspect.iscoroutinefunction(handler),
        takes_payload=payload is not None,
        payload_required=payload is not None and payload.default is _EMPTY,
        default=None if payload is None or payload.default is _EMPTY else payload.default,
        payload_type=None if payload is None else _payload_type(hints.resolve(payload), function, where),
        description=first_line(inspect.getdoc(function)),
        where=where,
    )


def first_line(text: str | None) -> str:
    """The first line of a docstring that says something."""
    return next((line.strip() for line in (text or "").splitlines() if line.strip()), "")


def source_place(function: Callable[..., Any]) -> str:
    """Where a function is written, as `file:line`."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "an unknown place" if code is None else f"{code.co_filename}:{code.co_firstlineno}"


def local_names(depth: int = 2) -> dict[str, Any]:
    """Names that are local where a declaration is written, for annotations given as text.

    `depth` counts frames up to the declaration; outer functions of the same file are seen too, inner names win.
    """
    frame = sys._getframe(depth)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - as pydantic finds local classes
    file, found = frame.f_code.co_filename, dict[str, Any]()
    walker = frame
    while walker is not None and walker.f_code.co_filename == file and walker.f_code.co_name != "<module>":
        found = {**walker.f_locals, **found}
        walker = walker.f_back
    return found


def _function_of(handler: Any) -> Callable[..., Any]:
    function: Any = handler.__func__ if inspect.ismethod(handler) else handler
    name = getattr(function, "__name__", type(function).__name__)
    model = MODEL.format(name="send" if name.startswith("<") or isinstance(handler, functools.partial) else name)
    if not inspect.isfunction(function):
        raise DeclarationError(
            f"a handler must be a function or a method, not {_kind(cast('object', handler))}; {model}"
        )
    place = f"{name} ({source_place(function)})"
    if function.__name__ == "<lambda>":
        raise DeclarationError(f"a handler can't be a lambda ({source_place(function)}), it has no name; {model}")
    inner = inspect.unwrap(function)
    if any(inspect.isasyncgenfunction(each) or inspect.isgeneratorfunction(each) for each in (function, inner)):
        raise DeclarationError(f"{place} yields, but a handler returns its one result; {model}")
    if inspect.iscoroutinefunction(inner) and not inspect.iscoroutinefunction(function):
        raise DeclarationError(
            f"{place} is an `async def` behind a decorator that isn't; write the decorator's wrapper as `async def` "
            "and await the function in it"
        )
    return function


def _kind(handler: object) -> str:
    match handler:
        case _ if isinstance(handler, functools.partial):
            return "a functools.partial (a module's state or a class-style module carries what it binds)"
        case _ if isinstance(handler, (staticmethod, classmethod)):
            kind = "staticmethod" if isinstance(handler, staticmethod) else "classmethod"
            return f"a {kind} (take that decorator away: the job is a plain method)"
        case type():
            return f"the class {handler.__name__}"
        case _ if inspect.isbuiltin(handler):
            return f"the builtin {handler!r}"
        case _:
            return f"an object of class {type(handler).__name__}"


def _check_parameters(function: Callable[..., Any], parameters: list[inspect.Parameter], where: str) -> None:
    name = function.__name__
    model = MODEL.format(name=name)
    for each in parameters:
        if each.kind not in _POSITIONAL:
            kind = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(each.kind.name, "keyword-only ")
            raise DeclarationError(f"{name} ({where}) has {kind}{each.name}, which no trigger can fill; {model}")
    if not parameters:
        raise DeclarationError(f"{name} ({where}) takes no context; {model}")
    if len(parameters) > 2:
        names = ", ".join(each.name for each in parameters)
        hint = " (methods are declared in a class-style module)" if parameters[0].name == "self" else ""
        raise DeclarationError(
            f"{name} ({where}) takes {len(parameters)} parameters ({names}), at most context and payload are given"
            f"{hint}; put several values into one model; {model}"
        )
    if parameters[0].name in {"self", "cls"}:
        raise DeclarationError(
            f"{name} ({where}) is a method; in `class Billing(Module)` declare it with `from jetjobs import job`, "
            f"elsewhere pass the bound method to expose_job"
        )


def _check_context(function: Callable[..., Any], parameters: list[inspect.Parameter], hints: _Annotations) -> None:
    first, *rest = parameters
    swapped = any(_names_context(each.annotation) or each.name in {"ctx", "context"} for each in rest)
    if swapped or not hints.may_be_context(first):
        raise DeclarationError(
            f"the first parameter of {function.__name__} ({hints.where}) must be the context, not {first.name}; "
            f"{MODEL.format(name=function.__name__)}"
        )


def _names_context(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2].strip() == "JobContext"
    return (typing.get_origin(annotation) or annotation) is JobContext


class _Annotations:
    """Annotations of one function, resolved where it was written."""

    def __init__(self, function: Callable[..., Any], names: Mapping[str, Any], where: str) -> None:
        inner = inspect.unwrap(function)
        self._globals: dict[str, Any] = getattr(inner, "__globals__", {})
        self._locals = {**names, **_closure(inner)}
        self._function = function.__name__
        self.where = where

    def resolve(self, parameter: inspect.Parameter) -> Any:
        """The type itself; `Any` where none is written."""
        if parameter.annotation is _EMPTY:
            return Any
        try:
            return self._evaluate(parameter)
        except NameError as error:
            raise DeclarationError(
                f"the type {parameter.annotation!r} of {parameter.name} in {self._function} ({self.where}) can't be "
                f"found: {error}; import it at run time, not under TYPE_CHECKING, and define it above the job"
            ) from error
        except (AttributeError, SyntaxError, TypeError) as error:
            raise DeclarationError(
                f"{parameter.annotation!r} of {parameter.name} in {self._function} ({self.where}) is no type: {error}"
            ) from error

    def may_be_context(self, parameter: inspect.Parameter) -> bool:
        """False only for a parameter whose type is known and can't take a context."""
        if parameter.annotation is _EMPTY or _names_context(parameter.annotation):
            return True
        try:
            found = self._evaluate(parameter)
        except (NameError, AttributeError, SyntaxError, TypeError):
            return True  # perhaps imported for checkers only: a context needs no type at run time
        found = typing.get_origin(found) or found
        if found is Any or not isinstance(found, type):  # Any is a class since 3.11
            return True
        return issubclass(JobContext, found) or issubclass(found, JobContext)

    def _evaluate(self, parameter: inspect.Parameter) -> Any:
        holder = type("holder", (), {"__annotations__": {parameter.name: parameter.annotation}})
        return typing.get_type_hints(holder, self._globals, self._locals, include_extras=True)[parameter.name]


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    if code is None or not cells:
        return {}
    found: dict[str, Any] = {}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _payload_type(declared: Any, function: Callable[..., Any], where: str) -> PayloadType | None:
    if declared is Any or declared is object:
        return None
    # pydantic takes longer to import than the rest of jetjobs, and a module without payloads needs none of it.
    from jetjobs.payload_types import payload_type  # noqa: PLC0415

    return payload_type(declared, function.__name__, where)
