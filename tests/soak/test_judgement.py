"""A soak's judgement finds what it is there to find."""

from __future__ import annotations

import pytest

from tests.soak.gauges import Sample, trends
from tests.soak.jobs import EVERY_SECONDS
from tests.soak.ledger import Ledger


def soaked() -> tuple[Ledger, list[str]]:
    """A soak in which all went well, and its starts."""
    ledger = Ledger()
    ledger.expect("light", "one")
    ledger.expect("late", "two", "TIMED_OUT")
    ends = [("SUCCEEDED", "light", "one"), ("TIMED_OUT", "late", "two")]
    ends += [
        ("SUCCEEDED", job, f"id-{1000 * at}") for job, every in EVERY_SECONDS.items() for at in range(0, 60, every)
    ]
    for status, job, run_id in ends:
        ledger.hear(f"jetjobs.soak.events.{status}.soak.{job}.{run_id}")
    return ledger, [f"{job} {run_id} 1" for _, job, run_id in ends]


def test_a_good_one_has_no_problem():
    ledger, starts = soaked()
    assert ledger.problems(starts) == []
    assert ledger.outcomes() == {"SUCCEEDED": len(starts) - 1, "TIMED_OUT": 1}


@pytest.mark.parametrize(
    "heard, said",
    [
        ("jetjobs.soak.events.SUCCEEDED.soak.light.one", "not once"),
        ("jetjobs.soak.events.FAILED.soak.light.other", "not once"),
        ("jetjobs.soak.events.SUCCEEDED.soak.light.unstarted", "without a start"),
        ("jetjobs.soak.events.SUCCEEDED.soak.tick.id-90000", "missing"),
        ("jetjobs.soak.events.SUCCEEDED.soak.child.c-1", "runs of child"),
    ],
)
def test_an_end_too_many_is_one(heard: str, said: str):
    ledger, starts = soaked()
    ledger.hear(heard)
    assert any(said in problem for problem in ledger.problems(starts))


def test_what_never_ends_and_what_starts_twice_are_some():
    ledger, starts = soaked()
    ledger.expect("light", "three")
    assert ledger.unheard == [("light", "three")]
    problems = ledger.problems([*starts, starts[0], "light four 1"])
    assert len(problems) == 3
    assert all(any(said in each for each in problems) for said in ("never ended", "2 times", "started and never"))


@pytest.mark.parametrize("gauge, step", [("host 1 rss MB", 1.0), ("host 1 fds", 1), ("broker consumers", 0.1)])
def test_what_grows_is_seen_and_what_is_filled_is_not(gauge: str, step: float):
    grows: list[Sample] = [{gauge: 50 + step * number} for number in range(40)]
    fills: list[Sample] = [{gauge: min(50 + step * number, 50 + 8 * step)} for number in range(40)]
    assert [trend.flat for trend in trends(grows)] == [False]
    assert [trend.flat for trend in trends(fills)] == [True]
