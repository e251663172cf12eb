from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from jetjobs import JobContext, Module
from jetjobs.errors import (
    DeclarationError,
    JobsNotHosted,
    UnknownJobError,
)
from tests.support.handler_contexts import context


class Binding:
    project = "shop"

    async def trigger(self, job: Any, payload: Any, **options: Any) -> Any:
        return (str(job.address), payload, options)


async def plain(ctx: JobContext) -> None: ...


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
    module = Module("billing")

    @module.job
    def send(ctx: JobContext, payload: dict[str, int]) -> None: ...

    module.expose_job("clean", send.handler)
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
