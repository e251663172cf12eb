"""A declared job: still the function it was, plus what hosts and clients need to know of it, plus `trigger`.

`Job[P, R]`: P is the payload type (`None` for a handler without one), R what the handler returns.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar, Unpack, cast, overload, runtime_checkable

from jetjobs._core.descriptors import JobDescriptor
from jetjobs._core.digests import digest_of
from jetjobs._core.durations import format_duration
from jetjobs._core.models import JobAddress
from jetjobs._core.plain import what_it_is
from jetjobs._core.policy import JobPolicy
from jetjobs._core.renames import Named, origin, served_names
from jetjobs._core.retention import describe_retention
from jetjobs._core.tokens import check_address, split_address
from jetjobs._core.triggers import AnyTrigger
from jetjobs.context import JobContext
from jetjobs.errors import AmbiguousHostError, JobsNotHosted, PayloadInvalidError
from jetjobs.handlers import HandlerShape
from jetjobs.triggered import BlockingTriggeredRun, TriggeredRun, TriggerOptions

P = TypeVar("P", contravariant=True)  # noqa: PLC0105 - users read Job[P, R] in hovers and docs
R = TypeVar("R", covariant=True)  # noqa: PLC0105

B = TypeVar("B")


class Binding(Protocol):
    """A host or client that can trigger jobs for a project."""

    @property
    def project(self) -> str:
        """The project it triggers in."""
        ...


@runtime_checkable
class JobBinding(Binding, Protocol):
    """One for callers that await."""

    async def trigger(self, job: Job[Any, Any], payload: Any, **options: Unpack[TriggerOptions]) -> Any:
        """Ask for a run of `job`; the payload is already checked against the handler."""
        ...


@runtime_checkable
class BlockingBinding(Binding, Protocol):
    """One for threads that block."""

    def trigger_blocking(self, job: Job[Any, Any], payload: Any, **options: Unpack[TriggerOptions]) -> Any:
        """The same, for a thread without a running loop."""
        ...


AnyBinding = JobBinding | BlockingBinding


class Job(Generic[P, R]):
    """A function and how it is run. Call it as the function it is, or `trigger` a run of it.

    Made by `@module.job`, `@job` and `expose_job`. `P` is the payload's type, `R` what the handler returns; calling
    the job calls the handler, so a unit test needs no broker.

    Attributes:
        address: Module and job, `str(address)` is `module.job`.
        handler: The function itself.
        policy: Its limits, retries and times.
        triggers: What starts it by itself.
        description: What it says about itself; the docstring's first line unless given.
    """

    is_async: bool = False

    def __init__(
        self,
        address: JobAddress,
        handler: Callable[..., Any],
        shape: HandlerShape,
        *,
        policy: JobPolicy,
        triggers: tuple[AnyTrigger, ...] = (),
        description: str | None = None,
    ) -> None:
        self.address = address
        self.handler = handler
        self.policy = policy
        self.triggers = triggers
        self.takes_payload = shape.takes_payload
        self.payload_required = shape.payload_required
        self.description = shape.description if description is None else description
        self.where = shape.where
        self._shape = shape
        self._parses = shape.payload_type is not None or not (shape.takes_payload and shape.payload_required)
        self._bindings: tuple[JobBinding, ...] = ()
        self._blocking: tuple[BlockingBinding, ...] = ()
        self.now_called: Job[P, R] | None = None  # where this is an old name: the job as it is declared
        # Not its attributes: one called `policy` would replace ours.
        functools.update_wrapper(cast("Callable[..., Any]", self), handler, updated=())

    @property
    def name(self) -> str:
        """Name within the module."""
        return self.address.job

    @property
    def module_name(self) -> str:
        """Name of the module."""
        return self.address.module

    @property
    def named(self) -> Named:
        """Its names and where it is declared."""
        return Named(self.address, self.policy.aliases, self.where)

    @property
    def origin(self) -> JobAddress:
        """The name that its schedules and event triggers carry: its oldest."""
        return origin(self.address, self.policy.aliases)

    def under_old_names(self) -> tuple[Job[P, R], ...]:
        """This job once more for each of its aliases, under that name: what is triggered so stays so."""
        return tuple(self._called(address) for address in served_names(self.address, self.policy.aliases)[1:])

    def _called(self, address: JobAddress) -> Job[P, R]:
        made = copy.copy(self)
        made.address = address
        made.policy = self.policy.with_options({"aliases": ()})
        made.triggers = ()
        made.now_called = self
        return made

    @property
    def payload_schema(self) -> Mapping[str, Any] | None:
        """JSON schema of the payload type; `None` when there is no type, or no schema of it."""
        declared = self._shape.payload_type
        return None if declared is None else declared.schema

    @property
    def payload_schema_digest(self) -> str | None:
        """Tells two schemas apart; travels with each trigger."""
        declared = self._shape.payload_type
        return None if declared is None else declared.digest

    def parse_payload(self, value: Any) -> Any:
        """The payload as the handler gets it, from its decoded form. A handler without payload ignores what came.

        Raises:
            PayloadInvalidError: it doesn't fit; names the fields, as in `b: Field required`.
        """
        return self._shape.parse(value, self.address) if self._parses else value

    def check_payload(self, value: Any) -> Any:
        """The same for a caller, who is also told when the handler takes no payload, or not what is stored of it."""
        if value is not None and not self.takes_payload:
            raise PayloadInvalidError(
                f"{self.address} takes no payload, but was given {what_it_is(value)}; "
                f"leave it out, or add a parameter to the handler ({self.where})"
            )
        parsed = self.parse_payload(value)
        self._shape.check_stored(value, self.address)
        return parsed

    def invoke(self, ctx: JobContext[Any], payload: Any) -> Any:
        """Call the handler: a coroutine to await when `is_async`, else its result."""
        return self.handler(ctx, payload) if self.takes_payload else self.handler(ctx)

    def descriptor(self, version: str | None = None, host_id: str | None = None) -> JobDescriptor:
        """What a host publishes about the job. `digest` covers the declaration, not the host or version."""
        policy = self.policy
        triggers = tuple(trigger.describe(self.origin) for trigger in self.triggers)
        said = (self.description, _spoken(policy), self.payload_schema, self.takes_payload, triggers)
        now_called = None if self.now_called is None else self.now_called.name
        return JobDescriptor(
            module=self.address.module,
            job=self.address.job,
            description=self.description,
            max_concurrency=policy.max_concurrency,
            max_attempts=policy.max_attempts,
            timeout=policy.timeout,
            payload_schema=self.payload_schema,
            payload_schema_digest=self.payload_schema_digest,
            takes_payload=self.takes_payload,
            triggers=triggers,
            retention=None if policy.retention is None else describe_retention(policy.retention),
            redact=policy.redact,
            now_called=now_called,
            version=version,
            host_id=host_id,
            digest=digest_of(said if now_called is None else (*said, now_called)),
        )

    def bind(self, binding: AnyBinding) -> None:
        """Let `trigger` or `trigger_blocking` go through this host or client; the last one wins within a project."""
        self.unbind(binding)
        if isinstance(binding, JobBinding):
            self._bindings = (*self._bindings, binding)
        if isinstance(binding, BlockingBinding):
            self._blocking = (*self._blocking, binding)

    def unbind(self, binding: AnyBinding) -> None:
        """Undo `bind`; harmless when it isn't bound."""
        self._bindings = tuple(each for each in self._bindings if each is not binding)
        self._blocking = tuple(each for each in self._blocking if each is not binding)

    @overload
    async def trigger(
        self: Job[None, R], payload: None = None, **options: Unpack[TriggerOptions]
    ) -> TriggeredRun[R]: ...
    @overload
    async def trigger(self, payload: P, **options: Unpack[TriggerOptions]) -> TriggeredRun[R]: ...
    async def trigger(self, payload: Any = None, **options: Unpack[TriggerOptions]) -> TriggeredRun[R]:
        """Ask for a run through the host or client this job is bound to; see `TriggerOptions`.

        Raises:
            PayloadInvalidError: the payload doesn't fit the handler.
            JobsNotHosted: the job is bound to nothing.
            AmbiguousHostError: it is bound to several projects.
        """
        binding = self._one_of(self._bindings)
        self.check_payload(payload)
        return cast("TriggeredRun[R]", await binding.trigger(self, payload, **options))

    @overload
    def trigger_blocking(
        self: Job[None, R], payload: None = None, **options: Unpack[TriggerOptions]
    ) -> BlockingTriggeredRun[R]: ...
    @overload
    def trigger_blocking(self, payload: P, **options: Unpack[TriggerOptions]) -> BlockingTriggeredRun[R]: ...
    def trigger_blocking(self, payload: Any = None, **options: Unpack[TriggerOptions]) -> BlockingTriggeredRun[R]:
        """The same for a thread that may block: a plain handler's, a web server's, a script's.

        Goes through a host or async client on its loop, or through a blocking client.

        Raises:
            BlockingCallError: this thread's event loop is running.
            PayloadInvalidError, JobsNotHosted, AmbiguousHostError: as `trigger` does.
        """
        binding = self._one_of(self._blocking)
        self.check_payload(payload)
        return cast("BlockingTriggeredRun[R]", binding.trigger_blocking(self, payload, **options))

    def _one_of(self, bindings: tuple[B, ...]) -> B:
        if not bindings:
            if self._blocking:
                raise JobsNotHosted(
                    f"{self.address} is bound to a blocking client only; write job.trigger_blocking(…) where no event "
                    "loop runs, or bind it to an async one: async with JobClient(…, modules=[module])"
                )
            raise JobsNotHosted(
                f"{self.address} is bound to no host or client, so there is no broker to trigger it on; "
                "write JobHost([module], …) or JobClient(…, modules=[module]), and trigger it while that is open"
            )
        projects = sorted({binding.project for binding in (*self._bindings, *self._blocking)})
        if len(projects) > 1:
            raise AmbiguousHostError(
                f"{self.address} is bound to the projects {' and '.join(projects)}; "
                "write client.get_job(job).trigger(…) with the client of the one you mean"
            )
        return bindings[-1]

    def __repr__(self) -> str:
        return f"<Job {self.address} ({self.where})>"


class AsyncJob(Job[P, R]):
    """A job whose handler is an `async def`."""

    is_async = True

    @overload
    def __call__(self: AsyncJob[None, R], ctx: JobContext[Any], /) -> Coroutine[Any, Any, R]: ...
    @overload
    def __call__(self, ctx: JobContext[Any], payload: P, /) -> Coroutine[Any, Any, R]: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function does when it is called."""
        return self.handler(*args, **kwargs)


class PlainJob(Job[P, R]):
    """A job whose handler is a `def`; a host runs it in a thread or process of its own."""

    @overload
    def __call__(self: PlainJob[None, R], ctx: JobContext[Any], /) -> R: ...
    @overload
    def __call__(self, ctx: JobContext[Any], payload: P, /) -> R: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the function does when it is called."""
        return self.handler(*args, **kwargs)


def address_of(job: object) -> JobAddress:
    """The job that somebody means: a `Job`, by its oldest name; two names; or `"module.job"`.

    The oldest, because a host of an older release must come to the same one.

    Raises:
        InvalidNameError: no job can be called so.
    """
    if isinstance(job, Job):
        return cast("Job[Any, Any]", job).origin
    if isinstance(job, tuple) and len(names := cast("tuple[object, ...]", job)) == 2:
        return check_address(*names)
    return split_address(cast("object", job))


def _spoken(policy: JobPolicy) -> dict[str, Any]:
    """The policy as texts, so that its digest is the same in every process."""
    return {name: _text(getattr(policy, name)) for name in JobPolicy.__dataclass_fields__}


def _text(value: object) -> Any:
    match value:
        case timedelta():
            return format_duration(value)
        case type():
            return f"{value.__module__}.{value.__qualname__}"
        case tuple():
            return [_text(each) for each in cast("tuple[object, ...]", value)]
        case Mapping():
            return {str(key): _text(each) for key, each in cast("Mapping[object, object]", value).items()}
        case _:
            return value if value is None or isinstance(value, (str, int, float)) else repr(value)
