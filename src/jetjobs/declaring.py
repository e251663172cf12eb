"""From a function and its options to a `Job`: the decorators, their types, and every refusal on the way.

A handler has six typed forms: async or plain, times no payload, a payload, a payload with a default. The overloads
spell them out once for functions and once for methods; a default makes the payload of `trigger` optional too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar, Unpack, cast, overload

from jetjobs._core import codec, names
from jetjobs._core.models import JobAddress
from jetjobs._core.policy import POLICIES, JobPolicy, PolicyOptions, unknown_option
from jetjobs._core.triggers import AnyTrigger, OnEvent, check_triggers
from jetjobs.context import JobContext
from jetjobs.errors import ConfigError, DeclarationError, DuplicateJobError, InvalidNameError, PayloadError
from jetjobs.handlers import HandlerShape, inspect_handler, local_names, source_place
from jetjobs.job import AsyncJob, Job, PlainJob

P = TypeVar("P")
R = TypeVar("R")
J_co = TypeVar("J_co", covariant=True, bound=Job[Any, Any])
_P_contra = TypeVar("_P_contra", contravariant=True)
_R_co = TypeVar("_R_co", covariant=True)


class ExposeOptions(PolicyOptions, total=False):
    """Everything `expose_job` takes beside the name: the policies, what the job says and what starts it."""

    description: str
    triggers: Iterable[AnyTrigger]


class JobOptions(ExposeOptions, total=False):
    """Everything a job can be declared with: every policy of `JobPolicy`, and these.

    Attributes:
        name: Its name within the module; the function's unless given.
        description: What it says about itself; the docstring's first line unless given.
        triggers: What starts it by itself: `Cron`, `Every`, `OnEvent`.
    """

    name: str


class OptionalPayload(Protocol[_P_contra, _R_co]):
    """A handler whose payload has a default."""

    def __call__(self, ctx: JobContext[Any], payload: _P_contra = ..., /) -> _R_co:
        """Run the job."""
        ...


class OptionalPayloadMethod(Protocol[_P_contra, _R_co]):
    """A method whose payload has a default."""

    def __call__(self, owner: Any, ctx: JobContext[Any], payload: _P_contra = ..., /) -> _R_co:
        """Run the job."""
        ...


class JobDecorator:
    """`@module.job`, with or without parentheses."""

    __slots__ = ("_add", "_options")

    def __init__(self, add: Callable[..., Any], options: JobOptions) -> None:
        self._add = add
        self._options = options

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload] - an `async def` is meant, which overload 1 to 3 take
        self, handler: OptionalPayload[P, Coroutine[Any, Any, R]], /
    ) -> AsyncJob[P | None, R]: ...
    @overload
    def __call__(self, handler: Callable[[JobContext[Any], P], Coroutine[Any, Any, R]], /) -> AsyncJob[P, R]: ...
    @overload
    def __call__(self, handler: Callable[[JobContext[Any]], Coroutine[Any, Any, R]], /) -> AsyncJob[None, R]: ...
    @overload
    def __call__(self, handler: OptionalPayload[P, R], /) -> PlainJob[P | None, R]: ...
    @overload
    def __call__(self, handler: Callable[[JobContext[Any], P], R], /) -> PlainJob[P, R]: ...
    @overload
    def __call__(self, handler: Callable[[JobContext[Any]], R], /) -> PlainJob[None, R]: ...
    @overload
    def __call__(self, **options: Unpack[JobOptions]) -> JobDecorator: ...
    def __call__(self, *handlers: Any, **options: Any) -> Any:
        """The job declared, or this decorator with options."""
        if not handlers:
            return JobDecorator(self._add, cast("JobOptions", {**self._options, **options}))
        return self._add(_only(handlers, "module.job"), self._options, local_names())


class JobMethod(Generic[J_co]):
    """A job declared on a class; `instance.send` is the `Job` bound to that instance."""

    def __init__(self, function: Callable[..., Any], options: JobOptions, local: dict[str, Any]) -> None:
        self.function = function
        self.options = options
        self.name = options.get("name", function.__name__)
        self.shape = inspect_handler(function, is_method=True, names=local)
        self.__doc__ = function.__doc__
        owner = function.__qualname__.split(".")[-2]
        declared_options(JobAddress(owner, self.name), JobPolicy(), options, self.shape)

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> JobMethod[J_co]: ...
    @overload
    def __get__(self, instance: object, owner: type[Any]) -> J_co: ...
    def __get__(self, instance: Any, owner: type[Any]) -> Any:
        if instance is None:
            return self
        try:
            return instance.__dict__["_method_jobs"][self.name]
        except KeyError:
            raise DeclarationError(
                f"{self.name} ({self.shape.where}) is a job of a class that was not set up: "
                f"write `class {owner.__name__}(Module)`, and call super().__init__() in its __init__"
            ) from None


class MethodDecorator:
    """`@job`, with or without parentheses, for methods of a `Module` class."""

    __slots__ = ("_options",)

    def __init__(self, options: JobOptions) -> None:
        self._options = options

    @overload
    def __call__(  # pyright: ignore[reportOverlappingOverload]
        self, method: OptionalPayloadMethod[P, Coroutine[Any, Any, R]], /
    ) -> JobMethod[AsyncJob[P | None, R]]: ...
    @overload
    def __call__(
        self, method: Callable[[Any, JobContext[Any], P], Coroutine[Any, Any, R]], /
    ) -> JobMethod[AsyncJob[P, R]]: ...
    @overload
    def __call__(
        self, method: Callable[[Any, JobContext[Any]], Coroutine[Any, Any, R]], /
    ) -> JobMethod[AsyncJob[None, R]]: ...
    @overload
    def __call__(self, method: OptionalPayloadMethod[P, R], /) -> JobMethod[PlainJob[P | None, R]]: ...
    @overload
    def __call__(self, method: Callable[[Any, JobContext[Any], P], R], /) -> JobMethod[PlainJob[P, R]]: ...
    @overload
    def __call__(self, method: Callable[[Any, JobContext[Any]], R], /) -> JobMethod[PlainJob[None, R]]: ...
    @overload
    def __call__(self, **options: Unpack[JobOptions]) -> MethodDecorator: ...
    def __call__(self, *methods: Any, **options: Any) -> Any:
        """The method declared as a job, or this decorator with options."""
        if not methods:
            return MethodDecorator(cast("JobOptions", {**self._options, **options}))
        function = _only(methods, "job")
        _check_in_class(function)
        earlier = sys._getframe(1).f_locals.get(function.__name__)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - the body of the class
        if isinstance(earlier, JobMethod):
            raise DuplicateJobError(
                f"{function.__name__} is declared twice, at {earlier.shape.where} and {source_place(function)}; "
                "give one of them another name"
            )
        return JobMethod[Any](function, self._options, local_names())


job = MethodDecorator({})
"""Declares a method of a `Module` class as a job: `@job`, or with `JobOptions` `@job(timeout="2m")`.

`instance.send` is then the `Job` of that instance. For functions there is `@module.job`.
"""


def declare_job(
    address: JobAddress, handler: Callable[..., Any], shape: HandlerShape, *, defaults: JobPolicy, options: JobOptions
) -> Job[Any, Any]:
    """The job, checked in every part.

    Raises:
        DeclarationError, ConfigError, InvalidNameError, PayloadError: named by the job and where it is declared.
    """
    policy, triggers = declared_options(address, defaults, options, shape)
    kind = AsyncJob[Any, Any] if shape.is_async else PlainJob[Any, Any]
    made = kind(address, handler, shape, policy=policy, triggers=triggers, description=options.get("description"))
    for trigger in triggers:
        _check_trigger_payload(made, trigger)
    return made


def declared_options(
    address: JobAddress, defaults: JobPolicy, options: JobOptions, shape: HandlerShape
) -> tuple[JobPolicy, tuple[AnyTrigger, ...]]:
    """The policy and triggers the options stand for, on top of the module's defaults."""
    given = cast("dict[str, Any]", dict(options))
    for name in ("name", "description"):
        given.pop(name, None)
    triggers = given.pop("triggers", ())
    try:
        _check_known(given)
        policy = defaults.with_options(cast("PolicyOptions", given))
        _check_aliases(policy.aliases, address.job)
        found = check_triggers(triggers)
    except (ConfigError, DeclarationError, InvalidNameError) as error:
        raise type(error)(f"job {address} ({shape.where}): {error}") from error
    if shape.is_async and "isolation" in options:
        raise DeclarationError(
            f"job {address} ({shape.where}): isolation={options['isolation']!r} is for `def`, but the handler is an "
            "`async def`, which runs on the host's loop; leave isolation out or write `def`"
        )
    return policy, found


def _check_known(policies: Mapping[str, Any]) -> None:
    for name in policies:
        if name not in POLICIES:
            raise unknown_option(name, (*POLICIES, "name", "description", "triggers"))


def _check_aliases(aliases: tuple[str, ...], own: str) -> None:
    for alias in aliases:
        if names.check_job_name(alias) == own:
            raise DeclarationError(f"aliases={aliases!r} holds the job's own name; leave {alias} out")
    if len(set(aliases)) < len(aliases):
        raise DeclarationError(f"aliases={aliases!r} holds a name twice; list each old name once, the oldest first")


def _check_trigger_payload(made: Job[Any, Any], trigger: AnyTrigger) -> None:
    if isinstance(trigger, OnEvent):
        return
    try:
        made.check_payload(codec.decode(codec.encode(trigger.payload, path="payload"), "msgpack"))
    except PayloadError as error:
        raise DeclarationError(
            f"schedule {made.address}/{trigger.name} ({made.where}) could never run: {error}; "
            f"write {type(trigger).__name__}(…, payload=…) as the handler takes it"
        ) from error


def _only(handlers: tuple[Any, ...], decorator: str) -> Any:
    handler = handlers[0]
    if len(handlers) > 1 or isinstance(handler, str):
        raise DeclarationError(f'@{decorator} takes keywords only; write @{decorator}(name="send", timeout="2m")')
    if isinstance(handler, (Job, JobMethod)):
        raise DeclarationError(f"{handler!r} is a job already; expose its function under another name instead")
    return handler


def _check_in_class(function: Any) -> None:
    path: list[str] = getattr(function, "__qualname__", "").split(".")
    if len(path) < 2 or path[-2] == "<locals>":
        name = path[-1] or repr(function)
        raise DeclarationError(
            f"@job is for methods of a `class …(Module)`, but {name} ({source_place(function)}) is no method; "
            'write `billing = Module("billing")` and `@billing.job`'
        )
