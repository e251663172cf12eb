"""Call gateways over core NATS: a queue group per job, and answers to inboxes only."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from nats import errors as nats_errors
from nats.aio.subscription import Subscription

from jetjobs._core import names, signal_subjects
from jetjobs._core.gateway_calls import is_inbox
from jetjobs._core.models import JobAddress
from jetjobs._log import get_logger
from jetjobs._nats.faults import NotFound
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._nats.tuned import end_interest
from jetjobs._ports import Call, OnCall
from jetjobs.errors import BrokerError

_log = get_logger("jetjobs.nats")


class NatsCalls:
    """The calls one host hears; implements `_ports.CallService`."""

    def __init__(self, link: Link, project: str) -> None:
        self._link = link
        self._project = project
        self._subscriptions: list[Subscription] = []
        self._told = False

    async def hear(self, jobs: Iterable[JobAddress], on_call: OnCall) -> None:
        """Join the group of each job; the server knows of it on return."""
        connection = self._link.connection
        for job in jobs:
            heard = partial(self._heard, job, on_call)
            subject = signal_subjects.call_subject(self._project, job)
            self._subscriptions.append(await connection.listen(subject, heard, queue=names.consumer(job)))
        await self._round_trip()

    async def stop(self) -> None:
        """Leave the groups once what the server had sent was heard."""
        left, self._subscriptions = self._subscriptions, []
        connection = self._link.connection
        try:
            if left and connection.is_connected:
                for sub in left:
                    await end_interest(connection.client, sub)
                await self._round_trip()
        except (BrokerError, nats_errors.Error) as failure:
            _log.info("calls not ended cleanly", error=str(failure))
        finally:
            for sub in left:
                connection.abandon(sub)

    async def _round_trip(self) -> None:
        """Return when the server has done what was sent before. Not nats-py's `flush`: its PING overtakes commands."""
        with suppress(NotFound):  # an answer too
            await self._link.api(f"STREAM.INFO.{names.stream(self._project)}")

    def _heard(self, job: JobAddress, on_call: OnCall, message: Inbound) -> None:
        if message.reply and not is_inbox(message.reply):
            # The host would write there with its own rights: on a stream's API, on another job's triggers.
            if not self._told:
                self._told = True
                _log.warning("call refused, its answer would go to no inbox", job=str(job), reply=message.reply[:200])
            return
        on_call(Call(job, message.headers, message.data, partial(self._answer, message.reply)))

    def _answer(self, reply: str, data: bytes) -> None:
        if reply:
            self._link.connection.post(reply, data)
