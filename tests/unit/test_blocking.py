from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.blocking import Watch, others_can
from jetjobs._core.descriptors import HostPresence

WATCH = Watch.over(timedelta(seconds=24))
SPANS = st.floats(0, 1e6)


@pytest.mark.parametrize("silent, blocked", [(0, 0), (1, 0), (6, 0), (6.5, 6.5), (900, 900)])
def test_a_loop_is_blocked_once_a_quarter_of_the_ack_wait_went_by_without_a_tick(silent: float, blocked: float):
    assert WATCH.blocked_for(ticked_at=50, now=50 + silent) == blocked


def test_a_thread_that_is_late_itself_tells_nothing_of_the_loop():
    assert not WATCH.stood_still(looked_at=10, now=10 + WATCH.tick_every)
    assert WATCH.stood_still(looked_at=10, now=17)


@pytest.mark.parametrize("age, renewed", [(0, False), (5.9, False), (6, True), (19.9, True), (20, False)])
def test_renewed_is_what_is_due_and_not_too_late(age: float, *, renewed: bool):
    assert WATCH.may_renew(confirmed_at=0, now=age) is renewed


@given(ack_wait=st.floats(0.1, 3600), now=SPANS, ages=st.lists(SPANS))
def test_nothing_is_renewed_that_may_have_been_handed_out(ack_wait: float, now: float, ages: list[float]):
    watch = Watch(ack_wait)
    renewed = [age for age in ages if watch.may_renew(confirmed_at=now - age, now=now)]
    assert all(age < ack_wait for age in renewed)


def test_between_two_looks_no_run_becomes_too_late():
    """One that isn't due at a look is still in time at the next, however the two fall."""
    first_due = next(n for n in range(1000) if WATCH.may_renew(confirmed_at=0, now=n * WATCH.tick_every))
    assert WATCH.may_renew(confirmed_at=0, now=(first_due + 1) * WATCH.tick_every)


def host(host_id: str, *jobs: str, draining: bool = False) -> HostPresence:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return HostPresence(host_id, "box", 1, at, at, jobs=jobs, draining=draining)


@pytest.mark.parametrize(
    "hosts, can",
    [
        ([], False),
        ([host("me", "m.a")], False),
        ([host("me", "m.a", "m.b"), host("h2", "m.b")], True),
        ([host("me", "m.a"), host("h2", "m.b")], False),
        ([host("me", "m.a"), host("h2", "m.a", draining=True)], False),
        ([host("h2", "m.a")], False),
    ],
)
def test_others_can_where_one_lives_that_has_a_job_of_ours(hosts: list[HostPresence], *, can: bool):
    assert others_can(hosts, "me") is can
