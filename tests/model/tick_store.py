"""The schedule's records met so far, each with a number; what deciders read, and what a reconciler would do."""

from __future__ import annotations

from dataclasses import replace

from jetjobs._core import schedules
from jetjobs._core.models import RunRecord
from jetjobs._core.occurrences import Decision, Tick
from jetjobs._core.schedule_record import ScheduleRecord
from jetjobs._core.starting import Start
from tests.model.tick_values import Fires, Setup, World, at, place, record_of


class TickStore:
    """Numbers for the schedule's records."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._known: list[ScheduleRecord] = []
        self._numbers: dict[ScheduleRecord, int] = {}
        self._decided: dict[tuple[object, ...], Decision] = {}

    def of(self, number: int) -> ScheduleRecord:
        """The record with that number."""
        return self._known[number]

    def number(self, schedule: ScheduleRecord) -> int:
        """The record's number, without what no decision looks at."""
        slim = replace(schedule, last_run_at=None, last_error=None, updated_at=None)
        number = self._numbers.get(slim)
        if number is None:
            number = self._numbers[slim] = len(self._known)
            self._known.append(slim)
        return number

    def write(self, w: World, schedule: ScheduleRecord) -> World:
        """The world after a write that won."""
        return w._replace(schedule=self.number(schedule))

    def records(self, w: World, schedule: ScheduleRecord) -> dict[str, RunRecord | None]:
        """What a decider reads of the schedule's live runs."""
        live = [place(o) for o in schedule.live]
        return {schedule.run_id(at(o)): record_of(schedule, o, w.runs[o], w.t) for o in live}

    def decide(self, w: World, number: int, tick: Tick | None = None) -> Decision:
        """The product's decision on the record with that number."""
        question = (number, w.t, w.runs, tick)
        known = self._decided.get(question)
        if known is None:
            schedule = self.of(number)
            runs = self.records(w, schedule)
            known = self._decided[question] = self._setup.decide(schedule, at(w.t), runs=runs, tick=tick)
        return known

    def stopped(self, schedule: ScheduleRecord, op: str, t: int) -> ScheduleRecord:
        """The schedule paused or deleted."""
        return schedules.delete(schedule, at(t)) if op == "delete" else schedules.pause(schedule, at(t))

    def missing(self, w: World, schedule: ScheduleRecord, own: int = 0) -> Start | None:
        """The first decided run that has neither record nor trigger."""
        for start in self._setup.starts(schedule):
            o = place(start.occurrence)
            there = w.runs[o].status or o in w.waiting or any(m.o == o and not m.tick for m in w.msgs)
            if o != own and not there:
                return start
        return None

    def mended(self, w: World) -> World:
        """The world once the stream fires what the record says."""
        schedule = self.of(w.schedule)
        if not self._setup.mends:
            return w
        if not schedule.is_active:
            return w._replace(fires=None)
        if w.fires is not None and w.fires.revision == schedule.revision:
            return self.write(w, schedules.anchored(schedule, at(w.fires.at)))
        return w._replace(fires=Fires(schedule.revision, w.t))

    def to_reconcile(self, w: World) -> bool:
        """Whether a reconciler's pass would change anything."""
        schedule = self.of(w.schedule)
        after = self.decide(w, w.schedule).schedule
        return self.number(after) != w.schedule or self.missing(w, schedule) is not None or self.mended(w) != w

    @staticmethod
    def tidy(w: World) -> World:
        """The same world with the numbers of its messages replaced by their ranks, and its hosts in order."""
        ids = sorted({m.mid for m in w.msgs} | {h.mid for h in w.hosts if h.mid})
        rank = {mid: n for n, mid in enumerate(ids, 1)} | {0: 0}
        runs = tuple(r._replace(owner=rank.get(r.owner, -1)) for r in w.runs)
        a, b = (h._replace(mid=rank[h.mid]) for h in w.hosts)
        swapped = (0, 2, 1, 3) if b < a else (0, 1, 2, 3)
        msgs = tuple(m._replace(mid=rank[m.mid], holder=swapped[m.holder]) for m in w.msgs)
        return w._replace(runs=runs, hosts=(b, a) if b < a else (a, b), msgs=msgs)
