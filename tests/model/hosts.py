"""What a host does with a delivery, from decision to ack, one write or message a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from jetjobs._core import delivery
from jetjobs._core.completion import (
    Cancelled,
    CompletionRules,
    Ending,
    Raised,
    Returned,
    ShutDown,
    Snoozed,
    TimedOut,
)
from jetjobs._core.messages import Trigger
from jetjobs._core.models import RunError, RunStatus
from jetjobs._core.policy import JobPolicy
from tests.model.records import Records
from tests.model.values import KEY, LATE, NAMES, NOW, Link, Move, Phase, Setup, World, fault, idle, put

BOOM: Final = RunError("Boom")
ENDINGS: Final[dict[str, Ending]] = {
    "success": Returned(),
    "failure": Raised(BOOM),
    "snooze": Snoozed(timedelta(minutes=1)),
    "shutdown": ShutDown(BOOM),
    "timeout": TimedOut(BOOM),
    "cancel": Cancelled(),
}


class Hosts:
    """The moves of both hosts."""

    def __init__(self, setup: Setup, records: Records) -> None:
        self._setup = setup
        self._records = records
        self._decided: dict[tuple[object, ...], tuple[str, int]] = {}
        policy = JobPolicy(max_attempts=setup.max_attempts)
        self._rules = [delivery.DeliveryRules(name, policy) for name in NAMES]
        self._completion = [CompletionRules(name, policy) for name in NAMES]

    def moves(self, w: World, i: int) -> Iterator[Move]:
        """What host `i` can do next with its delivery."""
        h, name = w.hosts[i], NAMES[i]
        if h.phase == Phase.RUNS:
            yield from self._handler(w, i)
        elif h.on:
            yield Move(f"{name}: thread ends", put(w, i, h._replace(on=0)))
        if h.link == Link.UP and h.phase in _STEPS:
            yield from _STEPS[h.phase](self, w, i)

    def _handler(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        record = self._records.of(w)
        for ending in self._setup.endings:
            once = {"snooze": "snoozes", "shutdown": "interruptions"}.get(ending)
            if once is None or record is None or not getattr(record, once):
                ended = h._replace(phase=Phase.ENDED, note=(ending,), on=0)
                yield Move(f"{name}: handler ends in {ending}", put(w, i, ended))
        if self._setup.lingers:
            stuck = h._replace(phase=Phase.ENDED, note=("timeout",))
            yield Move(f"{name}: timeout, the thread goes on", put(w, i, stuck))
        if h.link == Link.UP and not self._records.mine(w, i):
            fenced = h._replace(phase=Phase.ENDED, note=("cancel",), on=0)
            yield Move(f"{name}: heartbeat lost, handler stopped", put(w, i, fenced))
        elif h.link == Link.UP and record is not None and record.cancel_asked:
            told = h._replace(phase=Phase.ENDED, note=("cancel",), on=0)
            yield Move(f"{name}: heartbeat hears the cancel", put(w, i, told))

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
        record, now = self._records.by_number[number], LATE if stale else NOW
        action = self._setup.decide(record, trigger, known, rules=self._rules[i], now=now)
        if isinstance(action, delivery.Ask):
            told = known._replace(owner_holds=holds)
            action = self._setup.decide(record, trigger, told, rules=self._rules[i], now=now)
        match action:
            case delivery.Write(written, then):
                return then, self._records.number(written)
            case delivery.Help(helped):
                return "help", self._records.number(helped)
            case delivery.Ack():
                return "retire", 0
            case delivery.Drop():
                return "drop", 0
            case _:
                return "again", 0

    def _look(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        record = self._records.of(w)
        holds = record is not None and self._records.answers(w, record)
        owner_beats = holds and record is not None and record.status is RunStatus.RUNNING
        for stale in (False,) if owner_beats else (False, True):
            then, number = self._decide(w, i, holds=holds, stale=stale)
            match then:
                case "start" | "ack":
                    after = put(w, i, h._replace(phase=Phase.WRITING, note=(holds, stale), seen=1))
                case "help":
                    wanted = self._records.by_number[number]
                    turn = wanted.turn if wanted is not None else 0
                    after = put(w, i, h._replace(phase=Phase.PUBLISHING, note=(turn,)))
                case "retire":
                    after = put(w, i, h._replace(phase=Phase.ACKING))
                case "drop":
                    after = idle(w, i)
                case _:
                    continue
            yield Move(f"{name}: decides to {then}", after)

    def _write(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        if not h.seen:
            yield Move(f"{name}: conflict, reads again", put(w, i, h._replace(phase=Phase.GOT, note=())))
            return
        holds, stale = h.note
        then, number = self._decide(w, i, holds=bool(holds), stale=bool(stale))
        record = self._records.by_number[number]
        if record is None:
            return
        stored, wrong = self._records.store(w, record)
        if then == "ack":
            ended = put(stored, i, stored.hosts[i]._replace(phase=Phase.ACKING, note=()))
            yield Move(f"{name}: writes {record.status.value}", ended, wrong=wrong)
            return
        other = w.hosts[1 - i]
        if self._records.mine(w, 1 - i) and other.phase != Phase.IDLE and other.link != Link.FROZEN and not other.froze:
            wrong = "a second start while the owner lives"
        if w.cancelled:
            wrong = "another attempt after the cancel"
        claimed = stored.hosts[i]._replace(phase=Phase.CLAIMED, note=(), mine=1)
        taken = put(stored, 1 - i, stored.hosts[1 - i]._replace(mine=0))
        yield Move(f"{name}: claims start {record.starts}", put(taken, i, claimed), wrong=wrong)
        if w.faults:
            unsure = put(fault(taken), i, claimed._replace(phase=Phase.UNSURE_CLAIM))
            yield Move(f"{name}: claims start {record.starts}, answer lost", unsure, luck=True, wrong=wrong)

    def _unsure_claim(self, w: World, i: int) -> Iterator[Move]:
        if self._setup.rereads and self._records.mine(w, i):
            yield Move(f"{NAMES[i]}: reads: mine", put(w, i, w.hosts[i]._replace(phase=Phase.CLAIMED)))
        else:
            yield Move(f"{NAMES[i]}: reads: not mine", idle(w, i))

    def _begin(self, w: World, i: int) -> Iterator[Move]:
        record = self._records.of(w)
        running = put(w, i, w.hosts[i]._replace(phase=Phase.RUNS, on=1))
        if record is None or not self._records.mine(w, i):
            yield Move(f"{NAMES[i]}: starts the handler of a claim it lost", running)
            return
        bit = 1 << record.starts
        wrong = "one start started twice" if w.started & bit else None
        yield Move(f"{NAMES[i]}: starts the handler", running._replace(started=w.started | bit), wrong=wrong)

    def _save(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        record = self._records.of(w)
        if record is None or not self._records.mine(w, i):
            if not h.on:
                yield Move(f"{name}: not mine any more, silent", idle(w, i))
            return
        settled = self._setup.settle(record, ENDINGS[str(h.note[0])], self._completion[i], NOW)
        if settled.status is RunStatus.RETRYING and h.on:
            return  # Saved only when the thread is gone.
        stored, wrong = self._records.store(w, settled)
        retrying = settled.status is RunStatus.RETRYING
        phase, note = (Phase.PUBLISHING, (settled.turn,)) if retrying else (Phase.ACKING, ())
        saved = stored.hosts[i]._replace(phase=phase, note=note)
        yield Move(f"{name}: saves {settled.status.value}", put(stored, i, saved), wrong=wrong)
        if w.faults:
            unsure = put(fault(stored), i, saved._replace(phase=Phase.UNSURE_SAVE))
            yield Move(f"{name}: saves {settled.status.value}, answer lost", unsure, luck=True, wrong=wrong)

    def _unsure_save(self, w: World, i: int) -> Iterator[Move]:
        h = w.hosts[i]
        if not h.mine or not self._setup.rereads:
            if not h.on:
                yield Move(f"{NAMES[i]}: reads: somebody else's now", idle(w, i))
            return
        phase = Phase.PUBLISHING if h.note else Phase.ACKING
        yield Move(f"{NAMES[i]}: reads: my write is there", put(w, i, h._replace(phase=phase)))

    def _publish(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        turn = int(str(h.note[0]))
        record = self._records.of(w)
        last = max(w.msgs, default=None)
        wanted = record is not None and record.status is RunStatus.RETRYING and record.turn == turn
        stray = wanted and last is not None and last.turn < turn
        done = put(w, i, h._replace(phase=Phase.ACKING, note=()))
        if last is None or not (last.seq == h.seq or stray):
            yield Move(f"{name}: retry refused, it is done already", done)
            return
        waiting = tuple(sorted({*w.waiting, turn}))
        yield Move(f"{name}: publishes turn {turn}", done._replace(waiting=waiting))
        if w.faults:
            yield Move(f"{name}: publishes, answer lost", fault(w._replace(waiting=waiting)), luck=True)

    def _ack(self, w: World, i: int) -> Iterator[Move]:
        h, name = w.hosts[i], NAMES[i]
        if h.on:
            return
        free = idle(w, i)
        yield Move(f"{name}: acks {h.seq}", free._replace(msgs=tuple(m for m in w.msgs if m.seq != h.seq)))
        if w.faults:
            yield Move(f"{name}: ack lost", fault(free), luck=True)


_STEPS: Final[dict[int, Callable[[Hosts, World, int], Iterator[Move]]]] = {
    Phase.GOT: Hosts._look,
    Phase.WRITING: Hosts._write,
    Phase.UNSURE_CLAIM: Hosts._unsure_claim,
    Phase.CLAIMED: Hosts._begin,
    Phase.ENDED: Hosts._save,
    Phase.UNSURE_SAVE: Hosts._unsure_save,
    Phase.PUBLISHING: Hosts._publish,
    Phase.ACKING: Hosts._ack,
}
