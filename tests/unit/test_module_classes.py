from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel

from jetjobs import JobContext, JobPolicy, Module, job
from jetjobs.errors import (
    ConfigError,
    DeclarationError,
    DuplicateJobError,
    InvalidNameError,
)
from tests.support.handler_contexts import context


class Invoice(BaseModel):
    id: int


async def plain(ctx: JobContext) -> None: ...


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
        DuplicateJobError,
        match=r"send is declared twice, at .*test_module_classes.py:\d+ and .*test_module_classes.py:\d+",
    ):

        class Twice(Module):  # pyright: ignore[reportUnusedClass]
            name = "twice"

            @job
            async def send(self, ctx: JobContext) -> None: ...  # pyright: ignore[reportRedeclaration]

            @job
            async def send(self, ctx: JobContext) -> None: ...  # noqa: F811

    with pytest.raises(DuplicateJobError, match=r"job shop\.send is declared twice, .* as an alias of shop\.post at "):

        class Renamed(Module):  # pyright: ignore[reportUnusedClass]
            name = "shop"

            @job
            def send(self, ctx: JobContext) -> None: ...

            @job(aliases=["send"])
            def post(self, ctx: JobContext) -> None: ...

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
