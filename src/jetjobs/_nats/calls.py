"""Call gateways over core NATS: a queue group per job, and answers to inboxes only."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from nats.aio.subscription import Subscription

from jetjobs._core import names, signal_subjects
from jetjobs._core.gateway_calls import is_inbox
from jetjobs._core.models import JobAddress
from jetjobs._log import get_logger
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._ports import Call, OnCall

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
        await self._link.round_trip(names.stream(self._project))

    async def stop(self) -> None:
        """Leave the groups once what the server had sent was heard."""
        left, self._subscriptions = self._subscriptions, []
        await self._link.leave(left, names.stream(self._project))

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
