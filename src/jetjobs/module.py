"""`Module`: a named set of jobs that one service owns, as an instance or as a class.

Instance style: `billing = Module("billing")`, then `@billing.job`. Class style: `class Billing(Module)` with
`name = "billing"` and `@job` on its methods; each instance has jobs of its own, bound to it.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Any, Unpack, cast

from jetjobs._core import names
from jetjobs._core.models import JobAddress
from jetjobs._core.policy import JobPolicy
from jetjobs._core.renames import Named, collision
from jetjobs.context import JobContext
from jetjobs.declaring import ExposeOptions, JobDecorator, JobMethod, JobOptions, declare_job
from jetjobs.errors import DeclarationError, DuplicateJobError, UnknownJobError
from jetjobs.handlers import HandlerShape, inspect_handler, local_names
from jetjobs.job import AnyBinding, Job
from jetjobs.triggered import TriggerOptions

Lifespan = Callable[[], AbstractAsyncContextManager[Any] | AsyncIterator[Any]]
Hook = Callable[..., Any]


class Module:
    """A named set of jobs with what they share: policy defaults, state, hooks.

    `name` is letters, digits, `_`, `-`, and dots between parts. `defaults` hold for every job that says nothing else.

    `lifespan` is an `async def` with one `yield` (or what `@asynccontextmanager` makes of it); what it yields is
    every run's `ctx.state`. A host enters it once, before the first run, and leaves it after the last.
    """

    name: str = ""

    def __init__(
        self, name: str | None = None, *, lifespan: Lifespan | None = None, defaults: JobPolicy | None = None
    ) -> None:
        self.name = names.check_module_name(name if name is not None else _class_name(type(self)))
        names.check_address(self.name, "j")  # long names are refused before the first job
        self.defaults = _check_defaults(self.name, defaults)
        self._lifespan = _check_lifespan(self.name, lifespan)
        self._jobs: dict[str, Job[Any, Any]] = {}
        self._old_names: dict[str, Job[Any, Any]] = {}
        self._before: list[Hook] = [self.before_attempt] if _overrides(self, "before_attempt") else []
        self._after: list[Hook] = [self.after_attempt] if _overrides(self, "after_attempt") else []
        self._method_jobs = {method.name: self._add_method(method) for method in _methods_of(type(self)).values()}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.name:
            names.check_module_name(cls.name)
        seen: dict[str, JobMethod[Any]] = {}
        for attribute, method in _methods_of(cls).items():
            if hasattr(Module, attribute):
                raise DeclarationError(
                    f"{cls.__name__}.{attribute} ({method.shape.where}) hides Module.{attribute}; "
                    f'rename the method and write @job(name="{attribute}")'
                )
            names.check_job_name(method.name)
            _refuse_twice(method.name, seen.get(method.name), method.shape.where)
            problem = collision(_named(cls, method), (_named(cls, other) for other in seen.values()))
            if problem is not None:
                raise DuplicateJobError(problem)
            seen[method.name] = method

    @property
    def job(self) -> JobDecorator:
        """Declares a job: `@billing.job`, or with options `@billing.job(timeout="2m")`."""
        return JobDecorator(self._add, {})

    def expose_job(
        self, name: str, handler: Callable[..., Any] | Job[Any, Any], **options: Unpack[ExposeOptions]
    ) -> Job[Any, Any]:
        """Declares a function or bound method as a job, without a decorator.

        Raises:
            DeclarationError, ConfigError, InvalidNameError: it can't be a job so; says what to write.
        """
        function = handler.handler if isinstance(handler, Job) else handler
        return self._add(function, cast("JobOptions", {**options, "name": name}), local_names())

    @property
    def jobs(self) -> Mapping[str, Job[Any, Any]]:
        """The jobs by name, in the order they were declared."""
        return MappingProxyType(self._jobs)

    @property
    def old_names(self) -> Mapping[str, Job[Any, Any]]:
        """The jobs under their old names (`aliases`), by that name."""
        return MappingProxyType(self._old_names)

    async def atrigger_job(self, name: str, payload: Any = None, **options: Unpack[TriggerOptions]) -> Any:
        """Trigger a job of this module by its name; see `Job.trigger`.

        Raises:
            UnknownJobError: no job of this module is called so.
        """
        return await self._called(name).trigger(payload, **options)

    def trigger_job(self, name: str, payload: Any = None, **options: Unpack[TriggerOptions]) -> Any:
        """The same for a thread that may block; see `Job.trigger_blocking`."""
        return self._called(name).trigger_blocking(payload, **options)

    def _called(self, name: str) -> Job[Any, Any]:
        # Under an old name the run keeps it: what was asked for by a key stays the same run.
        found = self._jobs.get(name) or self._old_names.get(name)
        if found is None:
            close = difflib.get_close_matches(name, self._jobs, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(self._jobs) or 'none'}"
            raise UnknownJobError(f"module {self.name} has no job {name!r}; {hint}", close)
        return found

    def bind(self, binding: AnyBinding) -> None:
        """Let the jobs' `trigger` go through this host or client."""
        for each in (*self._jobs.values(), *self._old_names.values()):
            each.bind(binding)

    def unbind(self, binding: AnyBinding) -> None:
        """Undo `bind`."""
        for each in (*self._jobs.values(), *self._old_names.values()):
            each.unbind(binding)

    # ------------------------------------------------------------------ state and hooks

    def lifespan(self) -> Any:
        """Class style: override as `async def` with one `yield`; what it yields is `ctx.state`."""
        return None if self._lifespan is None else self._lifespan()

    @asynccontextmanager
    async def open_state(self) -> AsyncGenerator[Any]:
        """What a host enters once around all runs; the value inside is `ctx.state`."""
        made: Any = self.lifespan()
        if isinstance(made, AsyncGenerator):
            made = asynccontextmanager(lambda: cast("AsyncGenerator[Any]", made))()
        if isinstance(made, AbstractAsyncContextManager):
            async with cast("AbstractAsyncContextManager[Any]", made) as state:
                yield state
        else:
            yield await made if inspect.isawaitable(made) else made

    def before_attempt(self, *args: Any, **kwargs: Any) -> Any:
        """Instance style: `@billing.before_attempt` on a `(ctx)` function, called before each start of a handler.

        Class style: override as `async def before_attempt(self, ctx)`. What it raises ends the attempt as if the
        handler had raised it.
        """
        return _add_hook(self._before, args, kwargs)

    def after_attempt(self, *args: Any, **kwargs: Any) -> Any:
        """Instance style: `@billing.after_attempt` on a `(ctx, error)` function, called when a handler has ended.

        Class style: override as `async def after_attempt(self, ctx, error)`. `error` is what the handler raised,
        `ctx.skip` and the like included, or `None`.
        """
        return _add_hook(self._after, args, kwargs)

    @property
    def has_hooks(self) -> bool:
        """False when `run_before` and `run_after` would do nothing."""
        return bool(self._before or self._after)

    async def run_before(self, ctx: JobContext[Any]) -> None:
        """Call the hooks before an attempt, in the order they were declared."""
        for hook in self._before:
            said = hook(ctx)
            if inspect.isawaitable(said):
                await said

    async def run_after(self, ctx: JobContext[Any], error: BaseException | None) -> None:
        """Call the hooks after an attempt, the last declared first."""
        for hook in reversed(self._after):
            said = hook(ctx, error)
            if inspect.isawaitable(said):
                await said

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}: {', '.join(self._jobs) or 'no jobs'}>"

    # ------------------------------------------------------------------ the registry

    def _add(self, handler: Callable[..., Any], options: JobOptions, local: Mapping[str, Any]) -> Job[Any, Any]:
        shape = inspect_handler(handler, names=local)
        return self._register(options.get("name", handler.__name__), handler, shape, options)

    def _add_method(self, method: JobMethod[Any]) -> Job[Any, Any]:
        return self._register(method.name, method.function.__get__(self), method.shape, method.options)

    def _register(
        self, name: str, handler: Callable[..., Any], shape: HandlerShape, options: JobOptions
    ) -> Job[Any, Any]:
        address = names.check_address(self.name, name)
        made = declare_job(address, handler, shape, defaults=self.defaults, options=options)
        problem = collision(made.named, (other.named for other in self._jobs.values()))
        if problem is not None:
            raise DuplicateJobError(problem)
        self._jobs[name] = made
        self._old_names.update((old.name, old) for old in made.under_old_names())
        return made


def _class_name(owner: type[Module]) -> str:
    if not owner.name:
        wanted = 'Module("billing")' if owner is Module else f'a class attribute: name = "{owner.__name__.lower()}"'
        raise DeclarationError(f"{owner.__name__} has no name; write {wanted}")
    return owner.name


def _check_defaults(name: str, defaults: object) -> JobPolicy:
    if defaults is None:
        return JobPolicy()
    if not isinstance(defaults, JobPolicy):
        raise DeclarationError(f'module {name}: defaults must be a JobPolicy(timeout="2m", …), not {defaults!r}')
    if defaults.aliases:
        raise DeclarationError(f"module {name}: aliases belong to one job, not to the defaults; move them there")
    return defaults


def _check_lifespan(name: str, lifespan: Lifespan | None) -> Lifespan | None:
    if lifespan is not None and not callable(lifespan):
        raise DeclarationError(
            f"module {name}: lifespan must be a function that opens it anew for each host, not {lifespan!r}; write "
            "`async def lifespan(): yield state` and pass it without calling it"
        )
    return lifespan


def _methods_of(owner: type[Module]) -> dict[str, JobMethod[Any]]:
    """Job methods by attribute, inherited ones first, without those a subclass replaced by something else."""
    found: dict[str, Any] = {}
    for each in reversed(owner.__mro__):
        found.update(vars(each))
    return {name: value for name, value in found.items() if isinstance(value, JobMethod)}


def _named(owner: type[Module], method: JobMethod[Any]) -> Named:
    aliases = tuple(method.options.get("aliases", ()))
    return Named(JobAddress(owner.name or owner.__name__, method.name), aliases, method.shape.where)


def _refuse_twice(name: str, earlier: JobMethod[Any] | None, where: str) -> None:
    if earlier is not None:
        raise DuplicateJobError(
            f"job {name} is declared twice, at {earlier.shape.where} and {where}; give one of them another name"
        )


def _overrides(module: Module, hook: str) -> bool:
    return getattr(type(module), hook) is not getattr(Module, hook)


def _add_hook(hooks: list[Hook], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    match args:
        case (hook,) if not kwargs and callable(hook):
            hooks.append(hook)
            return hook
        case _:
            raise DeclarationError("a hook is a function; write @module.before_attempt without parentheses above it")
