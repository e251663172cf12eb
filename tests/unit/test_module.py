from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import Cron, Every, JobContext, JobPolicy, Module, OnEvent, job
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs.context import Journal
from jetjobs.errors import (
    ConfigError,
    DeclarationError,
    DuplicateJobError,
    InvalidNameError,
    JobsNotHosted,
    PayloadError,
    ScheduleError,
    UnknownJobError,
)


class Invoice(BaseModel):
    id: int


class Binding:
    project = "shop"

    async def trigger(self, job: Any, payload: Any, **options: Any) -> Any:
        return (str(job.address), payload, options)


def context() -> JobContext[Any]:
    record = RunRecord(run_id="r", module="billing", job="send", status=RunStatus.RUNNING)
    return JobContext(record, payload=None, state=None, journal=Journal(), clock_now=lambda: datetime.now(UTC))


async def plain(ctx: JobContext) -> None: ...


def test_jobs_are_declared_with_and_without_parentheses() -> None:
    module = Module("billing.invoices")

    @module.job
    async def one(ctx: JobContext) -> None: ...

    @module.job()
    def two(ctx: JobContext) -> None: ...

    @module.job(name="third", timeout="2m")
    def three(ctx: JobContext) -> None: ...

    assert dict(module.jobs) == {"one": one, "two": two, "third": three}
    assert str(three.address) == "billing.invoices.third"
    assert repr(module) == "<Module 'billing.invoices': one, two, third>"
    assert repr(Module("x")) == "<Module 'x': no jobs>"
    with pytest.raises(TypeError):
        module.jobs["one"] = two  # pyright: ignore[reportIndexIssue]


def test_options_come_on_top_of_the_modules_defaults() -> None:
    module = Module("billing", defaults=JobPolicy(timeout="2m", max_attempts=3))
    exposed = module.expose_job("send", plain, max_attempts=5)
    assert (exposed.policy.timeout, exposed.policy.max_attempts) == (timedelta(minutes=2), 5)
    assert module.expose_job("other", plain).policy is module.defaults


def test_a_function_or_bound_method_is_exposed_without_a_decorator() -> None:
    class Service:
        async def send(self, _ctx: JobContext, invoice: Invoice) -> int:
            return invoice.id

    module = Module("billing")
    service = Service()
    exposed = module.expose_job("send", service.send, triggers=[OnEvent("orders.paid")])
    assert exposed.handler == service.send
    assert exposed.parse_payload({"id": 1}) == Invoice(id=1)
    again = Module("other").expose_job("send", exposed)
    assert again.handler == service.send


@pytest.mark.parametrize("name", ["a..b", ".a", "a b", "a:b", "Grüße", "*", ">", "$JS", "a\nb", "", "x" * 300, 5])
def test_module_names_that_are_refused(name: Any) -> None:
    with pytest.raises(InvalidNameError):
        Module(name)


@pytest.mark.parametrize("name", ["a.b", "", "a b", "日本", "*", "x" * 250, 5])
def test_job_names_that_are_refused(name: Any) -> None:
    with pytest.raises(InvalidNameError):
        Module("billing").expose_job(name, plain)


def test_a_module_without_name_says_what_to_write() -> None:
    with pytest.raises(DeclarationError, match=r'Module has no name; write Module\("billing"\)'):
        Module()

    class Billing(Module): ...

    with pytest.raises(DeclarationError, match='Billing has no name; write a class attribute: name = "billing"'):
        Billing()
    assert Billing("named").name == "named"


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"max_concurrency": 0}, ConfigError, r"job billing\.plain \(.*test_module.py:\d+\): max_concurrency must be"),
        ({"retry": 3}, ConfigError, r"job billing\.plain .*: retry is no policy of a job; there are"),
        ({"timeout": "25d"}, ConfigError, r"job billing\.plain .*: expires_in 7 days.* is over max_age"),
        ({"aliases": ["a.b"]}, InvalidNameError, r"job billing\.plain .*a\.b"),
        ({"aliases": ["plain"]}, DeclarationError, r"aliases=\('plain',\) holds the job's own name; leave plain out"),
        ({"triggers": [Every]}, DeclarationError, r"job billing\.plain .*: triggers must be Cron, Every or OnEvent"),
        ({"triggers": [Every("1s"), Every("2s")]}, DeclarationError, 'two triggers are named "every"'),
        ({"isolation": "process"}, DeclarationError, r"job billing\.plain .*isolation='process' is for `def`"),
        ({"isolation": "thread"}, DeclarationError, "leave isolation out or write `def`"),
    ],
)
def test_declarations_that_are_refused_name_job_place_and_value(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    module = Module("billing")
    with pytest.raises(error, match=message):
        module.job(**options)(plain)
    assert not module.jobs


def test_isolation_as_a_default_is_for_the_plain_handlers() -> None:
    module = Module("billing", defaults=JobPolicy(isolation="process"))
    assert module.job(plain).policy.isolation == "process"


@pytest.mark.parametrize(
    "defaults, message",
    [
        ({"timeout": "2m"}, "module billing: defaults must be a JobPolicy"),
        (JobPolicy(aliases=["old"]), "module billing: aliases belong to one job"),
    ],
)
def test_defaults_that_are_refused(defaults: Any, message: str) -> None:
    with pytest.raises(DeclarationError, match=message):
        Module("billing", defaults=defaults)


def test_what_is_no_decorator_call_is_refused() -> None:
    module = Module("billing")
    decorate: Any = module.job
    with pytest.raises(DeclarationError, match=r'@module.job takes keywords only; write @module.job\(name="send"'):
        decorate("send")
    with pytest.raises(DeclarationError, match="is a job already; expose its function"):
        decorate(module.job(plain))
    with pytest.raises(DeclarationError, match="a handler must be a function"):
        decorate(5)


def test_one_name_twice_names_both_places() -> None:
    module = Module("billing")

    @module.job
    def send(ctx: JobContext) -> None: ...

    with pytest.raises(DuplicateJobError) as caught:

        @module.job(name="send")
        def other(ctx: JobContext) -> None: ...

    places = [part.rstrip(";,") for part in str(caught.value).split() if "test_module.py:" in part]
    assert len(set(places)) == 2
    assert places[0] == send.where
    assert str(caught.value).startswith("job billing.send is declared twice, at ")


def test_an_old_name_is_a_name_too() -> None:
    module = Module("billing")
    module.expose_job("send", plain, aliases=["mail"])
    with pytest.raises(DuplicateJobError, match=r"job billing\.mail is declared twice"):
        module.expose_job("mail", plain)
    with pytest.raises(DuplicateJobError, match=r"job billing\.send is declared twice"):
        module.expose_job("post", plain, aliases=["send"])
    assert list(module.jobs) == ["send"]


@pytest.mark.parametrize(
    "trigger, message",
    [
        (
            Cron("@daily"),
            r"schedule billing\.send/cron .* could never run: .*there is none; write Cron\(…, payload=…\)",
        ),
        (Every("5m", payload={"idd": 1}), r"schedule billing\.send/every .*id: Field required; write Every"),
    ],
)
def test_a_schedule_whose_payload_cannot_fit_is_refused(trigger: Any, message: str) -> None:
    module = Module("billing")
    with pytest.raises(DeclarationError, match=message):

        @module.job(triggers=[trigger])
        def send(ctx: JobContext, invoice: Invoice) -> None: ...


def test_a_schedule_with_payload_for_a_handler_without_is_refused() -> None:
    with pytest.raises(DeclarationError, match=r"billing\.plain takes no payload, but was given a dict"):
        Module("billing").job(triggers=[Every("5m", payload={"id": 1})])(plain)


def test_a_schedule_whose_payload_fits_is_kept() -> None:
    module = Module("billing")

    @module.job(triggers=[Every("5m", payload=Invoice(id=1)), Cron("@daily", payload={"id": "7"}), OnEvent("a.b")])
    def send(ctx: JobContext, invoice: Invoice) -> None: ...

    @module.job(triggers=[Every("5m")])
    def sweep(ctx: JobContext, limit: int = 5) -> None: ...

    assert len(send.triggers) == 3
    assert len(sweep.triggers) == 1


# ------------------------------------------------------------------ class style


class Billing(Module):
    name = "billing"

    def __init__(self, sender: str) -> None:
        super().__init__(defaults=JobPolicy(timeout="2m"))
        self.sender = sender

    @job
    async def send(self, _ctx: JobContext, invoice: Invoice) -> str:
        """Send one."""
        return f"{self.sender} sends {invoice.id}"

    @job(name="clean", max_attempts=3)
    def sweep(self, _ctx: JobContext) -> str:
        return self.sender


async def test_each_instance_has_jobs_of_its_own() -> None:
    one, two = Billing("one"), Billing("two")
    assert one.send is one.send
    assert one.send is not two.send
    assert dict(one.jobs) == {"send": one.send, "clean": one.sweep}
    assert await one.send(context(), Invoice(id=7)) == "one sends 7"
    assert await two.send.invoke(context(), Invoice(id=7)) == "two sends 7"
    assert two.sweep(context()) == "two"
    assert (one.sweep.name, one.sweep.policy.max_attempts, one.sweep.policy.timeout) == (
        "clean",
        3,
        timedelta(minutes=2),
    )
    assert one.send.description == "Send one."
    assert one.send.parse_payload({"id": 1}) == Invoice(id=1)
    assert Billing.send.name == "send"


def test_instance_style_jobs_can_be_added_to_a_class() -> None:
    module = Billing("x")
    module.expose_job("more", plain)
    assert list(module.jobs) == ["send", "clean", "more"]
    with pytest.raises(DuplicateJobError):
        module.expose_job("clean", plain)


def test_subclasses_inherit_replace_and_remove_jobs() -> None:
    class Other(Billing):
        name = "other"
        sweep = None  # pyright: ignore[reportAssignmentType]

        @job
        async def send(self, _ctx: JobContext, invoice: Invoice) -> str:
            return f"other {invoice.id}"

    assert {name: each.where for name, each in Other("x").jobs.items()} == {"send": Other.send.shape.where}
    assert str(Other("x").send.address) == "other.send"


def test_a_name_declared_twice_in_a_class_is_refused() -> None:
    with pytest.raises(
        DuplicateJobError, match=r"send is declared twice, at .*test_module.py:\d+ and .*test_module.py:\d+"
    ):

        class Twice(Module):  # pyright: ignore[reportUnusedClass]
            name = "twice"

            @job
            async def send(self, ctx: JobContext) -> None: ...  # pyright: ignore[reportRedeclaration]

            @job
            async def send(self, ctx: JobContext) -> None: ...  # noqa: F811

    with pytest.raises(DuplicateJobError, match="job send is declared twice"):

        class Named(Module):  # pyright: ignore[reportUnusedClass]
            name = "named"

            @job
            async def send(self, ctx: JobContext) -> None: ...

            @job(name="send")
            async def other(self, ctx: JobContext) -> None: ...


def test_class_style_refusals_come_with_the_class() -> None:
    with pytest.raises(ConfigError, match=r"job Bad\.send .*: max_attempts must be a whole number"):

        class Bad(Module):  # pyright: ignore[reportUnusedClass]
            name = "bad"

            @job(max_attempts=0)
            async def send(self, ctx: JobContext) -> None: ...

    with pytest.raises(DeclarationError, match=r"Hiding\.jobs .* hides Module\.jobs; rename the method"):

        class Hiding(Module):  # pyright: ignore[reportUnusedClass]
            name = "hiding"

            @job
            async def jobs(self, ctx: JobContext) -> None: ...  # pyright: ignore

    with pytest.raises(InvalidNameError):

        class Spaced(Module):  # pyright: ignore[reportUnusedClass]
            name = "a b"

    with pytest.raises(InvalidNameError):

        class Dotted(Module):  # pyright: ignore[reportUnusedClass]
            name = "dotted"

            @job(name="a.b")
            async def send(self, ctx: JobContext) -> None: ...

    with pytest.raises(DeclarationError, match="not a staticmethod"):

        class Static(Module):  # pyright: ignore[reportUnusedClass]
            name = "static"

            @job  # pyright: ignore
            @staticmethod
            async def send(ctx: JobContext) -> None: ...


def test_job_outside_of_a_class_is_refused() -> None:
    decorate: Any = job
    with pytest.raises(
        DeclarationError, match=r"@job is for methods of a `class …\(Module\)`, but plain .* is no method"
    ):
        decorate(plain)
    with pytest.raises(DeclarationError, match="@job takes keywords only"):
        decorate("send")
    with pytest.raises(DeclarationError, match="is a job already"):
        decorate(Billing.send)


def test_a_class_that_is_no_module_or_not_set_up_says_so() -> None:
    class Service:
        @job
        async def send(self, ctx: JobContext) -> None: ...

    with pytest.raises(DeclarationError, match=r"send .* was not set up: write `class Service\(Module\)`"):
        _ = Service().send

    class Forgetful(Module):
        name = "forgetful"

        def __init__(self) -> None:
            pass

        @job
        async def send(self, ctx: JobContext) -> None: ...

    with pytest.raises(DeclarationError, match=r"call super\(\).__init__\(\)"):
        _ = Forgetful().send


def test_methods_of_an_ordinary_class_under_a_module_decorator_are_refused() -> None:
    module = Module("billing")
    with pytest.raises(DeclarationError, match="is a method; in `class Billing"):

        class Service:  # pyright: ignore[reportUnusedClass]
            @module.job  # pyright: ignore
            async def send(self) -> None: ...


# ------------------------------------------------------------------ state, hooks, triggering


async def opened(module: Module) -> list[Any]:
    seen: list[Any] = []
    async with module.open_state() as state:
        seen.append(state)
    return seen


async def test_state_comes_from_the_lifespan() -> None:
    ended: list[str] = []

    async def generator() -> AsyncIterator[str]:
        yield "generator"
        ended.append("generator")

    @asynccontextmanager
    async def manager() -> AsyncGenerator[str]:
        yield "manager"
        ended.append("manager")

    assert await opened(Module("a", lifespan=generator)) == ["generator"]
    assert await opened(Module("b", lifespan=manager)) == ["manager"]
    assert await opened(Module("c")) == [None]
    assert ended == ["generator", "manager"]


async def test_a_class_overrides_its_lifespan() -> None:
    class Yields(Module):
        name = "yields"

        async def lifespan(self) -> AsyncIterator[str]:
            yield self.name

    class Returns(Module):
        name = "returns"

        async def lifespan(self) -> str:
            return self.name

    class Manages(Module):
        name = "manages"

        @asynccontextmanager
        async def lifespan(self) -> AsyncGenerator[str]:
            yield self.name

    assert [await opened(each()) for each in (Yields, Returns, Manages)] == [["yields"], ["returns"], ["manages"]]


async def test_a_lifespan_is_opened_anew_each_time() -> None:
    count: list[int] = []

    async def lifespan() -> AsyncIterator[int]:
        count.append(1)
        yield len(count)

    module = Module("a", lifespan=lifespan)
    assert [await opened(module), await opened(module)] == [[1], [2]]


async def test_a_lifespan_sees_what_ends_it() -> None:
    seen: list[BaseException] = []

    async def lifespan() -> AsyncIterator[None]:
        try:
            yield
        except ValueError as error:
            seen.append(error)
            raise

    with pytest.raises(ValueError, match="boom"):
        async with Module("a", lifespan=lifespan).open_state():
            raise ValueError("boom")
    assert [str(error) for error in seen] == ["boom"]


def test_a_lifespan_that_is_already_open_is_refused() -> None:
    @asynccontextmanager
    async def manager() -> AsyncGenerator[None]:
        yield

    wrong: Any = manager
    with pytest.raises(DeclarationError, match=r"module a: lifespan must be a function .*pass it without calling it"):
        Module("a", lifespan=object())  # pyright: ignore[reportArgumentType]
    assert Module("a", lifespan=wrong).name == "a"


async def test_hooks_run_around_attempts() -> None:
    module, said = Module("a"), list[Any]()
    assert not module.has_hooks

    @module.before_attempt
    async def first(ctx: JobContext) -> None:
        said.append(("first", ctx.run_id))

    @module.before_attempt
    def second(ctx: JobContext) -> None:
        said.append(("second", ctx.run_id))

    @module.after_attempt
    def third(_ctx: JobContext, error: BaseException | None) -> None:
        said.append(("third", str(error)))

    @module.after_attempt
    async def fourth(_ctx: JobContext, error: BaseException | None) -> None:
        said.append(("fourth", str(error)))

    assert module.has_hooks
    await module.run_before(context())
    await module.run_after(context(), ValueError("x"))
    assert said == [("first", "r"), ("second", "r"), ("fourth", "x"), ("third", "x")]


async def test_a_class_overrides_its_hooks() -> None:
    said: list[str] = []

    class Hooked(Module):
        name = "hooked"

        async def before_attempt(self, ctx: JobContext) -> None:
            said.append(f"{self.name} {ctx.run_id}")

        def after_attempt(self, _ctx: JobContext, error: BaseException | None) -> None:
            said.append(repr(error))

    module = Hooked()
    await module.run_before(context())
    await module.run_after(context(), None)
    assert said == ["hooked r", "None"]


def test_a_hook_is_a_function() -> None:
    for wrong in ((), (5,), (plain, plain)):
        with pytest.raises(DeclarationError, match=r"a hook is a function; write @module\.before_attempt without"):
            Module("a").before_attempt(*wrong)


async def test_jobs_are_triggered_by_name() -> None:
    module = Billing("x")
    with pytest.raises(JobsNotHosted):
        await module.atrigger_job("send", {"id": 1})
    binding = Binding()
    module.bind(binding)
    found = await module.atrigger_job("send", {"id": 1}, idempotency_key="k")
    assert found == ("billing.send", {"id": 1}, {"idempotency_key": "k"})
    with pytest.raises(UnknownJobError, match=r"module billing has no job 'sent'; did you mean send\?") as caught:
        await module.atrigger_job("sent")
    assert caught.value.close_names == ("send",)
    with pytest.raises(UnknownJobError, match="has no job 'xyz'; there are send, clean"):
        await module.atrigger_job("xyz")
    with pytest.raises(UnknownJobError, match="there are none"):
        await Module("empty").atrigger_job("xyz")
    module.unbind(binding)
    with pytest.raises(JobsNotHosted):
        await module.atrigger_job("send", {"id": 1})


def test_a_refused_payload_or_schedule_is_refused_where_it_is_written() -> None:
    with pytest.raises(PayloadError, match="payload"):
        Every("5m", payload=object())
    with pytest.raises(ScheduleError):
        Cron("nonsense")
