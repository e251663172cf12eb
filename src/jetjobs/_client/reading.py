"""Where a run is: its record, or, while it has none, the message that will make it one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from jetjobs._client.calls import Deadline, read
from jetjobs._client.scope import Scope
from jetjobs._core import codec, headers, names
from jetjobs._core.bodies import Body, ClaimCheck
from jetjobs._core.messages import Message, Trigger
from jetjobs._core.models import RunKey, RunRecord
from jetjobs._core.triggering import waiting_record
from jetjobs._ports import Stored
from jetjobs.errors import AmbiguousRunId, PayloadInvalidError, PermissionMissing, RunNotFound


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run without a record: what it would show, and the messages it waits as."""

    record: RunRecord
    messages: tuple[Message, ...]


class Reader:
    """Reads runs, as often as it takes within a call's deadline."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._project = scope.project
        self._broker = scope.backend.broker
        self._runs = scope.backend.runs
        self._payloads = scope.backend.payloads

    async def stored(self, run: RunKey, deadline: Deadline) -> Stored | None:
        """The record with its revision, `None` while there is none.

        Raises:
            PayloadInvalidError: what is stored there is no record, or one of a newer version.
        """
        try:
            return await read(lambda: self._runs.get(run), deadline, f"reading run {run}")
        except PayloadInvalidError as error:
            raise PayloadInvalidError(f"the record of run {run} can't be read: {error}") from error

    async def last(self, subject: str, deadline: Deadline) -> Message | None:
        """The newest message on a subject."""
        return await read(lambda: self._broker.last(subject), deadline, f"reading {subject}")

    async def waiting(self, run: RunKey, deadline: Deadline) -> Waiting | None:
        """The messages of a run without a record; `None` when there are none.

        A delayed run moves from its schedule to its trigger, so reading in that order misses none; the schedule is
        read once more for one that was put there in between.
        """
        schedules = names.run_schedules(self._project, run)
        trigger = names.trigger_subject(self._project, run)
        found = [await self.last(subject, deadline) for subject in (schedules, trigger)]
        if found == [None, None]:
            found = [await self.last(schedules, deadline)]
        return self._waiting_of([message for message in found if message is not None], run)

    async def snapshot(self, run: RunKey, deadline: Deadline) -> RunRecord | None:
        """The record, or the one a waiting run shows; `None` for no run. One round trip, all three at once."""
        subjects = (names.run_schedules(self._project, run), names.trigger_subject(self._project, run))
        stored, scheduled, queued = await asyncio.gather(
            self.stored(run, deadline), self.last(subjects[0], deadline), self.last(subjects[1], deadline)
        )
        if stored is not None:
            return stored.record
        waiting = self._waiting_of([message for message in (scheduled, queued) if message is not None], run)
        if waiting is None:
            return None
        return replace(waiting.record, payload_digest=await self._digest(waiting.record, deadline))

    async def _digest(self, record: RunRecord, deadline: Deadline) -> str | None:
        """The digest a host would record; `None` when the payload can't be had."""
        body = record.payload_body
        try:
            if body is not None and body.claim is not None:
                body = await self._fetched(body, body.claim, deadline)
            return codec.digest(body.value if body is not None else None)
        except (PayloadInvalidError, PermissionMissing):
            return None

    async def known(self, run: RunKey, deadline: Deadline) -> RunRecord:
        """The run's record, stored or shown.

        Raises:
            RunNotFound: neither a record nor a message.
        """
        stored = await self.stored(run, deadline)
        if stored is None:
            waiting = await self.waiting(run, deadline)
            # It may have started after the first read, and its message may be gone by the second.
            stored = await self.stored(run, deadline)
            if stored is None and waiting is not None:
                return waiting.record
        if stored is None:
            raise RunNotFound(f"no run {run} in project {self._project!r}: neither a record nor a message of it")
        return stored.record

    async def find(self, run_id: str, deadline: Deadline) -> list[RunRecord]:
        """The runs with this id, of whatever job: records, else the one that waits."""
        found = await read(lambda: self._runs.find(run_id), deadline, f"finding run {run_id}")
        if found:
            return [stored.record for stored in found]
        patterns = (
            names.schedule_id_pattern(self._project, run_id),
            names.trigger_id_pattern(self._project, run_id),
        )
        for pattern in patterns:
            message = await self.last(pattern, deadline)
            run = self._run_of(message) if message is not None else None
            if run is not None:
                return [await self.known(run, deadline)]
        found = await read(lambda: self._runs.find(run_id), deadline, f"finding run {run_id}")
        return [stored.record for stored in found]

    async def whole(self, record: RunRecord, deadline: Deadline) -> RunRecord:
        """The record with a large result fetched, so that `record.result` is a value.

        Raises:
            PayloadInvalidError: it is gone, incomplete or changed.
        """
        body = record.result_body
        if body is None or body.claim is None:
            return record
        return replace(record, result_body=await self._fetched(body, body.claim, deadline))

    async def payload(self, record: RunRecord, deadline: Deadline) -> Any:
        """The payload a run had, fetched where it is large.

        Raises:
            PayloadInvalidError: it is gone, incomplete, or was never readable.
        """
        body = record.payload_body
        if body is not None and body.claim is not None:
            body = await self._fetched(body, body.claim, deadline)
        return None if body is None else body.value

    async def _fetched(self, body: Body, claim: ClaimCheck, deadline: Deadline) -> Body:
        data = await read(lambda: self._payloads.get(claim), deadline, f"fetching {claim.subject}")
        return Body(data, body.encoding)

    def _run_of(self, message: Message) -> RunKey | None:
        found = trigger_of(self._project, message)
        return found.key if found is not None else None

    def _waiting_of(self, messages: Sequence[Message], run: RunKey) -> Waiting | None:
        if not messages:
            return None
        newest = max(messages, key=lambda message: message.sequence)
        trigger = trigger_of(self._project, newest)
        if trigger is None:  # what can't be read is a run all the same: its host will say so in a record
            trigger = Trigger(run, None, newest.sequence, newest.stored_at, 0)
        record = waiting_record(trigger, due_at(newest), None)
        return Waiting(record, tuple(messages))


def trigger_of(project: str, message: Message) -> Trigger | None:
    """A trigger, or the trigger a schedule will fire; `None` for what can't be understood."""
    target = message.headers.get(headers.NATS_SCHEDULE_TARGET)
    seen = headers.read_trigger(project, message if target is None else replace(message, subject=target))
    return seen if isinstance(seen, Trigger) else None


def due_at(message: Message) -> datetime | None:
    """When a delayed run's schedule fires; `None` for a message that is no such schedule."""
    line = message.headers.get(headers.NATS_SCHEDULE, "")
    try:
        return headers.read_instant(line.removeprefix("@at ")) if line.startswith("@at ") else None
    except ValueError:
        return None


def only_one(found: Sequence[RunRecord], run_id: str, project: str) -> RunRecord:
    """The one run found.

    Raises:
        RunNotFound, AmbiguousRunId: none, or several.
    """
    match found:
        case [record]:
            return record
        case []:
            raise RunNotFound(f"no run {run_id!r} in project {project!r}: neither a record nor a message of it")
        case _:
            jobs = ", ".join(sorted(str(record.run_key.address) for record in found))
            raise AmbiguousRunId(f"run id {run_id!r} is used by several jobs ({jobs}); give module and job")
