from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest

from jetjobs._core import names
from jetjobs._core.messages import Message, Outgoing
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._ports import Backend, Broker
from jetjobs.errors import ProjectNotPrepared, WrongRevision
from tests.support.worlds import World, eventually

SEND = JobAddress("billing.invoices", "send")
RUN = RunKey(*SEND, "r1")
WITHIN = timedelta(seconds=5)


@pytest.fixture
def broker(backend: Backend) -> Broker:
    return backend.broker


def trigger(broker: Broker, run: RunKey = RUN, body: bytes = b"body") -> Outgoing:
    return Outgoing(names.trigger_subject(broker.project, run), {}, body)


def at(instant: datetime) -> str:
    return "@at " + instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def schedule(broker: Broker, instant: datetime, *, run: RunKey = RUN, turn: int = 2, body: bytes = b"body") -> Outgoing:
    headers = {
        "Nats-Schedule": at(instant),
        "Nats-Schedule-Target": names.trigger_subject(broker.project, run),
        "Nats-TTL": "never",
        "Jetjobs-Turn": str(turn),
        "traceparent": "00-abc",
    }
    return Outgoing(names.retry_subject(broker.project, run, turn), headers, body)


async def come(world: World, broker: Broker, subject: str) -> Message:
    return await eventually(world, lambda: broker.last(subject))


async def test_the_messages_of_runs_that_wait(broker: Broker):
    other = RunKey("billing", "send", "r2")
    soon = broker.now() + timedelta(hours=1)
    await broker.store(schedule(broker, soon, run=RunKey(*SEND, "later"), turn=1))
    await broker.store(trigger(broker))
    await broker.store(trigger(broker, other, b""))
    await broker.store(Outgoing(names.tick_subject(broker.project, SEND, "s1"), {}, b"no run of its own"))

    async def waiting(job: JobAddress | None = None, **where: str) -> list[Message]:
        return [message async for message in broker.waiting(job, **where)]

    everything = await waiting()
    assert [message.subject for message in everything] == [
        names.retry_subject(broker.project, RunKey(*SEND, "later"), 1),
        names.trigger_subject(broker.project, RUN),
        names.trigger_subject(broker.project, other),
    ]
    for message in everything:
        last = await broker.last(message.subject)
        assert last is not None
        assert (message.data, message.sequence) == (last.data, last.sequence)
        assert {name: value for name, value in message.headers.items() if name.startswith("Jetjobs-")} == {
            name: value for name, value in last.headers.items() if name.startswith("Jetjobs-")
        }
    assert [message.subject for message in await waiting(other.address)] == [everything[2].subject]
    assert len(await waiting(module=SEND.module)) == 2
    assert await waiting(module="none") == []


def within(headers: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    return wanted.items() <= headers.items()


class TestStore:
    async def test_sequences_rise_and_the_newest_message_is_read_back(self, broker: Broker):
        headers = {"Jetjobs-Turn": "1", "X-Other": "a b"}
        subject = names.trigger_subject(broker.project, RUN)
        first = await broker.store(Outgoing(subject, headers, b"one"))
        second = await broker.store(Outgoing(subject, headers, b"\0\xfftwo"))
        assert second > first > 0
        message = await broker.last(names.trigger_subject(broker.project, RUN))
        assert message is not None
        assert (message.data, message.sequence, message.num_delivered) == (b"\0\xfftwo", second, 0)
        assert message.subject == names.trigger_subject(broker.project, RUN)
        assert within(message.headers, headers)
        assert abs(message.stored_at - broker.now()) < timedelta(seconds=2)
        assert message.stored_at.utcoffset() == timedelta(0)

    async def test_none_are_stored_together_where_two_are_for_one_subject(self, broker: Broker):
        twice = trigger(broker, RunKey(*SEND, "twice"))
        others = [trigger(broker, RunKey(*SEND, name)) for name in ("before", "after")]
        with pytest.raises(WrongRevision):
            await broker.store_together([others[0], twice, others[1], twice], timeout=WITHIN)
        assert [await broker.last(message.subject) for message in (twice, *others)] == [None] * 3

    async def test_nothing_is_stored_together_at_once(self, broker: Broker):
        await broker.store_together([], timeout=WITHIN)

    async def test_what_no_stream_takes_is_not_stored(self, broker: Broker):
        with pytest.raises(ProjectNotPrepared, match="no stream takes"):
            await broker.store(Outgoing("elsewhere.x", {}, b"1"))

    async def test_many_are_stored_together_in_their_order(self, broker: Broker):
        runs = [RunKey(*SEND, f"together-{number}") for number in range(1000)]
        await broker.store_together([trigger(broker, run, run.run_id.encode()) for run in runs], timeout=WITHIN)
        stored = [await broker.last(names.trigger_subject(broker.project, run)) for run in (runs[0], runs[1], runs[-1])]
        assert [message and message.data for message in stored] == [b"together-0", b"together-1", b"together-999"]
        first, second, last = [message.sequence for message in stored if message is not None]
        assert (second, last) == (first + 1, first + 999)

    @pytest.mark.parametrize("taken", [0, 1, 2])
    async def test_none_is_stored_where_one_is_there_already(self, broker: Broker, taken: int):
        runs = [RunKey(*SEND, f"one-of-{number}") for number in range(3)]
        sequence = await broker.store(trigger(broker, runs[taken], b"first"))
        with pytest.raises(WrongRevision):
            await broker.store_together([trigger(broker, run) for run in runs], timeout=WITHIN)
        for run in runs:
            message = await broker.last(names.trigger_subject(broker.project, run))
            assert (message and message.sequence) == (sequence if run is runs[taken] else None)
        await broker.store_together([trigger(broker, run) for run in runs if run is not runs[taken]], timeout=WITHIN)

    async def test_expected_zero_stores_once(self, broker: Broker):
        first = await broker.store(trigger(broker), expected=0)
        with pytest.raises(WrongRevision) as lost:
            await broker.store(trigger(broker), expected=0)
        assert lost.value.actual == first
        await broker.store(trigger(broker, RunKey(*SEND, "r2")), expected=0)

    async def test_one_of_many_equal_triggers_is_stored(self, broker: Broker, world: World):
        other = (await world.connect()).broker
        tries = [(broker, other)[n % 2].store(trigger(broker), expected=0) for n in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(result, int) for result in results) == 1
        assert sum(isinstance(result, WrongRevision) for result in results) == 19

    async def test_an_expected_sequence_is_the_last_one_or_nothing_is_stored(self, broker: Broker):
        first = await broker.store(trigger(broker))
        second = await broker.store(trigger(broker), expected=first)
        for wrong in (first, second + 1, 0):
            with pytest.raises(WrongRevision):
                await broker.store(trigger(broker), expected=wrong)
        message = await broker.last(names.trigger_subject(broker.project, RUN))
        assert message is not None
        assert message.sequence == second

    async def test_the_fence_may_lie_on_another_subject(self, broker: Broker):
        subject = names.trigger_subject(broker.project, RUN)
        sequence = await broker.store(trigger(broker))
        later = broker.now() + timedelta(hours=1)
        stored = await broker.store(schedule(broker, later, turn=2), expected=sequence, expected_on=subject)
        assert stored > sequence
        for wrong in (0, sequence + 1):
            with pytest.raises(WrongRevision):
                await broker.store(schedule(broker, later, turn=3), expected=wrong, expected_on=subject)
        assert await broker.last(names.retry_subject(broker.project, RUN, 3)) is None
        await broker.purge(subject, up_to=sequence)
        with pytest.raises(WrongRevision):
            await broker.store(schedule(broker, later, turn=3), expected=sequence, expected_on=subject)
        await broker.store(schedule(broker, later, turn=3), expected=0, expected_on=subject)


class TestLast:
    async def test_an_empty_subject_has_none(self, broker: Broker):
        assert await broker.last(names.trigger_subject(broker.project, RUN)) is None
        assert await broker.last(names.run_schedules(broker.project, RUN)) is None

    async def test_wildcards_give_the_newest_of_all(self, broker: Broker):
        for job, run_id in (("a", "r1"), ("b", "r1"), ("a", "r2")):
            await broker.store(trigger(broker, RunKey("m", job, run_id), body=f"{job}{run_id}".encode()))
        found = await broker.last(names.trigger_id_pattern(broker.project, "r1"))
        assert found is not None
        assert found.data == b"br1"
        assert found.subject == names.trigger_subject(broker.project, RunKey("m", "b", "r1"))
        later = broker.now() + timedelta(hours=1)
        for turn in (4, 3):
            await broker.store(schedule(broker, later, turn=turn, body=str(turn).encode()))
        for pattern in (
            names.run_schedules(broker.project, RUN),
            names.schedule_id_pattern(broker.project, RUN.run_id),
        ):
            waiting = await broker.last(pattern)
            assert waiting is not None
            assert waiting.data == b"3"


class TestMessage:
    async def test_it_is_found_by_its_sequence_until_it_has_gone(self, broker: Broker):
        first = await broker.store(trigger(broker, body=b"one"))
        second = await broker.store(trigger(broker, body=b"two"))
        message = await broker.message(first)
        assert message is not None
        assert (message.sequence, message.data, message.num_delivered) == (first, b"one", 0)
        assert message.subject == names.trigger_subject(broker.project, RUN)
        assert await broker.message(second) == await broker.last(message.subject)
        await broker.purge(message.subject, up_to=first)
        assert await broker.message(first) is None
        assert await broker.message(second + 1) is None


class TestPurge:
    async def test_up_to_a_sequence_and_no_further(self, broker: Broker):
        subject = names.trigger_subject(broker.project, RUN)
        sequences = [await broker.store(trigger(broker, body=b"%d" % n)) for n in range(3)]
        neighbour = trigger(broker, RunKey(*SEND, "r10"))
        await broker.store(neighbour)
        assert await broker.purge(subject, up_to=sequences[1]) == 2
        left = await broker.last(subject)
        assert left is not None
        assert left.sequence == sequences[2]
        assert await broker.purge(subject, up_to=sequences[1]) == 0
        assert await broker.purge(subject, up_to=sequences[2]) == 1
        assert await broker.last(subject) is None
        assert await broker.last(neighbour.subject) is not None
        await broker.store(trigger(broker), expected=0)

    async def test_a_purged_schedule_never_fires(self, broker: Broker, world: World):
        soon = broker.now() + timedelta(seconds=0.6)
        doomed = await broker.store(schedule(broker, soon, turn=2, body=b"doomed"))
        after = RunKey(*SEND, "after")
        await broker.store(schedule(broker, soon + timedelta(seconds=0.4), run=after))
        assert await broker.purge(names.run_schedules(broker.project, RUN), up_to=doomed) == 1
        await come(world, broker, names.trigger_subject(broker.project, after))
        assert await broker.last(names.trigger_subject(broker.project, RUN)) is None


class TestSchedule:
    async def test_it_waits_fires_at_its_instant_and_leaves(self, broker: Broker, world: World):
        instant = broker.now() + timedelta(seconds=0.8)
        message = schedule(broker, instant, body=b"later")
        sequence = await broker.store(message, expected=0)
        waiting = await broker.last(message.subject)
        assert waiting is not None
        assert waiting.sequence == sequence
        assert within(waiting.headers, message.headers)
        assert await broker.last(message.headers["Nats-Schedule-Target"]) is None

        fired = await come(world, broker, message.headers["Nats-Schedule-Target"])
        assert fired.data == b"later"
        assert fired.sequence > sequence
        wanted = {"Jetjobs-Turn": "2", "traceparent": "00-abc", "Nats-Scheduler": message.subject}
        assert within(fired.headers, {**wanted, "Nats-Schedule-Next": "purge"})
        for stripped in ("Nats-Schedule", "Nats-Schedule-Target", "Nats-TTL", "Nats-Rollup"):
            assert stripped not in fired.headers
        assert not any(name.startswith("Nats-Expected-") for name in fired.headers)
        early = timedelta(milliseconds=1)  # the instant was cut to a millisecond
        assert instant - early <= fired.stored_at < instant + timedelta(seconds=2)
        assert await broker.last(message.subject) is None
        await broker.store(message, expected=0)

    async def test_a_past_instant_fires_soon(self, broker: Broker, world: World):
        message = schedule(broker, broker.now() - timedelta(hours=1))
        await broker.store(message, expected=0)
        fired = await come(world, broker, message.headers["Nats-Schedule-Target"])
        assert fired.data == b"body"
        assert await broker.last(message.subject) is None

    async def test_expected_zero_finds_the_one_that_waits(self, broker: Broker):
        message = schedule(broker, broker.now() + timedelta(hours=1))
        first = await broker.store(message, expected=0)
        with pytest.raises(WrongRevision) as lost:
            await broker.store(message, expected=0)
        assert lost.value.actual == first
        assert await broker.store(message, expected=first) > first

    async def test_a_second_one_on_its_subject_replaces_the_first(self, broker: Broker, world: World):
        instant = broker.now() + timedelta(seconds=0.6)
        await broker.store(schedule(broker, instant, body=b"old"))
        await broker.store(schedule(broker, instant, body=b"new"))
        subject = names.trigger_subject(broker.project, RUN)
        fired = await come(world, broker, subject)
        assert fired.data == b"new"
        assert await broker.purge(subject, up_to=fired.sequence) == 1
        assert await broker.last(names.run_schedules(broker.project, RUN)) is None

    async def test_turns_wait_beside_each_other(self, broker: Broker, world: World):
        instant = broker.now() + timedelta(seconds=0.4)
        for turn in (2, 3):
            await broker.store(schedule(broker, instant, turn=turn), expected=0)
        subject = names.trigger_subject(broker.project, RUN)

        async def both_fired() -> bool:
            return await broker.last(names.run_schedules(broker.project, RUN)) is None

        await eventually(world, both_fired)
        last = await broker.last(subject)
        assert last is not None
        assert await broker.purge(subject, up_to=last.sequence) == 2


class TestClock:
    async def test_broker_time_is_the_time_messages_are_stored_at(self, broker: Broker):
        offset = await broker.measure_clock()
        assert broker.clock_offset == offset
        before = broker.now()
        await broker.store(trigger(broker))
        message = await broker.last(names.trigger_subject(broker.project, RUN))
        assert message is not None
        slack = timedelta(milliseconds=250)
        assert before - slack <= message.stored_at <= broker.now() + slack

    async def test_connected_since_is_told_until_the_connection_is_closed(self, backend: Backend):
        assert backend.broker.connected_since is not None
        await backend.close()
        assert backend.broker.connected_since is None


async def test_ensuring_again_changes_nothing(broker: Broker, world: World):
    await broker.store(trigger(broker))
    await (await world.connect()).broker.ensure_project()
    await broker.ensure_project()
    assert await broker.last(names.trigger_subject(broker.project, RUN)) is not None


class TestInStream:
    @pytest.mark.parametrize("others", [0, 700], ids=["by list", "one by one"])
    async def test_a_trigger_or_a_schedule_of_any_turn_counts(self, broker: Broker, others: int):
        for first in range(0, others, 100):
            crowd = [trigger(broker, RunKey(*SEND, f"x{number}")) for number in range(first, first + 100)]
            await asyncio.gather(*(broker.store(each) for each in crowd))
        queued, waiting, ticked, like = (RunKey(*SEND, name) for name in ("queued", "waits", "ticked", "waits-2"))
        elsewhere = RunKey("billing", "invoices", "queued")
        await broker.store(trigger(broker, queued))
        await broker.store(schedule(broker, broker.now() + timedelta(hours=1), run=waiting, turn=7))
        await broker.store(Outgoing(names.tick_subject(broker.project, SEND, "ticked")))
        assert await broker.in_stream([queued, waiting, ticked, like, elsewhere]) == {queued, waiting}
        assert await broker.in_stream([ticked]) == set()
        assert await broker.in_stream([]) == set()

    async def test_a_message_on_its_way_is_never_missed(self, broker: Broker, world: World):
        """From its schedule to its trigger there is no instant at which it is nowhere."""
        runs = [RunKey(*SEND, f"r{number}") for number in range(50)]
        due = broker.now() + timedelta(milliseconds=100)
        await asyncio.gather(*(broker.store(schedule(broker, due, run=run)) for run in runs))
        for _ in range(60):
            assert await broker.in_stream(runs) == set(runs)
            await world.elapse(0.01)
        for run in runs:
            assert await broker.last(names.run_schedules(broker.project, run)) is None
