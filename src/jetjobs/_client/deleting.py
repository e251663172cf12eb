"""Letting go of a run that has ended: read, decide, write; again when somebody else wrote first."""

from __future__ import annotations

from typing import Final, NamedTuple

from jetjobs._client.calls import Deadline, Unconfirmed, read
from jetjobs._client.reading import Reader
from jetjobs._client.scope import Scope
from jetjobs._core.models import RunKey, RunRecord
from jetjobs._core.policy import JobRetention
from jetjobs._core.retention import Fate, has_bodies_outside, stub
from jetjobs._core.run_changes import ChangeOutcome, Ended, RunChange, change, fate_when_deleted, stub_ttl
from jetjobs._ports import Stored
from jetjobs.errors import AnswerUnknown, BrokerUnavailable, RunNotFound, WrongRevision


class Deletion(NamedTuple):
    """How a run is to be let go. `named`: a schedule still waits for its record."""

    retention: JobRetention
    named: bool = False
    forget_keys: bool = False
    dry_run: bool = False


class Deleting:
    """One delete of one run."""

    def __init__(self, scope: Scope, run: RunKey, asked: Deletion) -> None:
        self._scope = scope
        self._run = run
        self._asked = asked
        self._reader = Reader(scope)
        # What a write without an answer was to let go: bodies must go with it, and it may be gone by the next look.
        self._let_go: RunRecord | None = None

    async def delete(self, deadline: Deadline) -> RunChange:
        """Let go of the run, unless it is active.

        Raises:
            RunNotFound: neither a record nor a message of it.
            AnswerUnknown: not confirmed in time; delete again.
            BrokerUnavailable: nothing was sent.
        """
        unconfirmed = Unconfirmed(deadline, f"delete of run {self._run}")
        while True:
            stored = await unconfirmed.look(self._reader.stored(self._run, deadline))
            if stored is None:
                return await unconfirmed.look(self._without_record(deadline))
            ended = await unconfirmed.look(self._ended(stored, deadline))
            fate = fate_when_deleted(ended, self._asked.retention, forget_keys=self._asked.forget_keys)
            try:
                if fate is Fate.KEEP or self._asked.dry_run or await self._written(stored, ended, fate):
                    break
            except (AnswerUnknown, BrokerUnavailable) as error:
                if isinstance(error, AnswerUnknown):
                    self._let_go = self._let_go or stored.record
                await unconfirmed.pause(error)
        if fate is not Fate.KEEP and not self._asked.dry_run:
            await self._purge_bodies(self._let_go or stored.record, deadline)
        return change(self._run, _FATES[fate], stored.record.status)

    async def _without_record(self, deadline: Deadline) -> RunChange:
        if self._let_go is not None:
            await self._purge_bodies(self._let_go, deadline)
            return change(self._run, ChangeOutcome.DELETED, self._let_go.status)
        waiting = await self._reader.waiting(self._run, deadline)
        if waiting is None:
            raise RunNotFound(f"no run {self._run} in project {self._scope.project!r}: nothing to delete")
        return change(self._run, ChangeOutcome.STILL_ACTIVE, waiting.record.status)

    async def _ended(self, stored: Stored, deadline: Deadline) -> Ended:
        record, broker = stored.record, self._scope.backend.broker
        now = await self._scope.time.now(broker, deadline)
        in_stream = record.status.is_terminal and bool(
            await read(lambda: broker.in_stream([self._run]), deadline, f"looking for messages of {self._run}")
        )
        return Ended(record, now - (record.finished_at or stored.stored_at), in_stream, named=self._asked.named)

    async def _written(self, stored: Stored, ended: Ended, fate: Fate) -> bool:
        """Whether it is done; False when somebody else wrote first."""
        runs = self._scope.backend.runs
        if fate is Fate.DELETE:
            return await runs.delete(self._run, stored.revision)
        ttl = stub_ttl(ended, self._asked.retention, forget_keys=self._asked.forget_keys)
        try:
            await runs.update(stub(stored.record), stored.revision, ttl=ttl)
        except WrongRevision:
            return False
        return True

    async def _purge_bodies(self, record: RunRecord, deadline: Deadline) -> None:
        if has_bodies_outside(record):
            payloads = self._scope.backend.payloads
            await read(lambda: payloads.purge(record.run_id), deadline, f"deleting payloads of {self._run}")


_FATES: Final = {
    Fate.KEEP: ChangeOutcome.STILL_ACTIVE,
    Fate.SHRINK: ChangeOutcome.SHRUNK,
    Fate.DELETE: ChangeOutcome.DELETED,
}
