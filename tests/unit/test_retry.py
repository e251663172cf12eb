"""How long a run waits: never shorter than before, never over the cap, never past the end of time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.policy import Backoff
from jetjobs._core.retry import END_OF_TIME, MAX_INTERRUPTIONS, backoff_delay, fits, later
from tests.unit import strategies as some

PLAIN = Backoff("1s", factor=2, cap="5m", jitter=0.1)


@pytest.mark.parametrize(
    "attempt,seconds", [(1, 1), (2, 2), (3, 4), (4, 8), (8, 128), (9, 256), (10, 300), (5000, 300)]
)
def test_the_default_doubles_up_to_the_cap(attempt: int, seconds: float):
    assert backoff_delay(PLAIN, attempt, 0.5) == timedelta(seconds=seconds)


@pytest.mark.parametrize("attempt", [1, 2, 50])
def test_no_base_is_no_wait(attempt: int):
    assert backoff_delay(Backoff(0, cap="1s"), attempt, 0.99) == timedelta(0)


def test_a_factor_of_one_stays():
    assert backoff_delay(Backoff("3s", factor=1, jitter=0), 100_000_000, 0.5) == timedelta(seconds=3)


def test_the_dice_spread_a_delay_to_both_sides():
    assert backoff_delay(PLAIN, 1, 0.0) == timedelta(seconds=0.9)
    assert backoff_delay(PLAIN, 1, 0.75) == timedelta(seconds=1.05)
    # Around the cap, not around what the delay would have grown to: otherwise all late retries come together.
    assert backoff_delay(PLAIN, 12, 0.0) == timedelta(seconds=270)


@given(some.backoffs(), st.integers(1, 60), some.rolls)
def test_a_later_attempt_never_waits_shorter(backoff: Backoff, attempt: int, roll: float):
    assert backoff_delay(backoff, attempt, roll) <= backoff_delay(backoff, attempt + 1, roll)


@given(some.backoffs(), st.integers(1, 10_000), some.rolls)
def test_no_delay_is_over_the_cap_or_below_nothing(backoff: Backoff, attempt: int, roll: float):
    assert timedelta(0) <= backoff_delay(backoff, attempt, roll) <= backoff.cap


@given(some.backoffs(), st.integers(1, 60), some.rolls)
def test_the_spread_stays_within_the_jitter(backoff: Backoff, attempt: int, roll: float):
    middle, spread = backoff_delay(backoff, attempt, 0.5), backoff_delay(backoff, attempt, roll)
    assert abs(spread - middle) <= middle * backoff.jitter + timedelta(microseconds=2)


def test_a_retry_at_the_very_expiry_is_too_late():
    assert fits(some.NOW, None)
    assert fits(some.NOW, some.NOW + timedelta(microseconds=1))
    assert not fits(some.NOW, some.NOW)
    assert not fits(some.NOW, some.NOW - timedelta(microseconds=1))


def test_an_absurd_delay_ends_at_the_end_of_time():
    assert later(some.NOW, timedelta.max) == END_OF_TIME == datetime.max.replace(tzinfo=UTC)


@given(some.instants, some.spans)
def test_a_sane_delay_is_just_added(instant: datetime, span: timedelta):
    assert later(instant, span) == instant + span


def test_a_run_may_be_interrupted_ten_times():
    assert MAX_INTERRUPTIONS == 10
