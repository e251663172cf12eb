"""Hosts inside other people's programs: several in one process, in a thread, on another kind of loop; whose signals."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from jetjobs import AmbiguousHostError, HostSettings, JobClient, JobHost, JobsNotHosted, Module
from jetjobs.errors import HostError, ProjectNotPrepared
from jetjobs.sync import JobClient as SyncJobClient
from tests.support import process_jobs
from tests.support.embedded import counting
from tests.support.field import QUICK, field_of
from tests.support.links import until_it

pytestmark = pytest.mark.integration


SETTINGS = HostSettings(**QUICK)


async def said(module: Module, n: int) -> Any:
    run = await module.jobs["say"].trigger(n)
    return await run.result(timeout=45)


class TestTwoHosts:
    async def test_of_one_project_do_their_own_jobs(self, nats_url: str, project: str):
        async with field_of(nats_url, project) as field:
            shop, mail = counting("shop"), counting("mail")
            first, second = await field.host(shop), await field.host(mail)
            assert first.host_id != second.host_id
            assert (await said(shop, 1), await said(mail, 2)) == ("shop 1", "mail 2")
            assert {host.host_id for host in await field.client.hosts.list()} == {first.host_id, second.host_id}
            assert [job.job for job in first.health().jobs] == ["shop.say", "shop.say_plainly"]
            await first.close()
            with pytest.raises(JobsNotHosted):
                await said(shop, 3)
            assert await said(mail, 4) == "mail 4"
            assert (first.health().state, second.health().state) == ("closed", "serving")

    async def test_of_two_projects_never_meet(self, nats_url: str, project: str):
        other = f"{project}-2"
        async with field_of(nats_url, project) as one, field_of(nats_url, other) as two:
            shop, twin = counting("shop"), counting("shop")
            await one.host(shop)
            await two.host(twin)
            assert (await said(shop, 1), await said(twin, 2)) == ("shop 1", "shop 2")
            assert [run.result for run in await one.client.runs.list()] == ["shop 1"]
            assert [run.result for run in await two.client.runs.list()] == ["shop 2"]

    async def test_of_one_module_share_its_limit(self, nats_url: str, project: str):
        async with field_of(nats_url, project) as field:
            shop = counting("shop")
            await field.host(shop)
            second = await field.host(shop)
            runs = [await shop.jobs["say"].trigger(n) for n in range(20)]
            assert [await run.result(timeout=45) for run in runs] == [f"shop {n}" for n in range(20)]
            await second.close()
            assert await said(shop, 21) == "shop 21"  # the first one is bound still

    async def test_of_one_module_in_two_projects_leave_open_which_is_meant(self, nats_url: str, project: str):
        other = f"{project}-2"
        async with field_of(nats_url, project) as one, field_of(nats_url, other) as two:
            shop = counting("shop")
            await one.host(shop)
            second = await two.host(shop)
            with pytest.raises(AmbiguousHostError, match=rf"{project} and {other}; write client\.get_job\(job\)"):
                await said(shop, 1)
            with pytest.raises(AmbiguousHostError):
                await asyncio.to_thread(shop.jobs["say"].trigger_blocking, 1)
            for each in (one, two):
                run = await each.client.get_job(shop.jobs["say"]).trigger(5)
                assert await run.result(timeout=45) == "shop 5"
                assert (await each.client.runs.get(run.run_id)).host_id in {
                    host.host_id for host in await each.client.hosts.list()
                }
            await second.close()
            assert await said(shop, 2) == "shop 2"


class HostThread:
    """A host in a thread with an event loop of its own."""

    def __init__(self, *modules: Module, url: str, project: str) -> None:
        self.host = JobHost(modules, nats=url, project=project, settings=SETTINGS)
        self.serving = threading.Event()
        self.failure: BaseException | None = None
        self._stop: Any = None
        self._thread = threading.Thread(target=self._run, name="hosting")
        self._thread.start()
        assert self.serving.wait(20)

    def stop(self) -> None:
        self._stop()
        self._thread.join(20)
        assert not self._thread.is_alive()
        assert self.failure is None

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 - told by stop
            self.failure = failure
        finally:
            self.serving.set()

    async def _serve(self) -> None:
        stopping = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._stop = lambda: loop.call_soon_threadsafe(stopping.set)
        async with self.host:
            self.serving.set()
            await stopping.wait()


class TestThreads:
    async def test_a_host_beside_the_main_thread(self, nats_url: str, project: str):
        shop = counting("shop")
        hosting = await asyncio.to_thread(HostThread, shop, process_jobs.jobs, url=nats_url, project=project)
        try:
            assert hosting.host.health().ready  # asked from another thread
            async with JobClient(nats_url, project=project) as client:
                for job, wanted in (("say", "shop 1"), ("say_plainly", "shop 1 in jetjobs handler")):
                    run = await client.get_job("shop", job).trigger(1)
                    assert await run.result(timeout=45) == wanted
                isolated = await client.get_job(process_jobs.echo).trigger(b"there and back")
                assert await isolated.result(timeout=45) == b"there and back"
            # What it is bound to is the thread's loop: from this one's, a thread may block on it.
            bound = await asyncio.to_thread(shop.jobs["say"].trigger_blocking, 2)
            assert await asyncio.to_thread(bound.result, 15) == "shop 2"
        finally:
            await asyncio.to_thread(hosting.stop)
        assert hosting.host.health().state == "closed"

    async def test_two_threads_with_a_host_each_and_a_blocking_client(self, nats_url: str, project: str):
        modules = counting("shop"), counting("mail")
        threads = [await asyncio.to_thread(HostThread, each, url=nats_url, project=project) for each in modules]

        def call() -> list[Any]:
            with SyncJobClient(nats_url, project=project) as client:
                return [client.get_job(name, "say").trigger(1).result(15) for name in ("shop", "mail")]

        try:
            assert await asyncio.to_thread(call) == ["shop 1", "mail 1"]
        finally:
            for each in threads:
                await asyncio.to_thread(each.stop)

    async def test_run_is_for_the_main_thread_and_says_what_to_write_instead(self, nats_url: str, project: str):
        host = JobHost([counting("shop")], nats=nats_url, project=project)
        with pytest.raises(HostError, match=r"only the main thread may; .* `async with JobHost"):
            await asyncio.to_thread(host.run)
        assert host.health().state == "new"


async def test_a_host_that_is_switched_off_prepares_nothing(nats_url: str, project: str):
    host = JobHost([counting("shop")], project=project, nats=nats_url, settings=SETTINGS, enabled=False)
    await host.prepare()
    await host.close()
    async with JobClient(nats_url, project=project, timeout=1) as client:
        with pytest.raises(ProjectNotPrepared):
            await client.jobs.list()


async def test_a_host_that_is_switched_off_binds_and_is_ready(nats_url: str, project: str):
    async with field_of(nats_url, project) as field:
        await field.host(counting("shop"))
        caller = counting("shop")
        off = await field.host(caller, enabled=False)
        assert await said(caller, 3) == "shop 3"
        health = off.health()
        assert (health.state, health.ready, health.jobs) == ("off", True, ())


async def test_a_host_that_is_closed_while_it_starts_is_closed(nats_url: str, project: str):
    """From wherever in its start; nothing goes on, and a second start at the same time is refused."""
    module = counting("shop")
    async with JobHost([module], project=project, nats=nats_url, settings=SETTINGS):
        before = len(asyncio.all_tasks())
    for steps in (1, 5, 15, 30, 60, 120):
        host = JobHost([module], project=project, nats=nats_url, settings=SETTINGS)
        starting = [asyncio.create_task(host.start()) for _ in range(2)]
        for _ in range(steps):
            await asyncio.sleep(0)
        await host.close()
        done = await asyncio.gather(*starting, return_exceptions=True)
        assert [type(each) for each in done] in ([type(None), HostError], [HostError, HostError])
        assert host.health().state == "closed"
    async with JobClient(nats_url, project=project) as client:
        assert await client.hosts.list() == []

    async def quiet() -> bool:
        return len(asyncio.all_tasks()) < before

    await until_it(quiet)
