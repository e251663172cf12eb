"""Events of other services on a real server: which runs they become, and what is written when they become none."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nats
import pytest
from structlog.testing import capture_logs

from jetjobs import HostSettings, JobContext, JobHost, Module, OnEvent, RunStatus
from jetjobs._core import codec
from jetjobs._nats.provision import ProvisionSettings, wanted_streams
from jetjobs.errors import PermissionMissing
from tests.support.event_field import counts, sequences
from tests.support.events import Orders, runs_of, thanks
from tests.support.field import QUICK, Field, field_of
from tests.support.links import until, until_it
from tests.support.servers import RealServer

pytestmark = pytest.mark.integration


LARGE = {"total": {"gte": 100}}


class TestCore:
    async def test_a_filtered_event_moves_no_sequence(self, field: Field, orders: Orders):
        host = await field.host(thanks(orders.trigger(filter=LARGE)))
        before = await sequences(field)
        await orders.publish({"total": 99}, times=20, Nats_Msg_Id="small")
        await orders.publish(None, raw=b"{", times=3)
        await until(lambda: counts(host).filtered == 20 and counts(host).unreadable == 3)
        assert await sequences(field) == before
        await orders.publish({"total": 100})
        assert (await runs_of(field, 1))[0].result == {"total": 100}

    @pytest.mark.parametrize(
        "condition, passes, fails",
        [
            ({"a": 1}, {"a": 1}, {"a": True}),
            ({"a": [1, "x"]}, {"a": "x"}, {"a": 2}),
            ({"a": {"eq": None}}, {"a": None}, {}),
            ({"a": {"ne": 1}}, {"a": 2}, {"a": 1}),
            ({"a": {"in": [1, 2]}}, {"a": 2}, {"a": 3}),
            ({"a": {"gt": 1, "lt": 3}}, {"a": 2}, {"a": 3}),
            ({"a": {"gte": 1, "lte": 3}}, {"a": 3}, {"a": 4}),
            ({"a": {"prefix": "x"}}, {"a": "xy"}, {"a": "yx"}),
            ({"a": {"suffix": "x"}}, {"a": "yx"}, {"a": "xy"}),
            ({"a": {"contains": "x"}}, {"a": ["x"]}, {"a": ["y"]}),
            ({"a.b.0": {"exists": True}}, {"a": {"b": [None]}}, {"a": {"b": []}}),
            ({"a": {"exists": False}}, {"b": 1}, {"a": None}),
        ],
        ids=str,
    )
    async def test_every_operator(self, field: Field, orders: Orders, condition: Any, passes: Any, fails: Any):
        host = await field.host(thanks(orders.trigger(filter=condition)))
        await orders.publish(fails)
        await orders.publish(passes)
        await until(lambda: counts(host).filtered == 1)
        assert [run.result for run in await runs_of(field, 1)] == [passes]

    async def test_bodies_of_all_kinds(self, field: Field, orders: Orders):
        await field.host(thanks(orders.trigger(subject=f"{orders.prefix}.>")))
        big = {"text": "x" * 300_000}
        await orders.publish(None, "a.b", raw=codec.encode({"n": 1}), Content_Type="application/msgpack")
        await orders.publish(big, "big", Nats_Msg_Id="big")
        await orders.publish(None, "none", raw=b"")
        await orders.publish(None, "bad", raw=b"\xff")
        runs = {run.trigger.event_subject: run for run in await runs_of(field, 4)}
        assert {subject.removeprefix(orders.prefix): run.status for subject, run in runs.items() if subject} == {
            ".a.b": RunStatus.SUCCEEDED,
            ".big": RunStatus.SUCCEEDED,
            ".none": RunStatus.SUCCEEDED,
            ".bad": RunStatus.FAILED,
        }
        assert runs[f"{orders.prefix}.a.b"].result == {"n": 1}
        result = await field.client.run("billing", "thank", runs[f"{orders.prefix}.big"].run_id).result(timeout=45)
        assert result == big

    async def test_hosts_that_take_turns_lose_nothing(self, field: Field, orders: Orders):
        published, enough = 0, asyncio.Event()

        async def publish() -> None:
            nonlocal published
            while not enough.is_set():
                await orders.publish({"n": published})
                published += 1

        def host() -> JobHost:
            settings = HostSettings(**QUICK)
            return JobHost([thanks(orders.trigger())], project=field.project, nats=field.url, settings=settings)

        hosts = [host()]
        await hosts[0].start()
        publishing = asyncio.ensure_future(publish())
        try:
            for _ in range(3):
                await until(lambda: counts(hosts[-1]).stored > 10)
                hosts.append(host())
                await hosts[-1].start()
                await hosts[-2].close()
            await until(lambda: counts(hosts[-1]).stored > 10)
            enough.set()
            await publishing
            assert sorted(run.result["n"] for run in await runs_of(field, published)) == list(range(published))
        finally:
            publishing.cancel()
            for each in hosts:
                await each.close()

    async def test_two_projects_hear_the_same_event(self, field: Field, orders: Orders, nats_url: str):
        await orders.add_stream()
        triggers = (orders.trigger(name="core"), orders.trigger(subject=f"{orders.prefix}.late", stream=orders.stream))
        async with field_of(nats_url, f"{field.project}-2") as other:
            for each in (field, other):
                await each.host(thanks(*triggers))
            await orders.publish({"n": 1}, Nats_Msg_Id="1")
            await orders.publish({"n": 2}, "late", Nats_Msg_Id="2")
            for each in (field, other):
                assert sorted(run.result["n"] for run in await runs_of(each, 2)) == [1, 2]

    async def test_an_ended_run_is_an_event(self, field: Field):
        module = thanks(OnEvent(f"jetjobs.{field.project}.events.FAILED.billing.*.*"))

        @module.job(timeout="5s")
        async def breaks(ctx: JobContext[Any]) -> None:
            raise ValueError("on purpose")

        await field.host(module)
        run = await field.client.get_job("billing.breaks").trigger()
        await run.wait(45)

        async def reacted() -> bool:
            found = [record async for record in field.client.runs.iter(job="thank", module="billing")]
            return [record.payload["run_id"] for record in found] == [run.run_id]

        await until_it(reacted)


class TestOutage:
    async def test_a_server_that_comes_back_brings_both_kinds_of_events(self, own_server: RealServer, project: str):
        async with field_of(own_server.url, project) as field:
            orders = Orders(field)
            await orders.add_stream()
            kept = orders.trigger(name="kept", subject=f"{orders.prefix}.kept", stream=orders.stream)
            host = await field.host(thanks(orders.trigger(subject=f"{orders.prefix}.paid"), kept))
            await orders.publish({"n": 1})
            await orders.publish({"n": 2}, "kept")
            await runs_of(field, 2)
            own_server.kill9()
            await until(lambda: not host.health().connected)
            own_server.start()
            await until(lambda: host.health().connected and field.nats.is_connected)
            await orders.publish({"n": 3})
            await orders.publish({"n": 4}, "kept")
            assert sorted(run.result["n"] for run in await runs_of(field, 4)) == [1, 2, 3, 4]


class TestPermissions:
    @pytest.mark.parametrize(
        "rights, stream, named",
        [
            ('subscribe: { deny: ["secret.>"] }', None, "secret.paid"),
            ('publish: { deny: ["$JS.API.CONSUMER.CREATE.SECRET.>"] }', "SECRET", "$JS.API.CONSUMER.CREATE.SECRET."),
            ('publish: { deny: ["$JS.API.CONSUMER.INFO.SECRET.>"] }', "SECRET", "$JS.API.CONSUMER.INFO.SECRET."),
        ],
    )
    async def test_a_missing_right_ends_the_start_and_is_named(
        self, tmp_path: Path, project: str, rights: str, stream: str | None, named: str
    ):
        users = f"{{ user: limited, password: p, permissions: {{ {rights} }} }}, {{ user: all, password: p }}"
        with RealServer(tmp_path / "nats", extra_conf=f"authorization {{ users: [ {users} ] }}") as server:
            everything = await nats.connect(server.url, user="all", password="p")
            await everything.jetstream().add_stream(name="SECRET", subjects=["secret.>"])
            await everything.close()
            url = server.url.replace("//", "//limited:p@")
            host = JobHost([thanks(OnEvent("secret.paid", stream=stream))], project=project, nats=url)
            with pytest.raises(PermissionMissing) as refused:
                await host.start()
            assert str(refused.value.subject).startswith(named)
            assert named in str(refused.value)
            await host.close()

    async def test_the_documented_rights_are_enough(self, tmp_path: Path, project: str):
        own = [wanted.name for wanted in wanted_streams(project, ProvisionSettings())]
        publish = ["_INBOX.>", f"jetjobs.{project}.>", "$KV.*.>", "$JS.API.INFO"]
        for stream in own:
            publish += [f"$JS.API.STREAM.{call}.{stream}" for call in ("*", "MSG.GET")]
            publish += [f"$JS.API.{call}.{stream}.>" for call in ("DIRECT.GET", "CONSUMER.*", "CONSUMER.MSG.NEXT")]
            publish += [f"$JS.API.DIRECT.GET.{stream}", f"$JS.ACK.{stream}.>"]
        api = "$JS.API.CONSUMER"
        publish += [f"{api}.INFO.S.*", f"{api}.LIST.S", f"{api}.CREATE.S.*", f"{api}.MSG.NEXT.S.*", "$JS.ACK.S.>"]
        subscribe = ["_INBOX.>", f"jetjobs.{project}.>", "heard.paid"]
        rights = f"publish: {json.dumps(publish)}, subscribe: {json.dumps(subscribe)}"
        users = f"{{ user: host, password: p, permissions: {{ {rights} }} }}, {{ user: all, password: p }}"
        with RealServer(tmp_path / "nats", extra_conf=f"authorization {{ users: [ {users} ] }}") as server:
            everything = await nats.connect(server.url, user="all", password="p")
            jetstream: Any = everything.jetstream()
            await jetstream.add_stream(name="S", subjects=["kept.>"])
            heard: asyncio.Queue[Any] = asyncio.Queue()
            module = Module("billing")

            @module.job(timeout="5s", triggers=[OnEvent("heard.paid"), OnEvent("kept.*", name="kept", stream="S")])
            async def thank(ctx: JobContext[Any], order: Any) -> None:
                heard.put_nowait(order)

            url = server.url.replace("//", "//host:p@")
            with capture_logs() as logs:
                async with JobHost([module], project=project, nats=url), asyncio.timeout(45):
                    await everything.publish("heard.paid", b"1")
                    await everything.publish("kept.paid", b"2")
                    assert {await heard.get(), await heard.get()} == {1, 2}

                    async def acked() -> bool:
                        (info,) = await jetstream.consumers_info("S")
                        return (info.num_pending, info.num_ack_pending) == (0, 0)

                    await until_it(acked)
            assert not [entry for entry in logs if "permission" in str(entry)]
            await everything.close()
