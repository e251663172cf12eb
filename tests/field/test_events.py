"""Events heard by several hosts: an id is one run, equal bodies without ids are as many as were sent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from jetjobs import JobContext, Module, OnEvent, RunStatus
from tests.support.events import Orders, jetstream_of, runs_of, thanks
from tests.support.field import Field
from tests.support.links import until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("kept", [False, True], ids=["core", "stream"])
async def test_b37_ids_sent_twice_to_three_hosts_and_bodies_without_ids(field: Field, *, kept: bool):
    """From a stream, too, whose own window forgets the ids at once."""
    orders = Orders(field)
    if kept:
        await orders.add_stream(duplicate_window=0.1)
    for _ in range(3):
        await field.host(thanks(orders.trigger(stream=orders.stream if kept else None)))
    for number in range(10):
        await orders.publish({"n": number}, Nats_Msg_Id=f"o-{number}")
    if kept:  # the broker takes each id again, so that our rule is what tells
        await forgotten(orders)
    for number in range(10):
        await orders.publish({"n": number}, Nats_Msg_Id=f"o-{number}")
    await orders.publish({"n": -1}, times=5)
    runs = await runs_of(field, 15)
    assert all(run.status is RunStatus.SUCCEEDED for run in runs)
    assert sorted(run.result["n"] for run in runs) == [-1] * 5 + list(range(10))
    if kept:
        assert (await jetstream_of(field).stream_info(orders.stream)).state.last_seq >= 27


async def forgotten(orders: Orders) -> None:
    """Return once the broker takes an id of before as a new message."""
    jetstream = jetstream_of(orders.field)
    subject = f"{orders.prefix}.other.unheard"
    headers = {"Nats-Msg-Id": "probe"}
    await jetstream.publish(subject, b"", headers=headers)
    while (await jetstream.publish(subject, b"", headers=headers)).duplicate:
        pass


async def test_b37_a_job_hears_no_ends_of_its_own_runs(field: Field):
    """Each run would ask for another, without end. It hears those of all others, whatever pattern takes its own too."""
    heard: list[str] = []
    listening: dict[str, OnEvent] = {
        "any": OnEvent(f"jetjobs.{field.project}.events.>"),
        "every": OnEvent("jetjobs.*.events.*.m.work.*"),
        "own": OnEvent(f"jetjobs.{field.project}.events.SUCCEEDED.m.own.*"),
    }
    module = Module("m")
    for job, trigger in listening.items():
        module.expose_job(job, note_to(heard), triggers=[trigger], timeout="5s")
    module.expose_job("work", note_to(heard), timeout="5s")
    await field.host(module)
    for _ in range(3):
        assert (await (await field.client.get_job("m.work").trigger()).wait(5)).status is RunStatus.SUCCEEDED
        assert (await (await field.client.get_job("m.own").trigger()).wait(5)).status is RunStatus.SUCCEEDED
    wanted = {"work": 3, "own": 3, "every": 3, "any": 9}  # any: of work, own and every
    await until(lambda: all(heard.count(job) >= runs for job, runs in wanted.items()))
    for job in wanted:
        await field.retired(f"m.{job}")
    assert {job: heard.count(job) for job in wanted} == wanted


async def test_b37_a_renamed_job_hears_no_ends_of_its_own_runs_under_its_new_name(field: Field):
    """What events ask for carries its oldest name; what is asked for by hand, the one that was called."""
    heard: list[str] = []
    module = Module("m")
    trigger = OnEvent(f"jetjobs.{field.project}.events.SUCCEEDED.>")
    module.expose_job("new", note_to(heard), aliases=("old",), triggers=[trigger], timeout="5s")
    module.expose_job("work", note_to(heard), timeout="5s")
    await field.host(module)
    for job in ("m.new", "m.old", "m.work"):
        assert (await (await field.client.get_job(job).trigger()).wait(5)).status is RunStatus.SUCCEEDED
    await until(lambda: heard.count("work") == 1 and len(heard) >= 4)
    for job in ("m.new", "m.old"):
        await field.retired(job)
    assert len(heard) == 4, "by hand three, and one for the end of the other job's"


def note_to(heard: list[str]) -> Callable[..., Awaitable[None]]:
    async def note(ctx: JobContext[Any], payload: Any = None) -> None:
        heard.append(ctx.job)

    return note
