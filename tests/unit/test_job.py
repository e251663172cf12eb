from __future__ import annotations

import inspect
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import Backoff, Cron, Every, Job, JobContext, JobPolicy, JobRetention, Module, OnEvent
from jetjobs._core.models import JobAddress
from jetjobs.errors import AmbiguousHostError, JobsNotHosted, PayloadInvalidError
from tests.support.handler_contexts import context


class Invoice(BaseModel):
    id: int
    email: str


@dataclass
class Asked:
    job: Job[Any, Any]
    payload: Any
    options: dict[str, Any]


class Binding:
    def __init__(self, project: str) -> None:
        self.project = project
        self.asked: list[Asked] = []

    async def trigger(self, job: Job[Any, Any], payload: Any, **options: Any) -> str:
        self.asked.append(Asked(job, payload, options))
        return f"run in {self.project}"


def billing() -> Module:
    return Module("billing")


def declare(**options: Any) -> Any:
    module = Module("billing")

    @module.job(**options)
    async def send(ctx: JobContext, invoice: Invoice) -> str:
        """Send an invoice.

        By mail.
        """
        return f"{ctx.run_id} {invoice.id}"

    return send


def test_a_job_knows_what_it_is() -> None:
    send = declare(timeout="2m", triggers=[OnEvent("orders.paid")])
    assert (send.name, send.module_name, send.address) == ("send", "billing", JobAddress("billing", "send"))
    assert send.policy == JobPolicy(timeout="2m")
    assert send.triggers == (OnEvent("orders.paid"),)
    assert (send.is_async, send.takes_payload, send.payload_required) == (True, True, True)
    assert send.description == "Send an invoice."
    assert send.where.startswith(f"{__file__}:")
    assert repr(send) == f"<Job billing.send ({send.where})>"
    assert declare(description="Other words").description == "Other words"


async def test_a_job_is_still_the_function_it_was() -> None:
    send = declare()
    assert await send(context(), Invoice(id=7, email="x")) == "r 7"
    assert await send(context(), invoice=Invoice(id=7, email="x")) == "r 7"
    assert send.__name__ == "send"
    assert send.__doc__.startswith("Send an invoice.")
    assert list(inspect.signature(send).parameters) == ["ctx", "invoice"]


def test_a_functions_own_attributes_do_not_replace_the_jobs() -> None:
    def marked(ctx: JobContext) -> None: ...

    marked.__dict__.update(policy="mine", address="mine")
    declared = billing().job(marked)
    assert declared.policy == JobPolicy()
    assert declared.address == JobAddress("billing", "marked")


async def test_invoke_calls_the_handler_as_it_wants_to_be_called() -> None:
    module = billing()

    @module.job
    def bare(ctx: JobContext) -> str:
        return ctx.run_id

    send = declare()
    assert await send.invoke(context(), Invoice(id=7, email="x")) == "r 7"
    assert bare.invoke(context(), None) == "r"
    assert not bare.is_async


def test_payloads_are_parsed_for_the_handler() -> None:
    send = declare()
    assert send.parse_payload({"id": 1, "email": "x"}) == Invoice(id=1, email="x")
    with pytest.raises(
        PayloadInvalidError, match=r"payload of billing\.send doesn't fit Invoice: email: Field required"
    ):
        send.parse_payload({"id": 1})
    with pytest.raises(PayloadInvalidError, match="there is none"):
        send.check_payload(None)


def test_a_type_is_named_as_it_was_written() -> None:
    module = billing()

    @module.job
    def many(ctx: JobContext, invoices: dict[str, Invoice] | None) -> None: ...

    with pytest.raises(PayloadInvalidError, match=r"doesn't fit dict\[str, Invoice\] \| None: "):
        many.check_payload(1)


def test_without_a_type_nothing_is_done_to_a_payload() -> None:
    module = billing()

    @module.job
    def free(ctx: JobContext, payload: Any) -> None: ...

    value = {"x": 1}
    assert free.parse_payload(value) is value
    assert free.payload_schema is None
    assert free.payload_schema_digest is None


def test_a_caller_is_told_when_a_job_takes_no_payload_a_host_does_not_mind() -> None:
    module = billing()

    @module.job
    def bare(ctx: JobContext) -> None: ...

    assert bare.parse_payload({"left": "over"}) is None
    assert bare.check_payload(None) is None
    with pytest.raises(
        PayloadInvalidError, match=r"billing\.bare takes no payload, but was given a dict; leave it out"
    ):
        bare.check_payload({})


async def test_trigger_goes_through_the_binding() -> None:
    send, binding = declare(), Binding("shop")
    send.bind(binding)
    invoice = Invoice(id=7, email="x")
    assert await send.trigger(invoice, idempotency_key="k", delay="5m") == "run in shop"
    assert binding.asked == [Asked(send, invoice, {"idempotency_key": "k", "delay": "5m"})]


async def test_a_payload_that_does_not_fit_is_refused_before_the_binding_sees_it() -> None:
    send, binding = declare(), Binding("shop")
    send.bind(binding)
    with pytest.raises(PayloadInvalidError, match="email: Field required"):
        await send.trigger({"id": 7})
    assert binding.asked == []


async def test_an_unbound_job_says_how_to_bind_it() -> None:
    send, binding = declare(), Binding("shop")
    with pytest.raises(
        JobsNotHosted, match=r"billing\.send is bound to no host or client.*write JobHost.*or JobClient"
    ):
        await send.trigger(Invoice(id=7, email="x"))
    send.bind(binding)
    send.unbind(binding)
    send.unbind(binding)
    with pytest.raises(JobsNotHosted, match="bound to no host"):
        await send.trigger(Invoice(id=7, email="x"))


async def test_two_projects_are_ambiguous_and_two_bindings_of_one_are_not() -> None:
    send, host, client, other = declare(), Binding("shop"), Binding("shop"), Binding("lab")
    invoice = Invoice(id=7, email="x")
    for binding in (host, client, host):
        send.bind(binding)
    await send.trigger(invoice)
    assert (len(host.asked), len(client.asked)) == (1, 0)
    send.bind(other)
    with pytest.raises(AmbiguousHostError, match=r"bound to the projects lab and shop; write client\.get_job"):
        await send.trigger(invoice)
    send.unbind(other)
    await send.trigger(invoice)
    assert len(host.asked) == 2


def test_the_descriptor_tells_others_what_they_need() -> None:
    send = declare(max_concurrency=8, max_attempts=5, timeout="2m", triggers=[OnEvent("orders.paid")])
    said = send.descriptor("1.2", "host-1")
    assert (said.module, said.job, said.description) == ("billing", "send", "Send an invoice.")
    assert (said.max_concurrency, said.max_attempts, said.timeout) == (8, 5, timedelta(minutes=2))
    assert said.payload_schema == Invoice.model_json_schema()
    assert said.payload_schema_digest == send.payload_schema_digest
    assert said.takes_payload
    assert [trigger["kind"] for trigger in said.triggers] == ["event"]
    assert (said.version, said.host_id) == ("1.2", "host-1")
    assert len(said.digest) == 16


def test_equal_declarations_have_equal_digests_whatever_host_or_version() -> None:
    assert declare().descriptor("1", "a").digest == declare().descriptor("2", "b").digest


@pytest.mark.parametrize(
    "options",
    [
        {"max_concurrency": 2},
        {"timeout": "1m"},
        {"backoff": Backoff("2s")},
        {"retry_on": (OSError,)},
        {"expires_in": {"event": "1h"}},
        {"retention": JobRetention(finished="1d")},
        {"redact": ["email"]},
        {"description": "Other"},
        {"triggers": [OnEvent("orders.paid")]},
        {"triggers": [Every("5m", payload={"id": 1, "email": "x"})]},
        {"triggers": [Cron("@daily", payload={"id": 1, "email": "x"})]},
    ],
)
def test_another_declaration_has_another_digest(options: dict[str, Any]) -> None:
    assert declare(**options).descriptor().digest != declare().descriptor().digest
