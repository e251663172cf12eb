"""One run, two hosts and a hostile broker, as immutable values: every next state from every state.

The decisions are the product's own (`decide`, `settle`, `decide_cancel`, `reap_running`, `reap_waiting`); what is
written here is only what surrounds them: messages and ack waits, compare-and-set, hosts that crash, freeze or
lose their connection, answers that get lost, schedules that fire twice.

Numbers that the core only compares (sequences, delivery numbers) are replaced by their ranks, a claim by the bit
`mine`, instants by one fixed `NOW`: otherwise the states would never repeat and the search never end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from jetjobs._core import cancelling
from jetjobs._core.models import RunRecord, RunStatus
from jetjobs._core.reaping import ReapingRules, doubt, reap_running, reap_waiting
from tests.model.hosts import Hosts
from tests.model.records import Records
from tests.model.values import KEY, LATE, NAMES, NOW, Host, Link, Move, Msg, Phase, Setup, World, fault, new_seq, put


class RunWorld:
    """All moves of a setup."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._records = Records()
        self._hosts = Hosts(setup, self._records)

    def start(self) -> World:
        """A client about to publish, two idle hosts."""
        return World(faults=self._setup.faults)

    def moves(self, world: World) -> Iterator[Move]:
        """Every step that somebody can take, each with its state in canonical form."""
        for move in self._all(world):
            after = self._records.canonical(move.world)
            yield move._replace(world=after, wrong=move.wrong or self._broken(after))

    def good(self, world: World) -> bool:
        """True where the run has ended and nothing of it is left anywhere."""
        record = self._records.of(world)
        idle = all(host.phase == Phase.IDLE or host.link == Link.FROZEN for host in world.hosts)
        return record is not None and record.status.is_terminal and not world.msgs and not world.waiting and idle

    def _all(self, w: World) -> Iterator[Move]:
        if w.client:
            yield from self._client(w)
        yield from self._broker(w)
        for i in (0, 1):
            yield from self._links(w, i)
            yield from self._hosts.moves(w, i)
        if self._setup.cancels:
            yield from self._cancel(w)
        yield from self._reaper(w)

    def _broken(self, w: World) -> str | None:
        record = self._records.of(w)
        if record is not None and record.attempt > self._setup.max_attempts:
            return "more attempts than allowed"
        if record is not None and record.status is RunStatus.RETRYING and record.attempt >= self._setup.max_attempts:
            return "waits for an attempt it can't have"
        for h in w.hosts:
            held = any(m.seq == h.seq and m.holder for m in w.msgs)
            running = record is not None and record.status is RunStatus.RUNNING and h.mine
            if h.on and not held and (running or not (h.lost or h.froze)):
                return "slot freed under a live handler"
        a, b = w.hosts
        if a.on and b.on and not (a.lost or a.froze or b.lost or b.froze):
            return "two handlers, and neither lost its delivery"
        return None

    # ---------------------------------------------------------------- client

    def _client(self, w: World) -> Iterator[Move]:
        if w.msgs:
            yield Move("client: already queued", w._replace(client=0))
            return
        stored = w._replace(msgs=(Msg(new_seq(w), 1),))
        yield Move("client: publishes", stored._replace(client=0))
        if w.faults:
            yield Move("client: publishes, answer lost", fault(stored), luck=True)

    # ---------------------------------------------------------------- broker

    def _broker(self, w: World) -> Iterator[Move]:
        for turn in w.waiting:
            fired = (*w.msgs, Msg(new_seq(w), turn))
            rest = tuple(t for t in w.waiting if t != turn)
            yield Move(f"broker: fires turn {turn}", w._replace(msgs=fired, waiting=rest, again=turn))
        if w.again:
            yield Move("broker: flushes", w._replace(again=0))
            if w.faults:
                fired = (*w.msgs, Msg(new_seq(w), w.again))
                yield Move("broker: crashes, fires again", fault(w._replace(msgs=fired)), luck=True)
        if w.faults and any(h.phase != Phase.IDLE for h in w.hosts):
            # A frozen host's connection breaks too: it connects anew when it wakes.
            a, b = (h._replace(fresh=1) if h.link == Link.FROZEN else h._replace(link=Link.OUTAGE) for h in w.hosts)
            yield Move("broker: away", fault(w._replace(hosts=(a, b))), luck=True)
        for m in w.msgs:
            yield from self._ack_wait(w, m) if m.holder in {1, 2} else self._hand_out(w, m)

    def _ack_wait(self, w: World, m: Msg) -> Iterator[Move]:
        i = m.holder - 1
        h = w.hosts[i]
        at_work = h.phase != Phase.IDLE and (h.seq, h.n) == (m.seq, m.n)
        if at_work and h.link == Link.UP:
            return  # It renews.
        opened = w._replace(msgs=tuple(x._replace(holder=3) if x == m else x for x in w.msgs))
        after = put(opened, i, h._replace(lost=1)) if at_work else opened
        yield Move(f"broker: ack wait of {m.seq} is over", after)

    def _hand_out(self, w: World, m: Msg) -> Iterator[Move]:
        if m.holder == 0 and sum(1 for x in w.msgs if x.holder) >= self._setup.slots:
            return
        for i in (0, 1):
            if w.hosts[i].phase != Phase.IDLE or w.hosts[i].link != Link.UP:
                continue
            given = m._replace(n=m.n + 1, holder=i + 1)
            after = w._replace(msgs=tuple(given if x == m else x for x in w.msgs))
            other = after.hosts[1 - i]
            if other.phase != Phase.IDLE and other.seq == m.seq:
                after = put(after, 1 - i, other._replace(lost=1))
            got = Host(fresh=w.hosts[i].fresh, phase=Phase.GOT, seq=m.seq, n=given.n, turn=m.turn)
            yield Move(f"{NAMES[i]}: gets {m.seq}, turn {m.turn}", put(after, i, got))

    def _links(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        if h.link == Link.OUTAGE:
            yield Move(f"{name}: reconnects", put(w, i, h._replace(link=Link.UP, fresh=1)))
        elif h.link == Link.FROZEN:
            alone = all(x.link == Link.FROZEN for x in w.hosts)
            yield Move(f"{name}: wakes", put(w, i, h._replace(link=Link.UP)), luck=not alone)
        if h.fresh and h.link == Link.UP and all(x.link != Link.OUTAGE for x in w.hosts):
            yield Move(f"{name}: connected for an ack wait", put(w, i, h._replace(fresh=0)))
        if w.faults and h.phase != Phase.IDLE:
            died = fault(w)._replace(died=1)
            yield Move(f"{name}: crashes", put(died, i, Host(fresh=1)), luck=True)
            if h.link == Link.UP:
                yield Move(f"{name}: freezes", put(died, i, h._replace(link=Link.FROZEN, froze=1)), luck=True)

    # ---------------------------------------------------------------- cancel

    def _cancel(self, w: World) -> Iterator[Move]:
        if w.cancel == 1:
            yield Move("cancel: removes the schedule", w._replace(waiting=(), cancel=2))
        elif w.cancel == 2:
            yield Move("cancel: removes the trigger", w._replace(msgs=(), cancel=3))
        if w.cancel in {1, 2} and w.faults:
            yield Move("cancel: its client dies", fault(w._replace(cancel=3)), luck=True)
        if w.cancel or w.client:
            return
        queued = RunRecord(KEY.run_id, KEY.module, KEY.job, RunStatus.QUEUED, expires_at=NOW + timedelta(days=7))
        there = queued if w.msgs or w.waiting else None
        match cancelling.decide_cancel(self._records.of(w), waiting=there, now=NOW, claim="x"):
            case cancelling.Create(record) | cancelling.Save(record, frees=True):
                after, wrong = self._records.store(w, record)
                a, b = (h._replace(mine=0) for h in after.hosts)
                ended = after._replace(hosts=(a, b), cancel=1, cancelled=1)
                yield Move("cancel: CANCELLED", ended, luck=True, wrong=wrong)
            case cancelling.Save(record):
                after, wrong = self._records.store(w, record)
                yield Move("cancel: asks", after._replace(cancel=3, cancelled=1), luck=True, wrong=wrong)
            case _:
                yield Move("cancel: too late or too early", w._replace(cancel=3), luck=True)

    # ---------------------------------------------------------------- reaper

    def _reaper(self, w: World) -> Iterator[Move]:
        record = self._records.of(w)
        if record is None or doubt(record, ReapingRules(), LATE) == "fine":
            return
        if self._setup.reaper_waits and any(h.link == Link.OUTAGE for h in w.hosts):
            return
        if record.status is RunStatus.RUNNING:
            yield from self._reap_running(w, record)
        else:
            yield from self._reap_waiting(w, record)

    def _reap_running(self, w: World, record: RunRecord) -> Iterator[Move]:
        if record.owner is None or self._records.answers(w, record):
            return
        there = any(m.seq == record.owner.sequence for m in w.msgs)
        ended = reap_running(record, LATE, owner_message_there=there, owner_holds=False)
        if ended is not None:
            after, wrong = self._records.store(w, ended)
            yield Move("reaper: lost", after, wrong=wrong if w.died else "lost, though no host ever died")

    def _reap_waiting(self, w: World, record: RunRecord) -> Iterator[Move]:
        if w.reaper < 3:
            there = bool(w.waiting if w.reaper == 1 else w.msgs)
            what = "schedule" if w.reaper == 1 else "trigger"
            yield Move(f"reaper: reads the {what}", w._replace(reaper=0 if there else w.reaper + 1))
            return
        ended = reap_waiting(record, LATE, anything_there=False)
        if ended is not None:
            yield Move("reaper: its message is gone", self._records.store(w, ended)[0], wrong="a retry was lost")
