"""What people tell hosts over core NATS: look at a job's orders, stop taking runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Final

from jetjobs._core import signal_subjects
from jetjobs._core.gateway_calls import is_inbox
from jetjobs._core.models import JobAddress
from jetjobs._nats.inbound import Inbound
from jetjobs._nats.link import Link
from jetjobs._ports import DrainAnswer
from jetjobs.errors import AnswerUnknown, ProjectNotPrepared

_ASK_TIMEOUT: Final = 2.0


class OperatorSignals:
    """Both ends of these signals, of one project."""

    def __init__(self, link: Link, project: str) -> None:
        self._link = link
        self._project = project

    async def ring_control(self, job: JobAddress) -> None:
        """Tell all hosts, at once and without guarantee, that something was ordered for a job."""
        self._link.connection.post(signal_subjects.control_subject(self._project, job))

    async def hear_controls(self, on_control: Callable[[JobAddress], None]) -> None:
        """Hear that doorbell for all the project's jobs for as long as the connection is open."""

        def rung(message: Inbound) -> None:
            job = signal_subjects.parse_control_subject(self._project, message.subject)
            if job is not None:
                on_control(job)

        await self._link.connection.listen(signal_subjects.all_controls(self._project), rung)

    async def ask_drain(self, host_id: str, actor: str | None) -> DrainAnswer | None:
        """Ask a host to stop taking runs; its answer, or `None` when nobody of that id is there."""
        subject = signal_subjects.drain_subject(self._project, host_id)
        try:
            data = await self._link.writer.request(subject, json.dumps({"actor": actor}).encode(), timeout=_ASK_TIMEOUT)
        except ProjectNotPrepared:  # what silence means elsewhere; nobody listens on that host's subject
            return None
        answer = _answer(data)
        if answer is None:
            raise AnswerUnknown(f"host {host_id} was asked to drain and answers something that means nothing")
        return answer

    async def answer_drains(self, host_id: str, on_drain: Callable[[str | None], DrainAnswer]) -> None:
        """Let oneself be asked for as long as the connection is open."""

        def asked(message: Inbound) -> None:
            # As for other questions: the answer is written with this host's rights, so it goes to inboxes only.
            if is_inbox(message.reply):
                answer = on_drain(_actor(message.data))
                self._link.connection.post(message.reply, json.dumps(asdict(answer)).encode())

        await self._link.connection.listen(signal_subjects.drain_subject(self._project, host_id), asked)


def _actor(data: bytes) -> str | None:
    """Who asks; `None` where that isn't said, or can't be read."""
    try:
        actor = json.loads(data or b"{}").get("actor")
    except (ValueError, AttributeError):
        return None
    return actor[:200] if isinstance(actor, str) else None


def _answer(data: bytes) -> DrainAnswer | None:
    try:
        said: dict[str, Any] = json.loads(data)
        return DrainAnswer(int(said["running"]), bool(said["closes"]), again=bool(said.get("again")))
    except (ValueError, KeyError, TypeError):
        return None
