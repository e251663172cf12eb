"""What a soak asks for: several flows, each at a rate of its own."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable

from nats.aio.client import Client

from jetjobs import JetJobsError, JobClient, JobRun, TriggerRequest
from tests.soak.ledger import Ledger

LARGE = 200_000
MANY = 50
KEYS_AGAIN = 20  # a key is asked for once more when so many others have been


class Flows:
    """Asks, and writes down what must come of it. What goes wrong in asking is in `errors`."""

    def __init__(self, client: JobClient, connection: Client, ledger: Ledger) -> None:
        self.errors: list[str] = []
        self._client = client
        self._connection = connection
        self._ledger = ledger
        self._keys: deque[tuple[int, str]] = deque()
        self._running: deque[JobRun[object]] = deque()

    async def run(self, seconds: float) -> None:
        """Ask for so long."""
        until = time.monotonic() + seconds
        rates: dict[Callable[[int], Awaitable[None]], float] = {
            self._light: 8,
            self._threaded: 4,
            self._chatty: 0.5,
            self._isolated: 0.5,
            self._retried: 0.5,
            self._keyed: 1,
            self._delayed: 2,
            self._cancelled: 0.3,
            self._skipped: 1,
            self._late: 0.2,
            self._large: 0.5,
            self._parent: 1,
            self._event: 2,
            self._many: 0.1,
        }
        async with asyncio.TaskGroup() as tasks:
            for flow, rate in rates.items():
                tasks.create_task(self._repeat(flow, 1 / rate, until))
        for run in self._running:
            await run.cancel()

    async def _repeat(self, flow: Callable[[int], Awaitable[None]], pause: float, until: float) -> None:
        due = time.monotonic()
        for number in itertools.count():
            if due > until:
                return
            await asyncio.sleep(max(due - time.monotonic(), 0))
            due += pause
            try:
                await flow(number)
            except JetJobsError as error:
                self.errors.append(f"asking for {flow.__name__} {number}: {error!r}")

    async def _ask(self, job: str, payload: object = None, *statuses: str) -> JobRun[object]:
        run = await self._client.get_job("soak", job).trigger(payload)
        self._ledger.expect(job, run.run_id, *statuses)
        return run

    async def _light(self, number: int) -> None:
        await self._ask("light", number)

    async def _threaded(self, number: int) -> None:
        await self._ask("threaded", number)

    async def _chatty(self, number: int) -> None:
        await self._ask("chatty", number)

    async def _isolated(self, number: int) -> None:
        await self._ask("isolated", 1000 + number)

    async def _retried(self, number: int) -> None:
        failures = number % 4
        await self._ask("retried", failures, "FAILED" if failures == 3 else "SUCCEEDED")

    async def _skipped(self, _number: int) -> None:
        await self._ask("skipped", None, "SKIPPED")

    async def _late(self, _number: int) -> None:
        await self._ask("late", None, "TIMED_OUT")

    async def _parent(self, number: int) -> None:
        await self._ask("parent", number)
        self._ledger.children += 1

    async def _large(self, number: int) -> None:
        await self._ask("large", chr(ord("a") + number % 26) * LARGE)

    async def _keyed(self, number: int) -> None:
        """Twice at once, and once more later: one run, of which the record tells after it has shrunk, too."""
        job = self._client.get_job("soak", "keyed")
        both = await asyncio.gather(*(job.trigger(number, idempotency_key=f"key-{number}") for _ in range(2)))
        if len({run.run_id for run in both}) != 1 or [run.duplicate for run in both].count(True) != 1:
            self.errors.append(f"key {number} made {both}")
        self._ledger.expect("keyed", both[0].run_id)
        self._keys.append((number, both[0].run_id))
        if len(self._keys) > KEYS_AGAIN:
            old, run_id = self._keys.popleft()
            again = await job.trigger(old, idempotency_key=f"key-{old}")
            if not again.duplicate or again.run_id != run_id:
                self.errors.append(f"key {old} made another run")

    async def _delayed(self, number: int) -> None:
        run = await self._client.get_job("soak", "delayed").trigger(number, delay=2 + number % 17)
        stopped = number % 5 == 0
        self._ledger.expect("delayed", run.run_id, "CANCELLED" if stopped else "SUCCEEDED")
        if stopped:
            await run.cancel()

    async def _cancelled(self, _number: int) -> None:
        """Each is cancelled when the next but one is asked for: it runs by then."""
        self._running.append(await self._ask("cancelled", None, "CANCELLED"))
        if len(self._running) > 2:
            await self._running.popleft().cancel()

    async def _event(self, number: int) -> None:
        """One of two passes the filter."""
        passes = number % 2 == 0
        await self._connection.publish(
            "soak.orders", json.dumps({"total": 150 if passes else 50, "n": number}).encode()
        )
        self._ledger.events += passes

    async def _many(self, number: int) -> None:
        asked = await self._client.trigger_many(TriggerRequest(("soak", "light"), number) for _ in range(MANY))
        for run in asked:
            if isinstance(run, JobRun):
                self._ledger.expect("light", run.run_id)
            else:
                self.errors.append(f"of many: {run!r}")
