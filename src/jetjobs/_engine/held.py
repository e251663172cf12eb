"""The runs this process holds, from the delivery's arrival until its slot is free again.

Everything that asks "do I have this run?" asks here: a second delivery of it, another host before it takes over,
the cancel doorbell, renewal, heartbeat, drain.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator

    from jetjobs._core.bodies import Body
    from jetjobs._core.messages import Trigger
    from jetjobs._core.models import LogLine, RunKey, RunRecord
    from jetjobs._engine.execution import Execution
    from jetjobs._ports import Delivery
    from jetjobs.context import Journal


class HeldRun:
    """One delivery in hand and what became of it so far. Mutable, owned by the event loop's thread.

    `claim` is set before the write that claims, so that an ask about a claim whose answer was lost is
    answered truly. `record` and `revision` are there once the claim is known to stand.
    """

    __slots__ = (
        "beat",
        "beat_at",
        "claim",
        "confirmed_at",
        "delivery",
        "earlier_logs",
        "early",
        "ending",
        "execution",
        "fenced",
        "fetched",
        "journal",
        "key",
        "ordered",
        "record",
        "renewing",
        "revision",
        "saved",
        "task",
        "trigger",
    )

    def __init__(self, key: RunKey, trigger: Trigger, delivery: Delivery, now: float) -> None:
        self.key = key
        self.trigger = trigger
        self.delivery = delivery
        self.claim: str | None = None
        self.record: RunRecord | None = None
        self.revision = 0
        self.journal: Journal | None = None
        self.earlier_logs: tuple[LogLine, ...] = ()
        self.execution: Execution | None = None
        # Saves the outcome of a handler that ignores its order to stop, while it still runs.
        self.early: asyncio.Task[None] | None = None
        self.saved: RunRecord | None = None
        self.task: asyncio.Task[None] | None = None
        # Monotonic seconds of the last proof that the broker gave the delivery to nobody else.
        self.confirmed_at = now
        self.beat_at = now
        self.renewing: asyncio.Task[None] | None = None
        self.beat: asyncio.Task[None] | None = None
        self.ending = False
        self.fenced = False
        self.ordered: str | None = None  # to stop, before there was a handler: it is not to be called
        self.fetched: Body | None = None  # a large payload's bytes, for the child process that runs the handler

    @property
    def has_said(self) -> bool:
        """Whether the handler logged or reported anything that the record doesn't have yet."""
        journal = self.journal
        return journal is not None and journal.changed

    def said(self) -> dict[str, Any]:
        """The record's fields that the handler's journal fills; logs of earlier attempts stay before its own."""
        journal = self.journal
        if journal is None:
            return {}
        fields: dict[str, Any] = {"logs": (*self.earlier_logs, *journal.logs), "progress": journal.progress}
        if journal.checkpoint is not None:
            fields["checkpoint_body"] = journal.checkpoint
        return fields

    def stop(self, reason: str) -> None:
        """Tell the handler to stop; the first reason stays, except that `fenced` overrides every other."""
        if reason == "fenced":
            self.fenced = True
        if self.execution is not None:
            self.execution.stop(reason)
        elif self.ordered is None:
            self.ordered = reason


class HeldRuns:
    """All runs in hand, by key."""

    def __init__(self) -> None:
        self._runs: dict[RunKey, HeldRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def __iter__(self) -> Iterator[HeldRun]:
        return iter(list(self._runs.values()))

    def __contains__(self, key: RunKey) -> bool:
        return key in self._runs

    def get(self, key: RunKey) -> HeldRun | None:
        """The run in hand, if it is."""
        return self._runs.get(key)

    def take(self, held: HeldRun) -> bool:
        """Note a run as in hand; False when it already is."""
        return self._runs.setdefault(held.key, held) is held

    def release(self, held: HeldRun) -> None:
        """Forget a run, and what it holds in a circle: left to the garbage collector, that costs a tenth of a run."""
        held.execution = held.task = None
        if self._runs.get(held.key) is held:
            del self._runs[held.key]

    def holds(self, key: RunKey, claim: str | None) -> bool:
        """Whether this process is at work on the run under that claim: the answer to another host's ask.

        A fenced run is held too, until its code has gone: nothing of it will be recorded, but as long as it runs
        nobody may start the next attempt beside it.
        """
        held = self._runs.get(key)
        return held is not None and held.claim is not None and held.claim == claim
