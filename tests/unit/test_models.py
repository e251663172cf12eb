"""What the values do besides holding fields."""

from __future__ import annotations

from dataclasses import fields

import pytest

from jetjobs._core.models import NOTHING, RunError, RunRecord, RunStatus


def test_the_empty_mapping_is_empty_and_can_be_a_default():
    assert dict(NOTHING) == {}
    assert len(NOTHING) == 0
    assert hash(NOTHING) == hash(NOTHING)
    assert repr(NOTHING) == "{}"
    assert NOTHING.get("x") is None
    with pytest.raises(KeyError):
        NOTHING["x"]


@pytest.mark.parametrize(
    "error,text",
    [
        (RunError("Lost", "lost: no heartbeat since noon"), "Lost: no heartbeat since noon"),
        (RunError("Order", "order: 7 is missing"), "Order: order: 7 is missing"),
        (RunError("ValueError", "lost: the key"), "ValueError: lost: the key"),
        (RunError("HostShutdown"), "HostShutdown"),
    ],
)
def test_an_error_is_one_line_without_a_stutter(error: RunError, text: str):
    assert str(error) == text


def test_a_record_made_or_changed_unchecked_equals_the_one_made_by_its_class():
    plain = RunRecord("r", "m", "j", RunStatus.RUNNING, starts=1, claim="c")
    made = RunRecord.of(run_id="r", module="m", job="j", status=RunStatus.RUNNING, starts=1, claim="c")
    assert made == plain
    assert all(getattr(made, each.name) == getattr(plain, each.name) for each in fields(RunRecord))
    changed = made.but(status=RunStatus.FAILED)
    assert (changed.status, changed.claim, made.status) == (RunStatus.FAILED, "c", RunStatus.RUNNING)
