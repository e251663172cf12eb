"""Events kept by a stream of another service: each until it is done, whoever was away."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from pathlib import Path

import pytest
from nats.js.api import ConsumerConfig, RetentionPolicy
from structlog.testing import capture_logs

from jetjobs import HostSettings, JobHost, RunStatus
from tests.support.event_field import counts, sequences
from tests.support.events import Orders, jetstream_of, runs_of, thanks
from tests.support.field import QUICK, Field
from tests.support.links import until, until_it
from tests.support.programs import event_host

pytestmark = pytest.mark.integration


MORTAL = Path(event_host.__file__)


LARGE = {"total": {"gte": 100}}


async def durables(field: Field, orders: Orders) -> list[str]:
    return sorted([info.name for info in await jetstream_of(field).consumers_info(orders.stream)])


class TestStream:
    async def test_nothing_is_lost_while_no_host_runs(self, field: Field, orders: Orders):
        await orders.add_stream()
        settings = HostSettings(**QUICK)
        trigger = orders.trigger(stream=orders.stream)
        async with JobHost([thanks(trigger)], project=field.project, nats=field.url, settings=settings):
            (durable,) = await durables(field, orders)
        for number in range(200):
            await field.nats.publish(f"{orders.prefix}.paid", json.dumps({"n": number}).encode())
        await field.nats.flush()
        for _ in range(3):
            await field.host(thanks(trigger))
        assert sorted(run.result["n"] for run in await runs_of(field, 200)) == list(range(200))
        assert await durables(field, orders) == [durable]

        async def all_acked() -> bool:
            info = await jetstream_of(field).consumer_info(orders.stream, durable)
            return (info.num_ack_pending, info.num_pending) == (0, 0)

        await until_it(all_acked)

    async def test_hosts_that_start_together_share_one_durable(self, field: Field, orders: Orders):
        await orders.add_stream()
        hosts = await asyncio.gather(*(field.host(thanks(orders.trigger(stream=orders.stream))) for _ in range(4)))
        assert len(await durables(field, orders)) == 1
        for number in range(100):
            await orders.publish({"n": number})
        assert sorted(run.result["n"] for run in await runs_of(field, 100)) == list(range(100))
        assert sum(counts(host).stored for host in hosts) == 100

    async def test_a_host_killed_between_store_and_ack_leaves_one_run_of_each(self, field: Field, orders: Orders):
        await orders.add_stream()
        command = [sys.executable, str(MORTAL), field.url, field.project, orders.any, orders.stream, "5"]
        mortal = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            async with asyncio.timeout(45):
                assert mortal.stdout is not None
                while await mortal.stdout.readline() != b"ready\n":
                    assert mortal.returncode is None
                for number in range(20):
                    await orders.publish({"n": number})
                assert await mortal.wait() == -signal.SIGKILL
        finally:
            if mortal.returncode is None:
                mortal.kill()
                await mortal.wait()
        async with JobHost(
            [event_host.thanks(orders.any, orders.stream)],
            project=field.project,
            nats=field.url,
            settings=HostSettings(**QUICK),
        ):
            runs = await runs_of(field, 20)
        assert sorted(run.result["n"] for run in runs) == list(range(20))
        assert all(run.status is RunStatus.SUCCEEDED for run in runs)

    async def test_filtered_events_are_acked_and_move_no_sequence(self, field: Field, orders: Orders):
        await orders.add_stream()
        host = await field.host(thanks(orders.trigger(stream=orders.stream, filter=LARGE)))
        before = await sequences(field)
        await orders.publish({"total": 1}, times=150)
        await orders.publish(None, raw=b"{")
        await until(lambda: counts(host).filtered == 150 and counts(host).unreadable == 1)
        assert await sequences(field) == before
        await orders.publish({"total": 100})
        await runs_of(field, 1)

    async def test_another_filter_goes_on_where_the_first_one_got_to(self, field: Field, orders: Orders):
        await orders.add_stream()
        settings = HostSettings(**QUICK)
        first = thanks(orders.trigger(stream=orders.stream, filter=LARGE))
        async with JobHost([first], project=field.project, nats=field.url, settings=settings) as host:
            await orders.publish({"total": 100})
            await orders.publish({"total": 60})
            await until(lambda: counts(host).filtered == 1)
            await runs_of(field, 1)
        await orders.publish({"total": 70})
        await orders.publish({"total": 110})
        await field.host(thanks(orders.trigger(stream=orders.stream, filter={"total": {"gte": 50}})))
        assert sorted(run.result["total"] for run in await runs_of(field, 3)) == [70, 100, 110]
        assert len(await durables(field, orders)) == 2

    async def test_a_removed_durable_and_a_removed_stream_come_back(self, field: Field, orders: Orders):
        await orders.add_stream()
        host = await field.host(thanks(orders.trigger(stream=orders.stream)))
        await orders.publish({"n": 1}, times=5)
        await runs_of(field, 5)
        jetstream = jetstream_of(field)
        (durable,) = await durables(field, orders)
        await jetstream.delete_consumer(orders.stream, durable)
        await orders.publish({"n": 2})
        await runs_of(field, 6)
        assert counts(host).stored <= 7  # the last one before is taken once more, and those before it are not
        with capture_logs() as logs:
            await jetstream.delete_stream(orders.stream)
            await until(lambda: any(orders.stream in str(entry.get("error")) for entry in logs))
        await orders.add_stream()
        await orders.publish({"n": 3})  # sequence 1 again, and another event
        assert sorted(run.result["n"] for run in await runs_of(field, 7)) == [1, 1, 1, 1, 1, 2, 3]

    async def test_a_stream_that_is_not_there_is_told_and_found_later(self, field: Field, orders: Orders):
        with capture_logs() as logs:
            host = await field.host(thanks(orders.trigger(stream=orders.stream)))
        (said,) = [entry for entry in logs if entry["event"] == "events_not_taken"]
        assert f'there is no stream "{orders.stream}"' in said["problem"]
        await orders.add_stream()
        await orders.publish({"n": 1})
        published = time.monotonic()
        await until(lambda: time.monotonic() > published + 0.5)  # longer than what a durable looks back anyway
        assert host._hosting is not None
        host._hosting.bridge.service.wake()
        await runs_of(field, 1)

    async def test_a_work_queue_gives_all_it_holds_and_its_overlap_is_explained(self, field: Field, orders: Orders):
        await orders.add_stream(retention=RetentionPolicy.WORK_QUEUE)
        await orders.publish({"n": 1})
        await field.host(thanks(orders.trigger(stream=orders.stream)))
        await orders.publish({"n": 2})
        await runs_of(field, 2)
        info = await jetstream_of(field).stream_info(orders.stream)
        assert info.state.messages == 0
        with capture_logs() as logs:
            await field.host(thanks(orders.trigger(subject=f"{orders.prefix}.paid", stream=orders.stream)))
        (said,) = [entry for entry in logs if entry["event"] == "events_not_taken"]
        assert all(part in said["problem"] for part in (orders.stream, "work queue", "10100", "Remove that consumer"))

    async def test_a_durable_of_somebody_else_is_left_alone(self, field: Field, orders: Orders):
        await orders.add_stream()
        theirs = ConsumerConfig(durable_name="theirs", filter_subject=orders.any)
        await jetstream_of(field).add_consumer(orders.stream, theirs)
        async with JobHost([thanks(orders.trigger(stream=orders.stream))], project=field.project, nats=field.url):
            assert "theirs" in await durables(field, orders)
        assert len(await durables(field, orders)) == 2
