from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import Cron, Every, JobContext, JobPolicy, Module, OnEvent
from jetjobs.errors import (
    ConfigError,
    DeclarationError,
    DuplicateJobError,
    InvalidNameError,
    PayloadError,
    ScheduleError,
)


class Invoice(BaseModel):
    id: int


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
        (
            {"trigger": [Every("1s")]},
            ConfigError,
            r"trigger is no policy .*description, triggers; did you mean triggers\?",
        ),
        ({"queue": "mail"}, ConfigError, r"queue is no policy of a job; there are .* triggers$"),
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
    with pytest.raises(
        DuplicateJobError, match=r"job billing\.mail is declared twice, as an alias of billing\.send at "
    ):
        module.expose_job("mail", plain)
    with pytest.raises(
        DuplicateJobError, match=r"job billing\.send is declared twice, at .* as an alias of billing\.post"
    ):
        module.expose_job("post", plain, aliases=["send"])
    with pytest.raises(DuplicateJobError, match=r"mail is declared twice, as an alias of .*send .* of billing\.post"):
        module.expose_job("post", plain, aliases=["letter", "mail"])
    with pytest.raises(DeclarationError, match=r"aliases=\('a', 'a'\) holds a name twice"):
        module.expose_job("post", plain, aliases=["a", "a"])
    assert list(module.jobs) == ["send"]
    assert list(module.old_names) == ["mail"]


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


def test_a_refused_payload_or_schedule_is_refused_where_it_is_written() -> None:
    with pytest.raises(PayloadError, match="payload"):
        Every("5m", payload=object())
    with pytest.raises(ScheduleError):
        Cron("nonsense")
