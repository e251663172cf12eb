"""The records met so far, each with a number, and what a state looks like once its numbers are ranks."""

from __future__ import annotations

from dataclasses import replace

from jetjobs._core.models import RunRecord, RunStatus
from tests.model.values import NAMES, NOW, Phase, World, holds_run


class Records:
    """Numbers for records; 0 is none."""

    def __init__(self) -> None:
        self.by_number: list[RunRecord | None] = [None]
        self._numbers: dict[RunRecord, int] = {}

    def of(self, w: World) -> RunRecord | None:
        """The record as it is in that world."""
        return self.by_number[w.record]

    def canonical(self, w: World) -> World:
        """The same world with sequences and delivery numbers replaced by their ranks."""
        record = self.by_number[w.record]
        owner = record.owner if record is not None else None
        held = {m.seq for m in w.msgs} | {h.seq for h in w.hosts if h.phase != Phase.IDLE}
        rank = {seq: place for place, seq in enumerate(sorted(held), 1)}
        counts: dict[int, set[int]] = {seq: set() for seq in held}
        for m in w.msgs:
            counts[m.seq].add(m.n)
        for h in w.hosts:
            if h.phase != Phase.IDLE:
                counts[h.seq].add(h.n)
        if owner is not None and owner.sequence in counts:
            counts[owner.sequence].add(owner.num_delivered)
        order = {seq: {n: place for place, n in enumerate(sorted(ns | {0}))} for seq, ns in counts.items()}
        msgs = tuple(m._replace(seq=rank[m.seq], n=order[m.seq][m.n]) for m in w.msgs)
        a, b = (h if h.phase == Phase.IDLE else h._replace(seq=rank[h.seq], n=order[h.seq][h.n]) for h in w.hosts)
        number = w.record
        if record is not None and owner is not None:
            seq = rank.get(owner.sequence, 0)
            n = order[owner.sequence][owner.num_delivered] if seq else 0
            if (seq, n) != (owner.sequence, owner.num_delivered):
                number = self.number(replace(record, owner=replace(owner, sequence=seq, num_delivered=n)))
        return w._replace(msgs=msgs, hosts=(a, b), record=number)

    def number(self, record: RunRecord) -> int:
        """The record's number, without what no decision looks at."""
        slim = replace(
            record,
            attempts=(),
            error=None,
            skip_reason=None,
            claim="c",
            started_at=NOW,
            heartbeat_at=NOW,
            finished_at=None,
            retry_at=None,
        )
        number = self._numbers.get(slim)
        if number is None:
            number = self._numbers[slim] = len(self.by_number)
            self.by_number.append(slim)
        return number

    def store(self, w: World, record: RunRecord) -> tuple[World, str | None]:
        """The world after a compare-and-set that won: everybody else's read is out of date."""
        before = self.by_number[w.record]
        wrong = "a terminal record changed" if before is not None and before.status.is_terminal else None
        a, b = (h._replace(seen=0) for h in w.hosts)
        return w._replace(record=self.number(record), hosts=(a, b), reaper=0), wrong

    def mine(self, w: World, i: int) -> bool:
        """Whether the record is RUNNING under the claim of host `i`."""
        record = self.by_number[w.record]
        return record is not None and record.status is RunStatus.RUNNING and bool(w.hosts[i].mine)

    def answers(self, w: World, record: RunRecord) -> bool:
        """What the owner's host says when asked whether it still holds the run under the record's claim."""
        return record.owner is not None and holds_run(w.hosts[NAMES.index(record.owner.host_id)])
