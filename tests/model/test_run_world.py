"""No way through crashes, freezes, outages, lost answers and double fires breaks a run; and the search can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from jetjobs._core import delivery
from jetjobs._core.completion import CompletionRules, Ending, settle
from jetjobs._core.delivery import Ack, Action, DeliveryRules, Drop, Help, Situation
from jetjobs._core.messages import Trigger
from jetjobs._core.models import RunRecord, RunStatus
from tests.model.run_world import RunWorld
from tests.model.search import search
from tests.model.values import Setup

# Fewer states than this, and the world has lost some of its moves: a search through nothing finds nothing.
SOUND = {
    "one attempt, two faults": (Setup(max_attempts=1, faults=2, slots=1, endings=("failure",)), 7_000),
    "two attempts": (Setup(slots=1, endings=("failure",)), 7_000),
    "duplicates beside each other": (Setup(endings=("failure",)), 10_000),
    "cancelled": (Setup(cancels=True, slots=1, endings=("failure",)), 20_000),
    "threads that don't end": (Setup(lingers=True, slots=1, endings=("failure",)), 10_000),
    "snoozes": (Setup(max_attempts=1, endings=("success", "snooze"), slots=1), 5_000),
    "shutdowns": (Setup(endings=("success", "shutdown"), slots=1), 8_000),
}


@pytest.mark.parametrize("name", SOUND)
def test_the_protocol_holds_whatever_happens(name: str):
    setup, least = SOUND[name]
    found = search(RunWorld(setup))
    assert found.wrong == {}
    assert found.states > least


def turned_back(change: Callable[[RunRecord | None, Trigger, Situation], tuple[Any, Any, Any]]) -> Any:
    """`decide`, seeing something else than what is."""

    def decide(
        record: RunRecord | None, trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime
    ) -> Action:
        record, trigger, situation = change(record, trigger, situation)
        return delivery.decide(record, trigger, situation, rules=rules, now=now)

    return decide


def instead_of(kind: type[Action], other: Action) -> Any:
    """`decide`, with something else wherever the product would do `kind`."""

    def decide(
        record: RunRecord | None, trigger: Trigger, situation: Situation, *, rules: DeliveryRules, now: datetime
    ) -> Action:
        action = delivery.decide(record, trigger, situation, rules=rules, now=now)
        return other if isinstance(action, kind) else action

    return decide


def deaf(record: RunRecord, ending: Ending, rules: CompletionRules, now: datetime) -> RunRecord:
    return settle(replace(record, cancel_asked=False), ending, rules, now)


def waiting_again(record: RunRecord | None, trigger: Trigger, known: Situation) -> tuple[Any, Any, Any]:
    if record is None or not record.status.is_terminal:
        return record, trigger, known
    return replace(record, status=RunStatus.RETRYING, turn=1), trigger, known


def any_turn(record: RunRecord | None, trigger: Trigger, known: Situation) -> tuple[Any, Any, Any]:
    if record is None or record.status is not RunStatus.RETRYING:
        return record, trigger, known
    return record, replace(trigger, turn=record.turn), known


def blind(record: RunRecord | None, trigger: Trigger, known: Situation) -> tuple[Any, Any, Any]:
    ended = record is not None and record.status.is_terminal
    return record, (replace(trigger, sequence=0) if ended else trigger), known


def no_mark(record: RunRecord | None, trigger: Trigger, known: Situation) -> tuple[Any, Any, Any]:
    return record and replace(record, cancel_asked=False), trigger, known


def no_limit(record: RunRecord | None, trigger: Trigger, known: Situation) -> tuple[Any, Any, Any]:
    return record and replace(record, max_attempts=9), trigger, known


def no_ask(record: RunRecord | None, trigger: Trigger, known: Situation) -> tuple[Any, Any, Any]:
    return record, trigger, known._replace(owner_holds=False)


def no_grace(record: RunRecord | None, trigger: Trigger, known: Situation) -> tuple[Any, Any, Any]:
    return record, trigger, known._replace(since_connected=timedelta(1))


FREED = "slot freed under a live handler"
TURNED_BACK = {
    "an ack where nothing may be sent": (Setup(decide=instead_of(Drop, Ack("")), max_attempts=1), FREED),
    "any turn starts a waiting run": (Setup(decide=turned_back(any_turn)), FREED),
    "an ended run's messages are all alike": (Setup(decide=turned_back(blind), lingers=True), FREED),
    "the owner's message doesn't repair a retry": (
        Setup(decide=instead_of(Help, Ack("")), slots=1),
        "a retry was lost",
    ),
    "nothing retires a message": (
        Setup(decide=instead_of(Ack, Drop("")), slots=1, max_attempts=1),
        "no way to an end",
    ),
    "the owner isn't asked": (Setup(decide=turned_back(no_ask)), "a second start while the owner lives"),
    "no ack wait after a reconnect": (Setup(decide=turned_back(no_grace)), "a second start while the owner lives"),
    "attempts aren't counted": (
        Setup(decide=turned_back(no_limit), max_attempts=1),
        "more attempts than allowed",
    ),
    "an ended run is as good as a waiting one": (
        Setup(decide=turned_back(waiting_again), max_attempts=1),
        "a terminal record changed",
    ),
    "a delivery ignores the cancel": (
        Setup(decide=turned_back(no_mark), cancels=True, slots=1),
        "another attempt after the cancel",
    ),
    "a failure ignores the cancel": (Setup(settle=deaf, cancels=True, slots=1), "another attempt after the cancel"),
    "an unknown answer taken for a no": (Setup(rereads=False, max_attempts=1), "lost, though no host ever died"),
    "a reaper right after an outage": (Setup(reaper_waits=False, max_attempts=1), "lost, though no host ever died"),
}


@pytest.mark.parametrize("name", TURNED_BACK)
def test_the_search_finds_what_each_rule_prevents(name: str):
    setup, wrong = TURNED_BACK[name]
    assert wrong in search(RunWorld(setup), first=True).wrong
