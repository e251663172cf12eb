"""One schedule, two hosts, a broker that loses and repeats ticks, and an operator: every next state of every state.

The decisions are the product's own: what is due, what may start, what a tick in hand means, edits, what the stream
lacks, what an ended run does to its schedule. What is written here surrounds them: messages, ack waits,
compare-and-set, crashes between any two writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from jetjobs._core.schedule_record import ScheduleRecord
from tests.model.tick_hosts import TickHosts
from tests.model.tick_store import TickStore
from tests.model.tick_values import EDITED, FIRST, Fires, Host, Msg, Phase, Run, Setup, World, at
from tests.model.values import NAMES, Move


class TickWorld:
    """All moves of a setup."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._store = TickStore(setup)
        self._hosts = TickHosts(setup, self._store)

    def start(self) -> World:
        """A schedule just made, its message stored, two idle hosts."""
        first = self._store.number(replace(FIRST, **self._setup.policy, next_run_at=at(1)))
        setup = self._setup
        return World(first, (Run(),) * (setup.last + 1), recon=((0, 0),) * setup.reconcilers, faults=setup.faults)

    def moves(self, world: World) -> Iterator[Move]:
        """Every step that somebody can take."""
        for label, after, luck, wrong in self._all(world):
            tidy = self._store.tidy(after)
            yield Move(label, tidy, luck, wrong or self._broken(tidy))  # pyright: ignore[reportArgumentType] - any world

    def good(self, world: World) -> bool:
        """True where time is up, everything is done, and no reconciler would find anything to do."""
        quiet = not world.msgs and not world.waiting and all(host == Host() for host in world.hosts)
        over = world.t == self._setup.last and world.op == self._ops() and not any(phase for phase, _ in world.recon)
        return quiet and over and not self._store.to_reconcile(world)

    def _ops(self) -> int:
        return {"": 0, "pause": 2, "delete": 2, "resume": 4, "edit": 2}[self._setup.op]

    def _all(self, w: World) -> Iterator[tuple[str, World, bool, str | None]]:
        yield from self._broker(w)
        for i in (0, 1):
            yield from self._hosts.moves(w, i)
        for i in range(self._setup.reconcilers):
            yield from self._hosts.reconcile(w, i)
        if self._setup.op:
            yield from self._operator(w)

    # ---------------------------------------------------------------- what must hold

    def _broken(self, w: World) -> str | None:
        live = [host.o for host in w.hosts if host.phase == Phase.RUNS]
        if self._setup.policy.get("overlap", "skip") != "allow" and len(live) > 1:
            return "two runs of the schedule at once"
        return self._miscounted(w) if self.good(w) else None

    def _miscounted(self, w: World) -> str | None:
        schedule = self._store.of(w.schedule)
        if schedule.is_active != (w.fires is not None):
            return "the stream doesn't fire what the record says"
        ran = sum(1 for run in w.runs if run.status)
        if schedule.counters.runs != ran:
            return "a run that isn't counted, or counted and not run"
        if schedule.live:
            return "a run that never ends for its schedule"
        if self._setup.op == "edit":
            # All of the old line up to the edit, and each second instant after the new message was stored.
            least = w.stopped + ((w.t - w.fires.at) // 2 if w.fires else 0)
            return None if schedule.counters.decided >= least else "an occurrence vanished"
        fell_away = w.back - w.stopped if w.back else (w.t - w.stopped if w.op else 0)
        if schedule.counters.decided != w.t - fell_away:
            return "an occurrence vanished, or was counted twice"
        return None

    # ---------------------------------------------------------------- broker

    def _broker(self, w: World) -> Iterator[tuple[str, World, bool, str | None]]:
        waits_for_operator = w.op == 0 and w.t == self._setup.op_at and w.t
        if w.t < self._setup.last and not waits_for_operator:
            yield from self._time(w)
        waiting = any(m.o == w.t and m.tick and not m.holder for m in w.msgs)
        if w.t and w.faults and w.fires is not None and self._due(w.fires, w.t) and not waiting:
            again = w._replace(msgs=(*w.msgs, self._tick(w, w.t, w.fires)), faults=w.faults - 1)
            yield f"broker: killed, tick {w.t} again", again, True, None
        for o in w.waiting:
            rest = tuple(x for x in w.waiting if x != o)
            fired = w._replace(waiting=rest, msgs=(*w.msgs, Msg(self._mid(w), o, 0)))
            yield f"broker: the jitter of {o} is over", fired, False, None
        for m in w.msgs:
            yield from self._deliver(w, m)

    def _deliver(self, w: World, m: Msg) -> Iterator[tuple[str, World, bool, str | None]]:
        if m.holder in {1, 2}:
            if w.hosts[m.holder - 1].mid != m.mid:
                yield f"broker: ack wait of {m.mid} is over", self._held(w, m, 3), False, None
            return
        if m.holder == 0 and sum(1 for x in w.msgs if x.holder) >= self._setup.slots:
            return
        for i in (0, 1):
            if w.hosts[i] == Host():
                got = TickHosts.put(self._held(w, m, i + 1), i, Host(Phase.GOT, m.mid, m.o, m.tick))
                yield f"{NAMES[i]}: gets {m.mid}, {'tick' if m.tick else 'run'} {m.o}", got, False, None

    def _time(self, w: World) -> Iterator[tuple[str, World, bool, str | None]]:
        t = w.t + 1
        if w.fires is None or not self._due(w.fires, t):
            yield f"time {t}, no tick", w._replace(t=t), False, None
            return
        yield f"broker: tick {t}", w._replace(t=t, msgs=(*w.msgs, self._tick(w, t, w.fires))), False, None
        if w.faults:
            recon = tuple((int(Phase.GOT), 0) if not phase else (phase, snap) for phase, snap in w.recon)
            yield f"broker: down at {t}, tick lost", w._replace(t=t, recon=recon, faults=w.faults - 1), True, None

    @staticmethod
    def _due(fires: Fires, t: int) -> bool:
        return t > fires.at and not (t - fires.at) % (1 if fires.revision == 1 else 2)

    def _tick(self, w: World, o: int, fires: Fires) -> Msg:
        return Msg(self._mid(w), o, fires.revision)

    @staticmethod
    def _mid(w: World) -> int:
        return max([0, *(m.mid for m in w.msgs), *(h.mid for h in w.hosts), *(r.owner for r in w.runs)]) + 1

    @staticmethod
    def _held(w: World, message: Msg, holder: int) -> World:
        return w._replace(msgs=tuple(m._replace(holder=holder) if m == message else m for m in w.msgs))

    # ---------------------------------------------------------------- operator

    def _operator(self, w: World) -> Iterator[tuple[str, World, bool, str | None]]:
        schedule = self._store.of(w.schedule)
        op = self._setup.op
        if w.op == 0 and w.t and w.t == (self._setup.op_at or w.t):
            after = self._edited(w, schedule) if op == "edit" else self._store.stopped(schedule, op, w.t)
            yield f"operator: {op} at {w.t}", self._store.write(w, after)._replace(op=1, stopped=w.t), False, None
        elif w.op == 1:
            fires = Fires(schedule.revision, w.t) if op == "edit" else None
            yield "operator: the stream follows", w._replace(fires=fires, op=2), False, None
            if w.faults:
                yield "operator: dies before the stream follows", w._replace(op=2, faults=w.faults - 1), True, None
        elif w.op == 2 and op == "resume":
            decision = self._setup.resume(schedule, at(w.t), runs=self._store.records(w, schedule))
            resumed = self._store.write(w, decision.schedule)._replace(op=3, back=w.t)
            yield f"operator: resumes at {w.t}", resumed, False, None
        elif w.op == 3:
            fires = w.fires or Fires(schedule.revision, w.t)
            yield "operator: publishes", w._replace(fires=fires, op=4), False, None

    def _edited(self, w: World, schedule: ScheduleRecord) -> ScheduleRecord:
        return self._setup.update(schedule, EDITED, at(w.t), runs=self._store.records(w, schedule)).schedule
