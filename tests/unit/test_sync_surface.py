"""The blocking client has the async one's surface: the same names, called the same way, and none of them on a loop."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jetjobs
from jetjobs import JobContext, Module, TriggerRequest
from jetjobs import client as awaited
from jetjobs import sync as blocking
from jetjobs._client import hosts, jobs, runs
from jetjobs.errors import BlockingCallError
from jetjobs.job import Job
from jetjobs.triggered import BlockingTriggeredRun, TriggeredRun

PAIRS: list[tuple[type[Any], type[Any]]] = [
    (blocking.JobClient, awaited.JobClient),
    (blocking.JobHandle, awaited.JobHandle),
    (blocking.JobRun, awaited.JobRun),
    (blocking.RunsView, runs.RunsView),
    (blocking.JobsView, jobs.JobsView),
    (blocking.HostsView, hosts.HostsView),
    (BlockingTriggeredRun, TriggeredRun),
]
# Made and used by the clients themselves; nothing a caller writes.
INSIDE = {"of", "over", "trigger_checked", "trigger_named", "publisher", "run_of", "check"}
TWINS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (Job.trigger_blocking, Job.trigger),
    (Module.trigger_job, Module.atrigger_job),
    (JobContext.trigger_child_blocking, JobContext.trigger_child),
]


def members(owner: type[Any]) -> dict[str, Any]:
    """What a caller may write, as it stands in the class."""
    names = {name for name in dir(owner) if not name.startswith("_")} - INSIDE
    return {name: inspect.getattr_static(owner, name) for name in names}


def called(owner: type[Any], name: str) -> tuple[list[tuple[str, Any, Any, str]], str]:
    """How it is called: each parameter's name, kind, default and type; and what it gives."""
    signature = inspect.signature(getattr(owner, name))
    taken = [(each.name, each.kind, each.default, str(each.annotation)) for each in signature.parameters.values()]
    return taken[1:], str(signature.return_annotation).replace("AsyncIterator", "Iterator")


@pytest.mark.parametrize("twin,original", PAIRS, ids=lambda owner: f"{owner.__module__}.{owner.__name__}")
def test_the_same_names_called_the_same_way(twin: type[Any], original: type[Any]) -> None:
    mine, wanted = members(twin), members(original)
    assert mine.keys() == wanted.keys(), "a blocking twin is one line: name = Blocking(Original.name)"
    for name, member in wanted.items():
        assert isinstance(mine[name], property) is isinstance(member, property), name
        if callable(getattr(original, name)):
            assert called(twin, name) == called(original, name), name


@pytest.mark.parametrize("twin,original", PAIRS, ids=lambda owner: f"{owner.__module__}.{owner.__name__}")
def test_nothing_of_it_is_awaited(twin: type[Any], original: type[Any]) -> None:
    for name in members(original):
        call = getattr(twin, name)
        assert not inspect.iscoroutinefunction(call), name
        assert not inspect.isasyncgenfunction(call), name


@pytest.mark.parametrize("twin,original", TWINS, ids=lambda call: call.__qualname__)
def test_twins_beside_each_other_take_the_same(twin: Callable[..., Any], original: Callable[..., Any]) -> None:
    mine, wanted = inspect.signature(twin), inspect.signature(original)
    assert mine.parameters == wanted.parameters
    assert inspect.iscoroutinefunction(original)
    assert not inspect.iscoroutinefunction(twin)


def test_made_the_same_way_but_of_no_backend() -> None:
    mine, wanted = (dict(inspect.signature(each).parameters) for each in (blocking.JobClient, awaited.JobClient))
    del wanted["backend"]  # ports belong to their loop
    assert mine == wanted
    assert jetjobs.SyncJobClient is blocking.SyncJobClient is blocking.JobClient
    assert (blocking.TriggerRequest, blocking.TriggerError) == (awaited.TriggerRequest, awaited.TriggerError)


# ------------------------------------------------------------------ on a thread whose loop is running

shop = Module("shop")


@shop.job(timeout="5s")
async def add(ctx: JobContext) -> None: ...


GIVEN: dict[str, Any] = {
    "module": "shop",
    "job": "add",
    "run_id": "r1",
    "host_id": "h1",
    "at": 0,
    "max_concurrency": 1,
    "requests": [TriggerRequest("shop.add")],
}
NO_CALL = {"get_job", "run", "close"}  # they ask nobody


def calls(client: blocking.JobClient) -> Iterator[tuple[str, Callable[[], object]]]:
    """Every call of the blocking surface that asks the broker, with what it can't do without."""
    handle, run = client.get_job(add), client.run("shop", "add", "r1")
    for owner in (client, handle, run, client.runs, client.jobs, client.hosts):
        for name in members(type(owner)).keys() - NO_CALL:
            call = getattr(owner, name)
            if callable(call):
                yield f"{type(owner).__name__}.{name}", lambda call=call: begun(call)
    yield "Job.trigger_blocking", add.trigger_blocking
    yield "Module.trigger_job", lambda: shop.trigger_job("add")


def begun(call: Callable[..., Any]) -> object:
    """Call it; of what comes piece by piece take the first."""
    needed = [
        each.name
        for each in inspect.signature(call).parameters.values()
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    given: Any = call(**{name: GIVEN[name] for name in needed})
    return next(given) if inspect.isgenerator(given) else given


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except BlockingCallError as error:
        return "await" in str(error)
    return False


async def test_every_call_is_refused_on_a_running_loop() -> None:
    with blocking.JobClient("nats://127.0.0.1:1", project="shop", modules=[shop]) as client:
        refused = {name: is_refused(call) for name, call in calls(client)}
    assert [name for name, so in refused.items() if not so] == []
    assert len(refused) > 20
