"""One run, two hosts and a hostile broker, as immutable values: every next state from every state.

The decisions are the product's own (`decide`, `settle`, `decide_cancel`, `reap_running`, `reap_waiting`); what is
written here is only what surrounds them: messages and ack waits, compare-and-set, hosts that crash, freeze or
lose their connection, answers that get lost, schedules that fire twice.

Numbers that the core only compares (sequences, delivery numbers) are replaced by their ranks, a claim by the bit
`mine`, instants by one fixed `NOW`: otherwise the states would never repeat and the search never end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Final, NamedTuple

from jetjobs._core import cancelling, delivery
from jetjobs._core.completion import (
    Cancelled,
    CompletionRules,
    Ending,
    Raised,
    Returned,
    ShutDown,
    Snoozed,
    TimedOut,
    settle,
)
from jetjobs._core.models import RunError, RunKey, RunRecord, RunStatus, Trigger
from jetjobs._core.policy import JobPolicy
from jetjobs._core.reaping import ReapingRules, doubt, reap_running, reap_waiting

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
LATE: Final = NOW + timedelta(hours=1)  # past every heartbeat's patience, long before the run expires
KEY: Final = RunKey("m", "j", "r")
NAMES: Final = ("A", "B")
BOOM: Final = RunError("Boom")
ENDINGS: Final[dict[str, Ending]] = {
    "success": Returned(),
    "failure": Raised(BOOM),
    "snooze": Snoozed(timedelta(minutes=1)),
    "shutdown": ShutDown(BOOM),
    "timeout": TimedOut(BOOM),
    "cancel": Cancelled(),
}


class Phase(IntEnum):
    """What a host does with its delivery."""

    IDLE = 0
    GOT = 1
    WRITING = 2  # decided on a write, with the record as it was read then
    UNSURE_CLAIM = 3
    CLAIMED = 4
    RUNS = 5
    ENDED = 6
    UNSURE_SAVE = 7
    PUBLISHING = 8
    ACKING = 9


class Link(IntEnum):
    """How a host is connected."""

    UP = 0
    FROZEN = 1  # stopped or cut off alone, for as long as it likes
    OUTAGE = 2  # the broker is away; every host is back within an ack wait of the first one


class Host(NamedTuple):
    """A host with one slot. `mine` is "the record carries my claim"; `lost`: the broker gave the delivery away."""

    link: int = Link.UP
    fresh: int = 0
    phase: int = Phase.IDLE
    seq: int = 0
    n: int = 0
    turn: int = 0
    mine: int = 0
    note: tuple[object, ...] = ()
    seen: int = 0
    on: int = 0
    lost: int = 0
    froze: int = 0


class Msg(NamedTuple):
    """A trigger message. `holder`: 0 nobody yet, 1 or 2 a host, 3 open again, with its slot still taken."""

    seq: int
    turn: int
    n: int = 0
    holder: int = 0


class World(NamedTuple):
    """Everything there is. `record` is a number of `RunWorld.records`; 0 is none."""

    client: int = 1
    msgs: tuple[Msg, ...] = ()
    waiting: tuple[int, ...] = ()
    again: int = 0
    record: int = 0
    hosts: tuple[Host, Host] = (Host(), Host())
    cancel: int = 0
    reaper: int = 0
    started: int = 0
    cancelled: int = 0
    died: int = 0
    faults: int = 0


class Move(NamedTuple):
    """One step. Progress may not depend on a `luck`; `wrong` names the rule that the step breaks."""

    label: str
    world: World
    luck: bool = False
    wrong: str | None = None


Decide = Callable[..., delivery.Action]


@dataclass(frozen=True)
class Setup:
    """Bounds of a search, and the rules under test: the product's, or one of them turned back."""

    max_attempts: int = 2
    slots: int = 2
    faults: int = 1
    cancels: bool = False
    endings: tuple[str, ...] = ("success", "failure")
    lingers: bool = False
    decide: Decide = delivery.decide
    settle: Callable[[RunRecord, Ending, CompletionRules, datetime], RunRecord] = settle
    reaper_waits: bool = True
    rereads: bool = True


class RunWorld:
    """All moves of a setup."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.records: list[RunRecord | None] = [None]
        self._numbers: dict[RunRecord, int] = {}
        self._decided: dict[tuple[object, ...], tuple[str, int]] = {}
        policy = JobPolicy(max_attempts=setup.max_attempts)
        self._rules = [delivery.DeliveryRules(name, policy) for name in NAMES]
        self._completion = [CompletionRules(name, policy) for name in NAMES]

    def start(self) -> World:
        """A client about to publish, two idle hosts."""
        return World(faults=self.setup.faults)

    def moves(self, world: World) -> Iterator[Move]:
        """Every step that somebody can take, each with its state in canonical form."""
        for move in self._all(world):
            after = self._canonical(move.world)
            yield move._replace(world=after, wrong=move.wrong or self._broken(after))

    def good(self, world: World) -> bool:
        """True where the run has ended and nothing of it is left anywhere."""
        record = self.records[world.record]
        idle = all(host.phase == Phase.IDLE or host.link == Link.FROZEN for host in world.hosts)
        return record is not None and record.status.is_terminal and not world.msgs and not world.waiting and idle

    def _all(self, w: World) -> Iterator[Move]:
        if w.client:
            yield from self._client(w)
        yield from self._broker(w)
        for i in (0, 1):
            yield from self._links(w, i)
            yield from self._host(w, i)
        if self.setup.cancels:
            yield from self._cancel(w)
        yield from self._reaper(w)

    # ------------------------------------------------------------- canonical

    def _canonical(self, w: World) -> World:
        record = self.records[w.record]
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
                number = self._number(replace(record, owner=replace(owner, sequence=seq, num_delivered=n)))
        return w._replace(msgs=msgs, hosts=(a, b), record=number)

    def _number(self, record: RunRecord) -> int:
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
            number = self._numbers[slim] = len(self.records)
            self.records.append(slim)
        return number

    # ------------------------------------------------------------ invariants

    def _broken(self, w: World) -> str | None:
        record = self.records[w.record]
        if record is not None and record.attempt > self.setup.max_attempts:
            return "more attempts than allowed"
        if record is not None and record.status is RunStatus.RETRYING and record.attempt >= self.setup.max_attempts:
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

    # ---------------------------------------------------------------- pieces

    def _store(self, w: World, record: RunRecord) -> tuple[World, str | None]:
        """The world after a compare-and-set that won: everybody else's read is out of date."""
        before = self.records[w.record]
        wrong = "a terminal record changed" if before is not None and before.status.is_terminal else None
        a, b = (h._replace(seen=0) for h in w.hosts)
        return w._replace(record=self._number(record), hosts=(a, b), reaper=0), wrong

    @staticmethod
    def _put(w: World, i: int, host: Host) -> World:
        return w._replace(hosts=(host, w.hosts[1]) if i == 0 else (w.hosts[0], host))

    def _idle(self, w: World, i: int) -> World:
        return self._put(w, i, Host(link=w.hosts[i].link, fresh=w.hosts[i].fresh))

    @staticmethod
    def _fault(w: World) -> World:
        return w._replace(faults=w.faults - 1)

    @staticmethod
    def _new_seq(w: World) -> int:
        return max([0, *(m.seq for m in w.msgs), *(h.seq for h in w.hosts)]) + 1

    def _mine(self, w: World, i: int) -> bool:
        record = self.records[w.record]
        return record is not None and record.status is RunStatus.RUNNING and bool(w.hosts[i].mine)

    def _answers(self, w: World, record: RunRecord) -> bool:
        """What the owner's host says when asked whether it still holds the run under the record's claim."""
        return record.owner is not None and self._holds(w.hosts[NAMES.index(record.owner.host_id)])

    @staticmethod
    def _holds(h: Host) -> bool:
        return bool(h.mine) and h.phase != Phase.IDLE and h.link == Link.UP

    # ---------------------------------------------------------------- client

    def _client(self, w: World) -> Iterator[Move]:
        if w.msgs:
            yield Move("client: already queued", w._replace(client=0))
            return
        stored = w._replace(msgs=(Msg(self._new_seq(w), 1),))
        yield Move("client: publishes", stored._replace(client=0))
        if w.faults:
            yield Move("client: publishes, answer lost", self._fault(stored), luck=True)

    # ---------------------------------------------------------------- broker

    def _broker(self, w: World) -> Iterator[Move]:
        for turn in w.waiting:
            fired = (*w.msgs, Msg(self._new_seq(w), turn))
            rest = tuple(t for t in w.waiting if t != turn)
            yield Move(f"broker: fires turn {turn}", w._replace(msgs=fired, waiting=rest, again=turn))
        if w.again:
            yield Move("broker: flushes", w._replace(again=0))
            if w.faults:
                fired = (*w.msgs, Msg(self._new_seq(w), w.again))
                yield Move("broker: crashes, fires again", self._fault(w._replace(msgs=fired)), luck=True)
        if w.faults and any(h.phase != Phase.IDLE for h in w.hosts):
            # A frozen host's connection breaks too: it connects anew when it wakes.
            a, b = (h._replace(fresh=1) if h.link == Link.FROZEN else h._replace(link=Link.OUTAGE) for h in w.hosts)
            yield Move("broker: away", self._fault(w._replace(hosts=(a, b))), luck=True)
        for m in w.msgs:
            yield from self._ack_wait(w, m) if m.holder in {1, 2} else self._hand_out(w, m)

    def _ack_wait(self, w: World, m: Msg) -> Iterator[Move]:
        i = m.holder - 1
        h = w.hosts[i]
        at_work = h.phase != Phase.IDLE and (h.seq, h.n) == (m.seq, m.n)
        if at_work and h.link == Link.UP:
            return  # It renews.
        opened = w._replace(msgs=tuple(x._replace(holder=3) if x == m else x for x in w.msgs))
        after = self._put(opened, i, h._replace(lost=1)) if at_work else opened
        yield Move(f"broker: ack wait of {m.seq} is over", after)

    def _hand_out(self, w: World, m: Msg) -> Iterator[Move]:
        if m.holder == 0 and sum(1 for x in w.msgs if x.holder) >= self.setup.slots:
            return
        for i in (0, 1):
            if w.hosts[i].phase != Phase.IDLE or w.hosts[i].link != Link.UP:
                continue
            given = m._replace(n=m.n + 1, holder=i + 1)
            after = w._replace(msgs=tuple(given if x == m else x for x in w.msgs))
            other = after.hosts[1 - i]
            if other.phase != Phase.IDLE and other.seq == m.seq:
                after = self._put(after, 1 - i, other._replace(lost=1))
            got = Host(fresh=w.hosts[i].fresh, phase=Phase.GOT, seq=m.seq, n=given.n, turn=m.turn)
            yield Move(f"{NAMES[i]}: gets {m.seq}, turn {m.turn}", self._put(after, i, got))

    # ----------------------------------------------------------------- hosts

    def _links(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        if h.link == Link.OUTAGE:
            yield Move(f"{name}: reconnects", self._put(w, i, h._replace(link=Link.UP, fresh=1)))
        elif h.link == Link.FROZEN:
            alone = all(x.link == Link.FROZEN for x in w.hosts)
            yield Move(f"{name}: wakes", self._put(w, i, h._replace(link=Link.UP)), luck=not alone)
        if h.fresh and h.link == Link.UP and all(x.link != Link.OUTAGE for x in w.hosts):
            yield Move(f"{name}: connected for an ack wait", self._put(w, i, h._replace(fresh=0)))
        if w.faults and h.phase != Phase.IDLE:
            died = self._fault(w)._replace(died=1)
            yield Move(f"{name}: crashes", self._put(died, i, Host(fresh=1)), luck=True)
            if h.link == Link.UP:
                yield Move(f"{name}: freezes", self._put(died, i, h._replace(link=Link.FROZEN, froze=1)), luck=True)

    def _host(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        if h.phase == Phase.RUNS:
            yield from self._handler(w, i)
        elif h.on:
            yield Move(f"{name}: thread ends", self._put(w, i, h._replace(on=0)))
        if h.link == Link.UP and h.phase in _STEPS:
            yield from _STEPS[h.phase](self, w, i)

    def _handler(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        record = self.records[w.record]
        for ending in self.setup.endings:
            once = {"snooze": "snoozes", "shutdown": "interruptions"}.get(ending)
            if once is None or record is None or not getattr(record, once):
                ended = h._replace(phase=Phase.ENDED, note=(ending,), on=0)
                yield Move(f"{name}: handler ends in {ending}", self._put(w, i, ended))
        if self.setup.lingers:
            stuck = h._replace(phase=Phase.ENDED, note=("timeout",))
            yield Move(f"{name}: timeout, the thread goes on", self._put(w, i, stuck))
        if h.link == Link.UP and not self._mine(w, i):
            fenced = h._replace(phase=Phase.ENDED, note=("cancel",), on=0)
            yield Move(f"{name}: heartbeat lost, handler stopped", self._put(w, i, fenced))
        elif h.link == Link.UP and record is not None and record.cancel_asked:
            told = h._replace(phase=Phase.ENDED, note=("cancel",), on=0)
            yield Move(f"{name}: heartbeat hears the cancel", self._put(w, i, told))

    def _decide(self, w: World, i: int, *, holds: bool, stale: bool) -> tuple[str, int]:
        """The core's answer as a word and the number of the record that goes with it."""
        h = w.hosts[i]
        question = (w.record, h.seq, h.n, h.turn, h.fresh, i, holds, stale)
        known = self._decided.get(question)
        if known is None:
            known = self._decided[question] = self._ask_core(question)
        return known

    def _ask_core(self, question: tuple[int, int, int, int, int, int, bool, bool]) -> tuple[str, int]:
        number, seq, n, turn, fresh, i, holds, stale = question
        trigger = Trigger(KEY, None, sequence=seq, stored_at=NOW, num_delivered=n, turn=turn)
        known = delivery.Situation("c", timedelta(0) if fresh else timedelta(hours=1))
        record, now = self.records[number], LATE if stale else NOW
        action = self.setup.decide(record, trigger, known, rules=self._rules[i], now=now)
        if isinstance(action, delivery.Ask):
            told = replace(known, owner_holds=holds)
            action = self.setup.decide(record, trigger, told, rules=self._rules[i], now=now)
        match action:
            case delivery.Write(written, then):
                return then, self._number(written)
            case delivery.Help(helped):
                return "help", self._number(helped)
            case delivery.Ack():
                return "retire", 0
            case delivery.Drop():
                return "drop", 0
            case _:
                return "again", 0

    def _look(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        record = self.records[w.record]
        holds = record is not None and self._answers(w, record)
        owner_beats = holds and record is not None and record.status is RunStatus.RUNNING
        for stale in (False,) if owner_beats else (False, True):
            then, number = self._decide(w, i, holds=holds, stale=stale)
            match then:
                case "start" | "ack":
                    after = self._put(w, i, h._replace(phase=Phase.WRITING, note=(holds, stale), seen=1))
                case "help":
                    wanted = self.records[number]
                    turn = wanted.turn if wanted is not None else 0
                    after = self._put(w, i, h._replace(phase=Phase.PUBLISHING, note=(turn,)))
                case "retire":
                    after = self._put(w, i, h._replace(phase=Phase.ACKING))
                case "drop":
                    after = self._idle(w, i)
                case _:
                    continue
            yield Move(f"{name}: decides to {then}", after)

    def _write(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        if not h.seen:
            yield Move(f"{name}: conflict, reads again", self._put(w, i, h._replace(phase=Phase.GOT, note=())))
            return
        holds, stale = h.note
        then, number = self._decide(w, i, holds=bool(holds), stale=bool(stale))
        record = self.records[number]
        if record is None:
            return
        stored, wrong = self._store(w, record)
        if then == "ack":
            ended = self._put(stored, i, stored.hosts[i]._replace(phase=Phase.ACKING, note=()))
            yield Move(f"{name}: writes {record.status.value}", ended, wrong=wrong)
            return
        other = w.hosts[1 - i]
        if self._mine(w, 1 - i) and other.phase != Phase.IDLE and other.link != Link.FROZEN and not other.froze:
            wrong = "a second start while the owner lives"
        if w.cancelled:
            wrong = "another attempt after the cancel"
        claimed = stored.hosts[i]._replace(phase=Phase.CLAIMED, note=(), mine=1)
        taken = self._put(stored, 1 - i, stored.hosts[1 - i]._replace(mine=0))
        yield Move(f"{name}: claims start {record.starts}", self._put(taken, i, claimed), wrong=wrong)
        if w.faults:
            unsure = self._put(self._fault(taken), i, claimed._replace(phase=Phase.UNSURE_CLAIM))
            yield Move(f"{name}: claims start {record.starts}, answer lost", unsure, luck=True, wrong=wrong)

    def _unsure_claim(self, w: World, i: int) -> Iterator[Move]:
        if self.setup.rereads and self._mine(w, i):
            yield Move(f"{NAMES[i]}: reads: mine", self._put(w, i, w.hosts[i]._replace(phase=Phase.CLAIMED)))
        else:
            yield Move(f"{NAMES[i]}: reads: not mine", self._idle(w, i))

    def _begin(self, w: World, i: int) -> Iterator[Move]:
        record = self.records[w.record]
        running = self._put(w, i, w.hosts[i]._replace(phase=Phase.RUNS, on=1))
        if record is None or not self._mine(w, i):
            yield Move(f"{NAMES[i]}: starts the handler of a claim it lost", running)
            return
        bit = 1 << record.starts
        wrong = "one start started twice" if w.started & bit else None
        yield Move(f"{NAMES[i]}: starts the handler", running._replace(started=w.started | bit), wrong=wrong)

    def _save(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        record = self.records[w.record]
        if record is None or not self._mine(w, i):
            if not h.on:
                yield Move(f"{name}: not mine any more, silent", self._idle(w, i))
            return
        settled = self.setup.settle(record, ENDINGS[str(h.note[0])], self._completion[i], NOW)
        if settled.status is RunStatus.RETRYING and h.on:
            return  # Saved only when the thread is gone.
        stored, wrong = self._store(w, settled)
        retrying = settled.status is RunStatus.RETRYING
        phase, note = (Phase.PUBLISHING, (settled.turn,)) if retrying else (Phase.ACKING, ())
        saved = stored.hosts[i]._replace(phase=phase, note=note)
        yield Move(f"{name}: saves {settled.status.value}", self._put(stored, i, saved), wrong=wrong)
        if w.faults:
            unsure = self._put(self._fault(stored), i, saved._replace(phase=Phase.UNSURE_SAVE))
            yield Move(f"{name}: saves {settled.status.value}, answer lost", unsure, luck=True, wrong=wrong)

    def _unsure_save(self, w: World, i: int) -> Iterator[Move]:
        h = w.hosts[i]
        if not h.mine or not self.setup.rereads:
            if not h.on:
                yield Move(f"{NAMES[i]}: reads: somebody else's now", self._idle(w, i))
            return
        phase = Phase.PUBLISHING if h.note else Phase.ACKING
        yield Move(f"{NAMES[i]}: reads: my write is there", self._put(w, i, h._replace(phase=phase)))

    def _publish(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        turn = int(str(h.note[0]))
        record = self.records[w.record]
        last = max(w.msgs, default=None)
        wanted = record is not None and record.status is RunStatus.RETRYING and record.turn == turn
        stray = wanted and last is not None and last.turn < turn
        done = self._put(w, i, h._replace(phase=Phase.ACKING, note=()))
        if last is None or not (last.seq == h.seq or stray):
            yield Move(f"{name}: retry refused, it is done already", done)
            return
        waiting = tuple(sorted({*w.waiting, turn}))
        yield Move(f"{name}: publishes turn {turn}", done._replace(waiting=waiting))
        if w.faults:
            yield Move(f"{name}: publishes, answer lost", self._fault(w._replace(waiting=waiting)), luck=True)

    def _ack(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        if h.on:
            return
        idle = self._idle(w, i)
        yield Move(f"{name}: acks {h.seq}", idle._replace(msgs=tuple(m for m in w.msgs if m.seq != h.seq)))
        if w.faults:
            yield Move(f"{name}: ack lost", self._fault(idle), luck=True)

    # ---------------------------------------------------------------- cancel

    def _cancel(self, w: World) -> Iterator[Move]:
        if w.cancel == 1:
            yield Move("cancel: removes the schedule", w._replace(waiting=(), cancel=2))
        elif w.cancel == 2:
            yield Move("cancel: removes the trigger", w._replace(msgs=(), cancel=3))
        if w.cancel in {1, 2} and w.faults:
            yield Move("cancel: its client dies", self._fault(w._replace(cancel=3)), luck=True)
        if w.cancel or w.client:
            return
        queued = RunRecord(KEY.run_id, KEY.module, KEY.job, RunStatus.QUEUED, expires_at=NOW + timedelta(days=7))
        there = queued if w.msgs or w.waiting else None
        match cancelling.decide_cancel(self.records[w.record], waiting=there, now=NOW, claim="x"):
            case cancelling.Create(record) | cancelling.Save(record, frees=True):
                after, wrong = self._store(w, record)
                a, b = (h._replace(mine=0) for h in after.hosts)
                ended = after._replace(hosts=(a, b), cancel=1, cancelled=1)
                yield Move("cancel: CANCELLED", ended, luck=True, wrong=wrong)
            case cancelling.Save(record):
                after, wrong = self._store(w, record)
                yield Move("cancel: asks", after._replace(cancel=3, cancelled=1), luck=True, wrong=wrong)
            case _:
                yield Move("cancel: too late or too early", w._replace(cancel=3), luck=True)

    # ---------------------------------------------------------------- reaper

    def _reaper(self, w: World) -> Iterator[Move]:
        record = self.records[w.record]
        if record is None or doubt(record, ReapingRules(), LATE) == "fine":
            return
        if self.setup.reaper_waits and any(h.link == Link.OUTAGE for h in w.hosts):
            return
        if record.status is RunStatus.RUNNING:
            yield from self._reap_running(w, record)
        else:
            yield from self._reap_waiting(w, record)

    def _reap_running(self, w: World, record: RunRecord) -> Iterator[Move]:
        if record.owner is None or self._answers(w, record):
            return
        there = any(m.seq == record.owner.sequence for m in w.msgs)
        ended = reap_running(record, LATE, owner_message_there=there, owner_holds=False)
        if ended is not None:
            after, wrong = self._store(w, ended)
            yield Move("reaper: lost", after, wrong=wrong if w.died else "lost, though no host ever died")

    def _reap_waiting(self, w: World, record: RunRecord) -> Iterator[Move]:
        if w.reaper < 3:
            there = bool(w.waiting if w.reaper == 1 else w.msgs)
            what = "schedule" if w.reaper == 1 else "trigger"
            yield Move(f"reaper: reads the {what}", w._replace(reaper=0 if there else w.reaper + 1))
            return
        ended = reap_waiting(record, LATE, anything_there=False)
        if ended is not None:
            yield Move("reaper: its message is gone", self._store(w, ended)[0], wrong="a retry was lost")


_STEPS: Final[dict[int, Callable[[RunWorld, World, int], Iterator[Move]]]] = {
    Phase.GOT: RunWorld._look,
    Phase.WRITING: RunWorld._write,
    Phase.UNSURE_CLAIM: RunWorld._unsure_claim,
    Phase.CLAIMED: RunWorld._begin,
    Phase.ENDED: RunWorld._save,
    Phase.UNSURE_SAVE: RunWorld._unsure_save,
    Phase.PUBLISHING: RunWorld._publish,
    Phase.ACKING: RunWorld._ack,
}
