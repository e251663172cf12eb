"""What a host does with a delivery of the schedule, and what its reconciler does, one write a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from jetjobs._core.occurrences import Tick
from jetjobs._core.settled_runs import run_ended
from tests.model.tick_store import TickStore
from tests.model.tick_values import EDITED, FIRST, Host, Msg, Phase, Run, Setup, World, at, place, record_of
from tests.model.values import NAMES

Step = tuple[str, World, bool, str | None]


class TickHosts:
    """The moves of both hosts."""

    def __init__(self, setup: Setup, store: TickStore) -> None:
        self._setup = setup
        self._store = store

    def moves(self, w: World, i: int) -> Iterator[Step]:
        """What host `i` can do next with its delivery."""
        h = w.hosts[i]
        if h.phase == Phase.IDLE:
            return
        if w.faults:
            # It starts anew, and a start reconciles.
            crashed = self.put(self._at(w, 0, Phase.GOT), i, Host())._replace(faults=w.faults - 1)
            yield f"{NAMES[i]}: crashes", crashed, True, None
        for label, after, wrong in _STEPS[h.phase](self, w, i):
            yield f"{NAMES[i]}: {label}", after, False, wrong

    @staticmethod
    def put(w: World, i: int, host: Host) -> World:
        """The world with another host `i`."""
        return w._replace(hosts=(host, w.hosts[1]) if i == 0 else (w.hosts[0], host))

    def _to(self, w: World, i: int, phase: int, snap: int | None = None) -> World:
        h = w.hosts[i]
        return self.put(w, i, h._replace(phase=phase, snap=0 if snap is None else snap))

    def _run(self, w: World, o: int, run: Run) -> World:
        return w._replace(runs=(*w.runs[:o], run, *w.runs[o + 1 :]))

    def _tick_of(self, h: Host) -> Tick:
        line = FIRST.line if h.tick == 1 else str(EDITED["line"])
        return Tick(at(h.o), line, "UTC", h.tick)

    # ---------------------------------------------------------------- a delivery

    def _got(self, w: World, i: int) -> Iterator[tuple[str, World, str | None]]:
        h = w.hosts[i]
        run = w.runs[h.o]
        if run.status in {"S", "F"}:
            yield f"{h.o} has ended", self._to(w, i, Phase.CLEARING), None
        elif run.status == "R" and run.owner != h.mid:
            yield f"{h.o} is another message's", self._to(w, i, Phase.ACKING), None
        elif run.status == "R":
            at_work = any(x.o == h.o and x.phase == Phase.RUNS for x in w.hosts)
            if at_work:
                yield "its owner answers", self.put(w, i, Host()), None
            else:
                lost = self._run(w, h.o, Run("F", h.mid, w.t))
                yield f"{h.o} was lost", self._to(lost, i, Phase.CLEARING), None
        elif h.tick:
            yield "reads the schedule", self._to(w, i, Phase.DECIDING, w.schedule), None
        else:
            yield "no record", self._to(w, i, Phase.CREATING), None

    def _deciding(self, w: World, i: int) -> Iterator[tuple[str, World, str | None]]:
        h = w.hosts[i]
        if self._setup.compares and h.snap != w.schedule:
            yield "the schedule changed, reads again", self._to(w, i, Phase.GOT), None
            return
        decision = self._store.decide(w, h.snap, self._tick_of(h))
        after = self._store.write(w, decision.schedule)
        yield f"decides {h.o}", self._to(after, i, Phase.STORING, after.schedule), None

    def _storing(self, w: World, i: int) -> Iterator[tuple[str, World, str | None]]:
        h = w.hosts[i]
        schedule = self._store.of(h.snap)
        verdict = self._setup.verdict(schedule, self._tick_of(h), at(w.t))
        stored = self._store_trigger(w, h.snap, own=h.o if verdict == "run" else 0)
        if stored is not None:
            yield stored[0], stored[1], None
        elif verdict == "run":
            yield f"{h.o} is to run", self._to(w, i, Phase.CREATING), None
        else:
            # Purging is bounded by what was read: the message of the revision that isn't to fire.
            gone = verdict == "purge" and w.fires is not None and not self._store.of(w.schedule).is_active
            after = w._replace(fires=None) if gone and self._setup.mends else w
            yield f"{h.o}: {verdict}", self._to(after, i, Phase.ACKING), None

    def _store_trigger(self, w: World, snap: int, own: int = 0) -> tuple[str, World] | None:
        start = self._store.missing(w, self._store.of(snap), own)
        if start is None:
            return None
        o = place(start.occurrence)
        if start.start_at > at(w.t):
            return f"stores {o} for later", w._replace(waiting=tuple(sorted((*w.waiting, o))))
        mid = max([0, *(m.mid for m in w.msgs), *(x.mid for x in w.hosts), *(r.owner for r in w.runs)]) + 1
        return f"stores the trigger of {o}", w._replace(msgs=(*w.msgs, Msg(mid, o, 0)))

    def _creating(self, w: World, i: int) -> Iterator[tuple[str, World, str | None]]:
        h = w.hosts[i]
        if w.runs[h.o].status:
            yield "create conflicts", self._to(w, i, Phase.GOT), None
        else:
            running = self._to(self._run(w, h.o, Run("R", h.mid)), i, Phase.RUNS)
            yield f"STARTS {h.o}", running._replace(started=w.started | 1 << h.o), self._wrong_start(w, h.o)

    def _wrong_start(self, w: World, o: int) -> str | None:
        if w.started >> o & 1:
            return "an occurrence starts twice"
        fell_away = w.stopped < o and (not w.back or o <= w.back)
        if self._setup.op in {"pause", "delete", "resume"} and w.op and fell_away:
            return "an occurrence of a stopped schedule starts"
        if self._setup.op == "edit" and w.op and o > w.stopped and o == w.stopped + 1:
            return "an occurrence of the old line starts after the edit"
        beside = any(run.status == "S" and run.end >= o > n for n, run in enumerate(w.runs))
        if self._setup.policy.get("overlap", "skip") == "skip" and beside:
            return "an occurrence starts that fell due beside an earlier run"
        return None

    def _runs(self, w: World, i: int) -> Iterator[tuple[str, World, str | None]]:
        h = w.hosts[i]
        yield f"{h.o} ends", self._to(self._run(w, h.o, Run("S", h.mid, w.t)), i, Phase.CLEARING), None

    def _clearing(self, w: World, i: int) -> Iterator[tuple[str, World, str | None]]:
        h = w.hosts[i]
        schedule = self._store.of(w.schedule)
        record = record_of(schedule, h.o, w.runs[h.o], w.t)
        assert record is not None
        after = self._store.write(w, run_ended(schedule, record))
        yield f"the schedule hears of {h.o}", self._to(after, i, Phase.ACKING), None

    def _acking(self, w: World, i: int) -> Iterator[tuple[str, World, str | None]]:
        h = w.hosts[i]
        rest = tuple(m for m in w.msgs if m.mid != h.mid)
        yield f"acks {h.mid}", self.put(w._replace(msgs=rest), i, Host()), None

    # ---------------------------------------------------------------- its reconciler

    def reconcile(self, w: World, i: int) -> Iterator[Step]:
        """A pass after a start or reconnect, and by upkeep, which is drawn out to the end of time."""
        phase, snap = w.recon[i]
        name = f"reconciler {i + 1}"
        if phase == Phase.GOT or (not phase and w.t == self._setup.last and self._store.to_reconcile(w)):
            yield f"{name}: reads the schedule", self._at(w, i, Phase.DECIDING, w.schedule), False, None
        elif phase == Phase.DECIDING and self._setup.compares and snap != w.schedule:
            yield f"{name}: the schedule changed", self._at(w, i, Phase.GOT), False, None
        elif phase == Phase.DECIDING:
            after = self._store.write(w, self._store.decide(w, snap).schedule)
            yield f"{name}: decides", self._at(after, i, Phase.STORING, after.schedule), False, None
        elif phase == Phase.STORING:
            stored = self._store_trigger(w, snap)
            if stored is not None:
                yield f"{name}: {stored[0]}", stored[1], False, None
            else:
                yield f"{name}: looks at the stream", self._at(w, i, Phase.MENDING), False, None
            if w.faults:
                yield f"{name}: crashes", self._at(w, i, Phase.GOT)._replace(faults=w.faults - 1), True, None
        elif phase == Phase.MENDING:
            yield f"{name}: the stream follows", self._at(self._store.mended(w), i, Phase.IDLE), False, None

    def _at(self, w: World, i: int, phase: int, snap: int = 0) -> World:
        return w._replace(recon=(*w.recon[:i], (phase, snap), *w.recon[i + 1 :]))


_STEPS: Final[dict[int, Callable[[TickHosts, World, int], Iterator[tuple[str, World, str | None]]]]] = {
    Phase.GOT: TickHosts._got,
    Phase.DECIDING: TickHosts._deciding,
    Phase.STORING: TickHosts._storing,
    Phase.CREATING: TickHosts._creating,
    Phase.RUNS: TickHosts._runs,
    Phase.CLEARING: TickHosts._clearing,
    Phase.ACKING: TickHosts._acking,
}
