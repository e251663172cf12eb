"""The transition table, cell by cell, and that nothing gets past it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.lifecycle import TRANSITIONS, Event, IllegalTransition, advance, begin, next_status
from jetjobs._core.models import RunStatus
from tests.unit import strategies as some

S = RunStatus

# Written out once more on purpose: a changed cell has to be changed in two places.
ALLOWED: dict[tuple[RunStatus | None, Event], RunStatus] = {
    (None, Event.CLAIM): S.RUNNING,
    (None, Event.MISS): S.MISSED,
    (None, Event.CANCEL): S.CANCELLED,
    (None, Event.FAIL): S.FAILED,
    (S.RUNNING, Event.CLAIM): S.RUNNING,
    (S.RUNNING, Event.BEAT): S.RUNNING,
    (S.RUNNING, Event.ASK_CANCEL): S.RUNNING,
    (S.RUNNING, Event.RETRY): S.RETRYING,
    (S.RUNNING, Event.SUCCEED): S.SUCCEEDED,
    (S.RUNNING, Event.FAIL): S.FAILED,
    (S.RUNNING, Event.TIME_OUT): S.TIMED_OUT,
    (S.RUNNING, Event.CANCEL): S.CANCELLED,
    (S.RUNNING, Event.SKIP): S.SKIPPED,
    (S.RETRYING, Event.CLAIM): S.RUNNING,
    (S.RETRYING, Event.CANCEL): S.CANCELLED,
    (S.RETRYING, Event.FAIL): S.FAILED,
}


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("status", [None, *RunStatus])
def test_every_cell_of_the_table(status: RunStatus | None, event: Event):
    wanted = ALLOWED.get((status, event))
    if wanted is not None:
        assert next_status(status, event) is wanted
        return
    with pytest.raises(IllegalTransition, match=f"no {event.name} from {status.value if status else 'nothing'}"):
        next_status(status, event)


def test_every_status_with_a_record_can_be_reached():
    reached = {status for cells in TRANSITIONS.values() for status in cells.values()}
    assert reached == set(RunStatus) - {S.SCHEDULED, S.QUEUED}


@some.brief
@given(some.records(some.TERMINAL), st.sampled_from(Event))
def test_a_terminal_record_never_changes(record: some.RunRecord, event: Event):
    with pytest.raises(IllegalTransition):
        advance(record, event)


@some.brief
@given(some.records((S.RUNNING, S.RETRYING)), st.sampled_from(Event))
def test_a_step_changes_the_status_and_what_it_was_given_only(record: some.RunRecord, event: Event):
    wanted = ALLOWED.get((record.status, event))
    if wanted is not None:
        assert advance(record, event, turn=9) == replace(record, status=wanted, turn=9)


@pytest.mark.parametrize("built_as", [S.QUEUED, S.RUNNING])
def test_a_first_record_gets_its_status_from_the_event(built_as: RunStatus):
    built = some.record(built_as)
    assert begin(Event.CLAIM, built) == replace(built, status=S.RUNNING)
    assert begin(Event.MISS, built) == replace(built, status=S.MISSED)


@pytest.mark.parametrize("event", [Event.SUCCEED, Event.RETRY, Event.BEAT, Event.SKIP])
def test_a_run_without_a_start_has_no_result(event: Event):
    with pytest.raises(IllegalTransition):
        begin(event, some.record())
