"""Making things exist: as often and by as many at once as may be, and never against what a newer host made."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from jetjobs._core import names
from jetjobs._core.messages import Outgoing
from jetjobs._core.models import JobAddress, RunKey
from jetjobs._nats import provision as provision_module
from jetjobs._nats.broker import NatsBroker
from jetjobs._nats.faults import NotFound
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.provision import Provisioner, ProvisionSettings, nanoseconds, wanted_streams
from jetjobs._nats.versions import VERSION_KEY
from jetjobs.errors import StreamMismatch
from tests.support.links import open_link, until_it

pytestmark = pytest.mark.integration

JOB = JobAddress("mod", "job")


@pytest.fixture
async def link(nats_url: str) -> AsyncIterator[Link]:
    link = await open_link(nats_url)
    yield link
    await link.connection.close()


def provisioner(link: Link, project: str, **settings: Any) -> Provisioner:
    return Provisioner(link, project, ProvisionSettings(**settings))


async def config(link: Link, stream: str) -> dict[str, Any]:
    return (await link.api(f"STREAM.INFO.{stream}"))["config"]


async def consumer(link: Link, project: str) -> dict[str, Any]:
    return (await link.api(f"CONSUMER.INFO.{names.stream(project)}.{names.consumer(JOB)}"))["config"]


class TestProject:
    async def test_everything_is_there_and_as_needed(self, link: Link, project: str):
        await provisioner(link, project, max_age=timedelta(days=3)).ensure_project()
        jobs = await config(link, f"JETJOBS_{project}")
        assert jobs["subjects"] == [f"jetjobs.{project}.trigger.>", f"jetjobs.{project}.schedule.>"]
        assert (jobs["retention"], jobs["storage"], jobs["max_age"]) == ("workqueue", "file", 3 * 86400 * 10**9)
        allowed = ("allow_msg_schedules", "allow_msg_ttl", "allow_direct", "allow_atomic")
        assert all(jobs[name] is True for name in allowed)
        for bucket in ("runs", "schedules", "jobs", "hosts"):
            kv = await config(link, f"KV_jetjobs_{project}_{bucket}")
            assert kv["subjects"] == [f"$KV.jetjobs_{project}_{bucket}.>"]
            assert (kv["max_msgs_per_subject"], kv["allow_direct"], kv["allow_msg_ttl"]) == (1, True, True)
            assert not kv.get("deny_purge")
        assert (await config(link, f"KV_jetjobs_{project}_hosts"))["max_age"] > 0
        assert (await config(link, f"JETJOBS_{project}_payloads"))["retention"] == "limits"

    async def test_schedules_triggers_and_compare_and_set_work_on_it(self, link: Link, project: str):
        broker = NatsBroker(link, project)
        await broker.ensure_project()
        run = RunKey(*JOB, "x")
        due = (broker.now() + timedelta(milliseconds=100)).isoformat()
        trigger = names.trigger_subject(project, run)
        headers = {"Nats-Schedule": f"@at {due}", "Nats-Schedule-Target": trigger, "Nats-TTL": "never"}
        await broker.store(Outgoing(names.retry_subject(project, run, 1), headers, b"later"), expected=0)

        async def fired() -> bool:
            return await broker.last(trigger) is not None

        await until_it(fired)
        message = await broker.last(trigger)
        assert message is not None
        assert message.data == b"later"

    async def test_again_changes_nothing(self, link: Link, project: str):
        await provisioner(link, project).ensure_project()
        before = [await config(link, wanted.name) for wanted in wanted_streams(project, ProvisionSettings())]
        await provisioner(link, project).ensure_project()
        assert before == [await config(link, wanted.name) for wanted in wanted_streams(project, ProvisionSettings())]

    async def test_few_calls(self, link: Link, project: str, nats_url: str):
        spy = await open_link(nats_url)
        calls: list[str] = []

        def heard(message: Inbound) -> None:
            if project in message.subject:
                calls.append(message.subject)

        await spy.connection.listen("$JS.API.>", heard)
        await spy.connection.client.flush()
        for most in (7, 6):
            calls.clear()
            await provisioner(link, project).ensure_project()
            await spy.connection.client.flush()
            assert 0 < len(calls) <= most
        await spy.connection.close()

    async def test_twenty_at_once(self, nats_url: str, project: str):
        links = [await open_link(nats_url) for _ in range(20)]
        makers = [provisioner(link, project) for link in links]
        await asyncio.gather(*(maker.ensure_project() for maker in makers))
        await asyncio.gather(*(maker.ensure_consumer(JOB, 4) for maker in makers))
        assert (await consumer(links[0], project))["max_ack_pending"] == 4
        for link in links:
            await link.connection.close()

    async def test_twenty_at_once_with_different_settings(self, nats_url: str, project: str):
        links = [await open_link(nats_url) for _ in range(20)]
        with capture_logs():
            await asyncio.gather(
                *(
                    provisioner(link, project, max_age=timedelta(days=n + 1)).ensure_project()
                    for n, link in enumerate(links)
                )
            )
        for link in links:
            await link.connection.close()


class TestExisting:
    async def make(self, link: Link, project: str, **changes: Any) -> str:
        wanted = wanted_streams(project, ProvisionSettings())[0]
        made = {**wanted.config, **changes}
        await link.api(f"STREAM.CREATE.{wanted.name}", {k: v for k, v in made.items() if v is not None})
        return wanted.name

    async def test_what_is_missing_is_enabled_in_place(self, link: Link, project: str):
        stream = await self.make(
            link, project, allow_msg_schedules=None, allow_atomic=None, metadata={"mine": "kept"}, max_msg_size=10**6
        )
        await provisioner(link, project).ensure_project()
        now = await config(link, stream)
        assert now["allow_msg_schedules"] is now["allow_atomic"] is True
        assert now["metadata"]["mine"] == "kept"
        assert now["metadata"][VERSION_KEY] == "1"
        assert now["max_msg_size"] == 10**6

    async def test_missing_subjects_are_added(self, link: Link, project: str):
        stream = await self.make(link, project, subjects=[f"extra.{project}", f"jetjobs.{project}.trigger.>"])
        await provisioner(link, project).ensure_project()
        subjects = (await config(link, stream))["subjects"]
        assert set(subjects) == {f"extra.{project}", names.all_triggers(project), names.all_schedules(project)}

    async def test_what_can_not_be_changed_is_named(self, link: Link, project: str):
        stream = await self.make(link, project, retention="limits")
        before = await config(link, stream)
        with pytest.raises(StreamMismatch) as mismatch:
            await provisioner(link, project).ensure_project()
        for word in (stream, "retention", "'limits'", "'workqueue'"):
            assert word in str(mismatch.value)
        assert await config(link, stream) == before

    async def test_what_the_server_refuses_is_told_in_its_words(self, link: Link, project: str):
        stream = await self.make(link, project, allow_msg_schedules=None, discard="new", max_msgs=5)
        with pytest.raises(StreamMismatch, match="allow_msg_schedules") as mismatch:
            await provisioner(link, project).ensure_project()
        assert stream in str(mismatch.value)

    async def test_subjects_of_somebody_elses_stream(self, link: Link, project: str):
        await link.api(
            f"STREAM.CREATE.other-{project}", {"name": f"other-{project}", "subjects": [f"jetjobs.{project}.>"]}
        )
        with pytest.raises(StreamMismatch, match="overlap"):
            await provisioner(link, project).ensure_project()

    async def test_settings_of_another_host_stay_and_are_told(self, link: Link, project: str):
        await provisioner(link, project, max_age=timedelta(days=3)).ensure_project()
        with capture_logs() as logs:
            await provisioner(link, project, max_age=timedelta(days=5)).ensure_project()
        assert (await config(link, names.stream(project)))["max_age"] == nanoseconds(timedelta(days=3))
        told = [(line["stream"], line["setting"]) for line in logs if line["event"] == "stream setting differs"]
        assert (names.stream(project), "max_age") in told

    async def test_settings_come_with_a_higher_version(self, link: Link, project: str):
        stream = await self.make(link, project, metadata={}, max_age=nanoseconds(timedelta(days=3)))
        await provisioner(link, project, max_age=timedelta(days=5)).ensure_project()
        assert (await config(link, stream))["max_age"] == nanoseconds(timedelta(days=5))

    async def test_a_newer_version_is_left_alone(self, link: Link, project: str):
        stream = await self.make(
            link, project, metadata={VERSION_KEY: "9"}, max_age=nanoseconds(timedelta(days=3)), description="new"
        )
        before = await config(link, stream)
        await provisioner(link, project, max_age=timedelta(days=5)).ensure_project()
        assert await config(link, stream) == before

    async def test_a_newer_version_that_can_not_serve_is_refused(self, link: Link, project: str):
        await self.make(link, project, metadata={VERSION_KEY: "9"}, allow_atomic=None)
        with pytest.raises(StreamMismatch, match="newer jetjobs"):
            await provisioner(link, project).ensure_project()


class TestConsumers:
    @pytest.fixture
    async def made(self, link: Link, project: str) -> Provisioner:
        made = provisioner(link, project)
        await made.ensure_project()
        return made

    async def test_as_it_must_be(self, link: Link, project: str, made: Provisioner):
        await made.ensure_consumer(JOB, 7)
        await made.ensure_consumer(JOB, 7)
        now = await consumer(link, project)
        prefix = f"jetjobs.{project}.trigger.mod.job"
        assert now["filter_subjects"] == [f"{prefix}.run.>", f"{prefix}.tick.>"]
        assert (now["ack_policy"], now["deliver_policy"], now["max_deliver"]) == ("explicit", "all", -1)
        assert (now["max_ack_pending"], now["ack_wait"]) == (7, 30 * 10**9)

    async def test_updated_in_place_only_when_asked(self, link: Link, project: str, made: Provisioner):
        await made.ensure_consumer(JOB, 7)
        other = provisioner(link, project, ack_wait=timedelta(seconds=9))
        await other.ensure_consumer(JOB, 8, update=False)
        assert (await consumer(link, project))["max_ack_pending"] == 7
        await other.ensure_consumer(JOB, 8)
        now = await consumer(link, project)
        assert (now["max_ack_pending"], now["ack_wait"]) == (8, 9 * 10**9)

    async def test_an_older_host_undoes_nothing(
        self, link: Link, project: str, made: Provisioner, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setattr(provision_module, "CONFIG_VERSION", 2)
        await made.ensure_consumer(JOB, 7)
        monkeypatch.setattr(provision_module, "CONFIG_VERSION", 1)
        await made.ensure_consumer(JOB, 3)
        assert (await consumer(link, project))["max_ack_pending"] == 7

    async def test_what_was_edited_is_put_right_but_not_what_a_newer_host_made(
        self, link: Link, project: str, made: Provisioner, monkeypatch: pytest.MonkeyPatch
    ):
        async def limit_deliveries() -> None:
            edited = {**await consumer(link, project), "max_deliver": 5}
            order = {"stream_name": names.stream(project), "config": edited, "action": "update"}
            await link.api(f"CONSUMER.CREATE.{names.stream(project)}.{names.consumer(JOB)}", order)

        await made.ensure_consumer(JOB, 7)
        await limit_deliveries()
        await made.mend_consumer(JOB)
        assert (await consumer(link, project))["max_deliver"] == -1
        monkeypatch.setattr(provision_module, "CONFIG_VERSION", 2)
        await made.ensure_consumer(JOB, 7)
        monkeypatch.setattr(provision_module, "CONFIG_VERSION", 1)
        await limit_deliveries()
        await made.mend_consumer(JOB)
        assert (await consumer(link, project))["max_deliver"] == 5

    async def test_other_filters_are_refused(self, link: Link, project: str, made: Provisioner):
        stream, name = names.stream(project), names.consumer(JOB)
        other = {
            "durable_name": name,
            "ack_policy": "explicit",
            "filter_subjects": [f"jetjobs.{project}.trigger.mod.job.run.>"],
        }
        await link.api(f"CONSUMER.CREATE.{stream}.{name}", {"stream_name": stream, "config": other, "action": "create"})
        with pytest.raises(StreamMismatch, match="remove it"):
            await made.ensure_consumer(JOB, 1)

    async def test_without_a_stream(self, link: Link, project: str):
        with pytest.raises(NotFound):
            await provisioner(link, project).ensure_consumer(JOB, 1)

    async def test_three_hundred_jobs_take_no_time(self, link: Link, project: str, made: Provisioner):
        begun = time.monotonic()
        jobs = [JobAddress("mod", f"job{number}") for number in range(300)]
        await asyncio.gather(*(made.ensure_consumer(job, 1) for job in jobs))
        assert time.monotonic() - begun < 30
        await link.api(f"STREAM.DELETE.{names.stream(project)}")
