"""Events that become runs, over ports in memory that fail on purpose and a clock that stands still."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs import HostSettings, JobContext, JobHost, Module, OnEvent, RunStatus
from jetjobs._core.bodies import ClaimCheck
from jetjobs._core.models import RunRecord
from jetjobs._engine.event_bridge import EventBridge
from jetjobs._engine.event_route import BYTES, PLACES, STORE_WITHIN, WRITERS
from jetjobs.errors import PayloadTooLargeError, PermissionMissing, StorageFull
from jetjobs.testing import FailingBackend
from tests.support.worlds import MemoryWorld, eventually

SETTINGS = HostSettings(ack_wait=1, heartbeat_every=0.3, lost_after=3, upkeep_every=60, drain=0.2, interrupt_grace=0.2)
LARGE = {"total": {"gte": 100}}


class Scene:
    """One project in memory, its hosts, and the runs there were."""

    def __init__(self, world: MemoryWorld, stack: AsyncExitStack) -> None:
        self.world = world
        self.cluster = world.cluster
        self.publish = world.cluster.events.publish
        self._stack = stack

    async def host(self, *triggers: OnEvent, start: bool = True, **options: Any) -> tuple[JobHost, FailingBackend]:
        """A host whose job `billing.thank` has these triggers."""
        module = Module("billing")

        @module.job(max_concurrency=8, timeout="5s", triggers=list(triggers))
        async def thank(ctx: JobContext[Any], order: Any = None) -> Any:
            return order

        ports = FailingBackend(await self.world.connect())
        host = JobHost([module], backend=ports, settings=SETTINGS, clock=self.world.clock, **options)
        if start:
            await host.start()
            self._stack.push_async_callback(host.close)
        return host, ports

    @property
    def written(self) -> int:
        """How many messages the jobs stream ever took."""
        return self.cluster.project(self.world.project).stream.last_sequence

    async def runs(self, count: int) -> list[RunRecord]:
        """All runs, once so many have ended and nothing is under way any more."""
        backend = await self.world.connect()
        found: list[RunRecord] = []

        async def ended() -> bool:
            found[:] = [stored.record async for stored in backend.runs.scan()]
            return sum(record.status.is_terminal for record in found) >= count

        await eventually(self.world, ended)
        await self.world.elapse(3)
        assert await ended()
        assert len(found) == count, [(record.run_id, record.payload) for record in found]
        return found


def bridge_of(host: JobHost) -> EventBridge:
    assert host._hosting is not None
    return host._hosting.bridge


def body(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


@pytest.fixture
async def scene(project: str) -> AsyncIterator[Scene]:
    world = MemoryWorld(project)
    async with AsyncExitStack() as stack:
        yield Scene(world, stack)
    await world.close()


class TestCore:
    async def test_ids_sent_twice_to_three_hosts_are_a_run_each_and_so_is_every_body_without(self, scene: Scene):
        for _ in range(3):
            await scene.host(OnEvent("orders.*"))
        for number in [*range(10), *range(10)]:
            scene.publish("orders.paid", body(n=number), {"Nats-Msg-Id": f"o-{number}"})
        for _ in range(5):
            scene.publish("orders.paid", body(n=-1))
        runs = await scene.runs(15)
        assert all(run.status is RunStatus.SUCCEEDED for run in runs)
        assert sorted(run.result["n"] for run in runs) == [-1] * 5 + list(range(10))
        assert sum(run.run_id.startswith("e-") for run in runs) == 10
        assert {(run.trigger.kind, run.trigger.event_subject) for run in runs} == {("event", "orders.paid")}
        assert all(run.expires_at is not None and run.created_at is not None for run in runs)
        assert {(run.expires_at - run.fired_at).total_seconds() for run in runs if run.expires_at and run.fired_at} == {
            24 * 3600.0
        }

    async def test_an_id_whose_run_has_ended_starts_nothing(self, scene: Scene):
        await scene.host(OnEvent("orders.*"))
        scene.publish("orders.paid", body(n=1), {"Nats-Msg-Id": "o-1"})
        (first,) = await scene.runs(1)
        scene.publish("orders.paid", body(n=2), {"Nats-Msg-Id": "o-1"})
        assert await scene.runs(1) == [first]

    async def test_an_id_that_waits_is_stored_once(self, scene: Scene):
        for _ in range(2):
            _, ports = await scene.host(OnEvent("orders.*"))
            ports.fail("runs.create", when="hang", times=None)
        for number in range(6):
            scene.publish("orders.paid", body(n=number), {"Nats-Msg-Id": "o-1"})
            await scene.world.clock.settle()
        assert scene.written == 1

    async def test_a_filtered_event_writes_nothing(self, scene: Scene):
        host, ports = await scene.host(OnEvent("orders.*", filter=LARGE))
        stores, before = ports.calls["broker.store"], scene.written
        for total in (1, 99, "100", None):
            scene.publish("orders.paid", body(total=total))
        await scene.world.elapse(10)
        assert (ports.calls["broker.store"], ports.calls["runs.create"], scene.written) == (stores, 0, before)
        assert bridge_of(host).counts.filtered == 4
        scene.publish("orders.paid", body(total=100))
        assert (await scene.runs(1))[0].result == {"total": 100}

    async def test_what_the_filter_cannot_read_is_told_once_a_subject_and_not_written(self, scene: Scene):
        host, _ = await scene.host(OnEvent("orders.*", filter=LARGE))
        with capture_logs() as logs:
            for subject in ("orders.a", "orders.a", "orders.b"):
                scene.publish(subject, b"{")
            await scene.world.elapse(10)
        told = [entry["subject"] for entry in logs if entry["event"] == "event_unreadable"]
        assert told == ["orders.a", "orders.b"]
        assert (bridge_of(host).counts.unreadable, scene.written) == (3, 0)

    async def test_without_a_filter_it_is_a_failed_run(self, scene: Scene):
        await scene.host(OnEvent("orders.*"))
        scene.publish("orders.paid", b"{")
        (run,) = await scene.runs(1)
        assert run.status is RunStatus.FAILED
        assert run.error is not None
        assert run.error.type == "PayloadInvalidError"

    async def test_a_large_body_travels_beside_the_trigger(self, scene: Scene):
        await scene.host(OnEvent("orders.*", filter=LARGE))
        scene.publish("orders.paid", body(total=100, text="x" * 100_000), {"Nats-Msg-Id": "big"})
        (run,) = await scene.runs(1)
        assert isinstance(run.payload, ClaimCheck)
        assert run.status is RunStatus.SUCCEEDED

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_store_that_fails_is_repeated_and_is_one_run(self, scene: Scene, when: Any):
        _, ports = await scene.host(OnEvent("orders.*"))
        failure = ports.fail("broker.store", when=when, times=3)
        scene.publish("orders.paid", body(n=1))
        assert len(await scene.runs(1)) == 1
        assert failure.hits >= 1

    async def test_what_is_not_stored_in_time_is_lost_and_said(self, scene: Scene):
        host, ports = await scene.host(OnEvent("orders.*"))
        failure = ports.fail("broker.store", times=None, error=StorageFull("no room"))
        with capture_logs() as logs:
            scene.publish("orders.paid", body(n=1))
            scene.publish("orders.paid", body(n=2))
            await scene.world.elapse(STORE_WITHIN + 10)
        said = [entry for entry in logs if entry["event"] == "events_not_stored"]
        assert [(entry["lost"], entry["last_error"]) for entry in said] == [(2, "no room")]
        failure.release()
        scene.publish("orders.paid", body(n=3))
        assert (await scene.runs(1))[0].result == {"n": 3}
        assert bridge_of(host).counts.stored == 1

    async def test_with_all_places_taken_events_are_dropped_and_counted(self, scene: Scene):
        host, ports = await scene.host(OnEvent("orders.*"))
        failure = ports.fail("broker.store", when="hang", times=None)
        with capture_logs() as logs:
            for count in (WRITERS, PLACES, 7):
                for _ in range(count):
                    scene.publish("orders.paid", b"{}")
                await scene.world.clock.settle()
            await scene.world.elapse(10)
        assert bridge_of(host).counts.dropped == 7
        assert [entry["dropped"] for entry in logs if entry["event"] == "events_not_stored"] == [7]
        failure.release()

        async def stored() -> bool:
            return bridge_of(host).counts.stored == PLACES + WRITERS

        await eventually(scene.world, stored)

    async def test_bodies_take_a_bounded_room(self, scene: Scene):
        host, ports = await scene.host(OnEvent("orders.*"))
        failure = ports.fail("broker.store", when="hang", times=None)
        half = b"1" + b" " * (BYTES // 2)
        ports.fail("payloads.put", when="hang", times=None)
        for _ in range(3):
            scene.publish("orders.paid", half)
        scene.publish("orders.paid", b"{}")
        await scene.world.clock.settle()
        assert bridge_of(host).counts.dropped == 2
        failure.release()

    async def test_the_broker_away_keeps_what_was_heard_and_loses_what_passes_by(self, scene: Scene):
        _, ports = await scene.host(OnEvent("orders.*"))
        held = ports.fail("broker.store", times=2)
        scene.publish("orders.paid", body(n="heard"))
        await held.reached.wait()
        scene.cluster.stop()
        scene.publish("orders.paid", body(n="passed by"))
        await scene.world.elapse(5)
        scene.cluster.start()
        scene.publish("orders.paid", body(n="after"))
        runs = await scene.runs(2)
        assert sorted(run.result["n"] for run in runs) == ["after", "heard"]

    async def test_triggers_that_say_the_same_are_one(self, scene: Scene):
        await scene.host(OnEvent("orders.*", name="a"), OnEvent("orders.*", name="b"))
        scene.publish("orders.paid", body(n=1))
        await scene.runs(1)


class TestSwitches:
    async def test_a_disabled_job_and_a_disabled_host_hear_nothing(self, scene: Scene):
        scene.cluster.events.add_stream("ORDERS", "orders.>")
        triggers = (OnEvent("orders.*"), OnEvent("orders.*", name="kept", stream="ORDERS"))
        switched_off: list[dict[str, Any]] = [{"disable": ("billing.*",)}, {"enabled": False}]
        for options in switched_off:
            _, ports = await scene.host(*triggers, **options)
            scene.publish("orders.paid", body(n=1))
            await scene.world.elapse(10)
            assert not any(name.startswith("events.") for name in ports.calls)
        assert scene.written == 0

    async def test_closing_stops_hearing_first_and_stores_what_was_heard(self, scene: Scene):
        host, ports = await scene.host(OnEvent("orders.*"), start=False)
        await host.start()
        ports.fail("broker.store", times=2)
        scene.publish("orders.paid", body(n=1))
        await scene.world.clock.settle()
        closing = asyncio.ensure_future(host.close())
        await scene.world.clock.settle()
        scene.publish("orders.paid", body(n=2))
        await scene.world.elapse(5)
        await closing
        assert scene.written == 1
        await scene.host(OnEvent("other"))
        assert (await scene.runs(1))[0].result == {"n": 1}

    async def test_a_subject_that_may_not_be_heard_ends_the_start(self, scene: Scene):
        scene.cluster.events.forbidden.add("orders.secret")
        host, _ = await scene.host(OnEvent("orders.*", name="a"), OnEvent("orders.secret"), start=False)
        with pytest.raises(PermissionMissing, match=r"orders\.secret") as refused:
            await host.start()
        assert refused.value.subject == "orders.secret"
        scene.publish("orders.paid", body(n=1))
        await scene.world.elapse(1)
        assert scene.written == 0
        await host.close()


class TestStream:
    @pytest.fixture(autouse=True)
    def stream(self, scene: Scene) -> None:
        scene.cluster.events.add_stream("ORDERS", "orders.>")

    async def test_what_is_published_while_no_host_runs_becomes_one_run_each(self, scene: Scene):
        host, _ = await scene.host(OnEvent("orders.*", stream="ORDERS"), start=False)
        await host.start()
        await host.close()
        for number in range(100):
            scene.publish("orders.paid", body(n=number))
        for _ in range(2):
            await scene.host(OnEvent("orders.*", stream="ORDERS"))
        runs = await scene.runs(100)
        assert sorted(run.result["n"] for run in runs) == list(range(100))
        assert scene.written == 100

    async def test_filtered_and_unreadable_events_are_acked_without_a_write(self, scene: Scene):
        host, _ = await scene.host(OnEvent("orders.*", stream="ORDERS", filter=LARGE))
        for data in (body(total=1), b"{", body(total=1)):
            scene.publish("orders.paid", data)
        await scene.world.elapse(10)
        counts = bridge_of(host).counts
        assert (counts.filtered, counts.unreadable, scene.written) == (2, 1, 0)
        scene.publish("orders.paid", body(total=100))
        await scene.runs(1)

    async def test_a_lost_ack_is_one_run(self, scene: Scene):
        _, ports = await scene.host(OnEvent("orders.*", stream="ORDERS"))
        lost = ports.fail("delivery.ack")
        scene.publish("orders.paid", body(n=1))
        await scene.runs(1)
        assert lost.hits == 1
        assert scene.written == 2  # the second one came when the run had ended, and was retired by its record

    async def test_what_could_not_be_stored_comes_again(self, scene: Scene):
        host, ports = await scene.host(OnEvent("orders.*", stream="ORDERS"))
        failure = ports.fail("broker.store", times=None, error=StorageFull("no room"))
        with capture_logs() as logs:
            scene.publish("orders.paid", body(n=1))
            await scene.world.elapse(20)
        assert bridge_of(host).counts.given_back >= 2
        assert any(entry["event"] == "events_not_stored" and entry["given_back"] for entry in logs)
        failure.release()
        await scene.runs(1)

    async def test_a_stream_made_later_is_found(self, scene: Scene):
        with capture_logs() as logs:
            await scene.host(OnEvent("refunds.*", stream="REFUNDS"), OnEvent("orders.*", name="b", stream="ORDERS"))
            scene.publish("orders.paid", body(n=1))
            await scene.world.elapse(30)
        (said,) = [entry for entry in logs if entry["event"] == "events_not_taken"]
        assert said["stream"] == "REFUNDS"
        assert "REFUNDS" in said["problem"]
        scene.cluster.events.add_stream("REFUNDS", "refunds.>")
        await scene.world.elapse(6)
        scene.publish("refunds.made", body(n=2))
        assert sorted(run.result["n"] for run in await scene.runs(2)) == [1, 2]

    async def test_releases_with_other_filters_side_by_side_make_one_run_of_an_event(self, scene: Scene):
        await scene.host(OnEvent("orders.*", stream="ORDERS", filter=LARGE))
        await scene.host(OnEvent("orders.*", stream="ORDERS", filter={"total": {"gte": 50}}))
        for total in (49, 50, 100, 150):
            scene.publish("orders.paid", body(total=total))
        assert sorted(run.result["total"] for run in await scene.runs(3)) == [50, 100, 150]

    async def test_one_that_can_never_be_stored_is_given_up(self, scene: Scene):
        host, ports = await scene.host(OnEvent("orders.*", stream="ORDERS"))
        ports.fail("payloads.put", times=1, error=PayloadTooLargeError("too large"))
        scene.publish("orders.paid", body(text="x" * 20_000))
        scene.publish("orders.paid", body(n=1))
        await scene.runs(1)
        assert bridge_of(host).counts.refused == 1
