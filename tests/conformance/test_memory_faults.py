"""What a test may do to the broker in memory. That the broker behaves so was measured on a real one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.descriptors import HostPresence
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey, RunRecord, RunStatus
from jetjobs.errors import AnswerUnknown, BrokerError, BrokerUnavailable
from jetjobs.testing import MemoryCluster, memory_backend
from tests.support.worlds import MemoryWorld, Takings

JOB = JobAddress("m", "j")
RUN = RunKey("m", "j", "a")
RECORD = RunRecord("a", "m", "j", RunStatus.RUNNING)


@pytest.fixture
def memory() -> MemoryWorld:
    return MemoryWorld("p")


def trigger(body: bytes = b"a") -> Outgoing:
    return Outgoing(names.trigger_subject("p", RunKey(*JOB, body.decode())), {}, body)


async def consuming(memory: MemoryWorld, allow: int = 5, limit: int = 2):
    backend = memory_backend(memory.cluster, "p")
    taken = Takings(memory)
    await backend.broker.ensure_consumer(JOB, limit)
    consumption = await backend.broker.consume(JOB, taken)
    consumption.allow(allow)
    return backend, taken, consumption


async def test_a_cut_connection_lets_nothing_in_or_out(memory: MemoryWorld):
    backend, taken, _ = await consuming(memory)
    other = memory_backend(memory.cluster, "p")
    heard: list[RunKey] = []
    await backend.broker.hear_cancels(heard.append)
    await backend.broker.answer_asks("h1", lambda _run, _claim: True)
    assert await other.broker.ask_owner("h1", RUN, "c")
    backend.cut()
    assert backend.broker.connected_since is None
    calls = [
        backend.broker.store(trigger()),
        backend.broker.last("jetjobs.p.trigger.>"),
        backend.broker.measure_clock(),
        backend.broker.ring_cancel(RUN),
        backend.runs.create(RECORD),
        backend.payloads.put("a", "in", "x", b"1"),
        backend.catalog.jobs(),
    ]
    for call in calls:
        with pytest.raises(BrokerUnavailable):
            await call
    assert not await backend.broker.ask_owner("h1", RUN, "c")
    assert not await backend.broker.out_for_everybody()
    await other.broker.store(trigger())
    await other.broker.ring_cancel(RUN)
    assert not await other.broker.ask_owner("h1", RUN, "c")
    await memory.rest()
    assert (heard, taken.bodies) == ([], [])

    await memory.clock.advance(3)
    backend.heal()
    assert backend.broker.connected_since == memory.clock.monotonic()
    assert await other.broker.ask_owner("h1", RUN, "c")
    await taken.reach(1)


async def test_a_delivery_under_way_when_the_connection_breaks_comes_again_elsewhere(memory: MemoryWorld):
    backend, taken, _ = await consuming(memory, allow=1)
    other, theirs, _ = await consuming(memory)
    backend.cut()
    await other.broker.store(trigger(b"a"))
    await theirs.reach(1)
    other.cut()
    backend.heal()
    await memory.clock.advance(0.9)
    await taken.reach(0)
    await memory.clock.advance(0.2)
    await taken.reach(1)
    assert (theirs.seen, taken.seen) == ([(b"a", 1)], [(b"a", 2)])


async def test_what_was_on_its_way_into_a_broken_connection_is_allowed_again(memory: MemoryWorld):
    backend, taken, _ = await consuming(memory, allow=1)
    memory.cluster.project("p").stream.store(trigger())  # handed out, not yet arrived
    backend.cut()
    await memory.rest()
    backend.heal()
    await memory.clock.advance(1.1)
    await taken.reach(1)
    assert taken.seen == [(b"a", 2)]


async def test_acks_given_while_cut_leave_after_the_reconnect_and_naks_are_lost(memory: MemoryWorld):
    backend, taken, _ = await consuming(memory, allow=2)
    for body in (b"a", b"b"):
        await backend.broker.store(trigger(body))
    acked, naked = await taken.reach(2)
    backend.cut()
    acked.ack()
    naked.nak()
    with pytest.raises(BrokerUnavailable):
        await naked.renew()
    backend.heal()
    assert await backend.broker.last(trigger(b"a").subject) is None
    assert await backend.broker.last(trigger(b"b").subject) is not None
    consumer = memory.cluster.project("p").consumer(JOB)
    assert consumer.ack_pending == 1


async def test_an_answer_is_unknown_when_the_connection_breaks_before_it(memory: MemoryWorld):
    backend = memory_backend(memory.cluster, "p")
    writing = asyncio.ensure_future(backend.runs.create(RECORD))
    for _ in range(10):
        await asyncio.sleep(0)
        if backend.link.project.runs.get(RUN) is not None:
            break
    assert not writing.done()
    backend.cut()
    with pytest.raises(AnswerUnknown):
        await writing
    backend.heal()
    assert await backend.runs.get(RUN) is not None


async def test_a_stopped_broker_keeps_everything_and_does_what_is_due_when_it_is_back(memory: MemoryWorld):
    backend, taken, _ = await consuming(memory)
    await backend.broker.store(trigger(b"held"))
    await taken.reach(1)
    due = memory.clock.now() + timedelta(seconds=5)
    line = f"@at {due.isoformat()}"
    headers = {"Nats-Schedule": line, "Nats-Schedule-Target": trigger(b"later").subject}
    await backend.broker.store(Outgoing(names.retry_subject("p", RunKey("m", "j", "later"), 1), headers, b"later"))
    await backend.runs.update(RECORD, await backend.runs.create(RECORD), ttl=timedelta(seconds=5))

    memory.cluster.stop()
    assert backend.broker.connected_since is None
    assert await backend.broker.out_for_everybody()
    with pytest.raises(BrokerUnavailable):
        await backend.runs.get(RUN)
    await memory.clock.advance(60)
    assert len(taken) == 1

    memory.cluster.start()
    assert not await backend.broker.out_for_everybody()
    await memory.clock.advance(0.3)
    assert sorted(taken.seen) == [(b"held", 1), (b"held", 2), (b"later", 1)]
    assert await backend.runs.get(RUN) is None
    assert memory.clock.now() - due < timedelta(seconds=60)


async def test_a_connection_cut_during_an_outage_stays_cut(memory: MemoryWorld):
    backend = memory_backend(memory.cluster, "p")
    memory.cluster.stop()
    backend.cut()
    memory.cluster.start()
    assert backend.broker.connected_since is None
    backend.heal()
    assert backend.broker.connected_since is not None


async def test_a_closed_connection_never_comes_back(memory: MemoryWorld):
    backend = memory_backend(memory.cluster, "p")
    await backend.close()
    backend.heal()
    assert backend.broker.connected_since is None


async def test_broker_time_is_known_as_far_as_it_was_measured(memory: MemoryWorld):
    backend = memory_backend(memory.cluster, "p")
    memory.cluster.offset = timedelta(seconds=90)
    assert backend.broker.now() == memory.clock.now()
    assert await backend.broker.measure_clock() == timedelta(seconds=90)
    assert backend.broker.now() == memory.clock.now() + timedelta(seconds=90)
    await backend.broker.store(trigger())
    stored = await backend.broker.last(trigger().subject)
    assert stored is not None
    assert stored.stored_at == memory.cluster.now()


async def test_a_schedule_fires_by_the_broker_s_clock(memory: MemoryWorld):
    backend = memory_backend(memory.cluster, "p")
    memory.cluster.offset = timedelta(seconds=-10)
    due = memory.clock.now()
    headers = {"Nats-Schedule": f"@at {due.isoformat()}", "Nats-Schedule-Target": trigger().subject}
    await backend.broker.store(Outgoing(names.retry_subject("p", RUN, 1), headers))
    await memory.clock.advance(9.9)
    assert await backend.broker.last(trigger().subject) is None
    await memory.clock.advance(0.2)
    assert await backend.broker.last(trigger().subject) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"Nats-Schedule": "@at 2030-01-01 00:00:00", "Nats-Schedule-Target": "jetjobs.p.trigger.m.j.run.a"},
        {"Nats-Schedule": "@at tomorrow", "Nats-Schedule-Target": "jetjobs.p.trigger.m.j.run.a"},
        {"Nats-Schedule": "0 99 * * * *", "Nats-Schedule-Target": "jetjobs.p.trigger.m.j.run.a"},
        {"Nats-Schedule": "@at 2030-01-01T00:00:00Z"},
        {"Nats-Schedule": "@at 2030-01-01T00:00:00Z", "Nats-Schedule-Target": "elsewhere.a"},
        {"Nats-Schedule": "@at 2030-01-01T00:00:00Z", "Nats-Schedule-Target": "jetjobs.p.trigger.>"},
    ],
)
async def test_schedules_that_mean_nothing_are_refused(memory: MemoryWorld, headers: dict[str, str]):
    backend = memory_backend(memory.cluster, "p")
    with pytest.raises(BrokerError):
        await backend.broker.store(Outgoing(names.retry_subject("p", RUN, 1), headers))
    assert await backend.broker.last("jetjobs.p.>") is None


async def test_a_deleted_consumer_delivers_everything_again(memory: MemoryWorld):
    backend, taken, _ = await consuming(memory)
    await backend.broker.store(trigger())
    await taken.reach(1)
    memory.cluster.project("p").consumer(JOB).restart()
    await taken.reach(2)
    assert taken.seen == [(b"a", 1), (b"a", 1)]


async def test_a_job_without_consumer_can_t_be_consumed(memory: MemoryWorld):
    with pytest.raises(BrokerError, match="ensure_consumer"):
        await memory_backend(memory.cluster, "p").broker.consume(JOB, Takings(memory))


async def test_a_stranger_s_subject_is_refused(memory: MemoryWorld):
    with pytest.raises(BrokerError):
        await memory_backend(memory.cluster, "p").broker.store(Outgoing("orders.paid"))


async def test_stopping_gives_back_what_is_on_its_way(memory: MemoryWorld):
    _, taken, consumption = await consuming(memory)
    memory.cluster.project("p").stream.store(trigger())
    await consumption.stop()
    _, theirs, _ = await consuming(memory)
    await theirs.reach(1)
    assert (taken.seen, theirs.seen) == ([], [(b"a", 2)])


async def test_presence_goes_with_the_manual_clock():
    cluster = MemoryCluster()
    backend = memory_backend(cluster)
    at = cluster.clock.now()
    await backend.catalog.say(HostPresence("h1", "box", 1, started_at=at, seen_at=at), timedelta(seconds=45))
    await cluster.clock.advance(44.9)
    assert [presence.host_id for presence in await backend.catalog.hosts()] == ["h1"]
    await cluster.clock.advance(0.2)
    assert list(await backend.catalog.hosts()) == []
