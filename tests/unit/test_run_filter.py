from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.models import LogLine, RunError, RunRecord, RunStatus
from jetjobs._core.run_filter import Newest, RunFilter, parse_statuses, sort_key
from jetjobs.errors import ConfigError

NOW = datetime(2030, 1, 1, tzinfo=UTC)
RECORD = RunRecord(
    "r1",
    "billing",
    "send",
    RunStatus.FAILED,
    key="inv-7",
    created_at=NOW,
    schedule_id="s1",
    error=RunError("ValueError", "No such Invoice"),
    logs=(LogLine(NOW, "info", "Sending mail"),),
)


@st.composite
def made(draw: st.DrawFn) -> RunRecord:
    age = draw(st.none() | st.integers(0, 50))
    created_at = None if age is None else NOW - timedelta(seconds=age)
    status = draw(st.sampled_from(RunStatus))
    return replace(RECORD, run_id=f"r{draw(st.integers(0, 500)):03}", status=status, created_at=created_at)


@pytest.mark.parametrize(
    "passing",
    [
        RunFilter(),
        RunFilter(module="billing", job="send", schedule_id="s1"),
        RunFilter(statuses=frozenset({RunStatus.FAILED, RunStatus.MISSED})),
        RunFilter(since=NOW, until=NOW + timedelta(seconds=1)),
        RunFilter(error_type="ValueError"),
        RunFilter(text="INVOICE"),
        RunFilter(text="inv-7"),
        RunFilter(text="sending"),
    ],
)
def test_what_matches_passes(passing: RunFilter):
    assert passing.passes(RECORD)


@pytest.mark.parametrize(
    "failing",
    [
        RunFilter(module="bill"),
        RunFilter(job="send2"),
        RunFilter(schedule_id="s2"),
        RunFilter(statuses=frozenset({RunStatus.MISSED})),
        RunFilter(since=NOW + timedelta(microseconds=1)),
        RunFilter(until=NOW),
        RunFilter(error_type="Value"),
        RunFilter(text="nothing like it"),
    ],
)
def test_what_differs_in_one_thing_fails(failing: RunFilter):
    assert not failing.passes(RECORD)


def test_an_error_type_asks_for_an_error():
    assert not RunFilter(error_type="ValueError").passes(replace(RECORD, error=None))


def test_skipped_runs_show_only_when_asked_for():
    skipped = replace(RECORD, status=RunStatus.SKIPPED)
    assert not RunFilter().passes(skipped)
    assert RunFilter(include_skipped=True).passes(skipped)
    assert RunFilter(statuses=frozenset({RunStatus.SKIPPED})).passes(skipped)


def test_statuses_take_any_case_and_refuse_others():
    assert parse_statuses("timed-out") == {RunStatus.TIMED_OUT}
    assert parse_statuses([RunStatus.FAILED, "Missed"]) == {RunStatus.FAILED, RunStatus.MISSED}
    assert parse_statuses(None) is None
    with pytest.raises(ConfigError, match="SUCCEEDED"):
        parse_statuses("done")


@given(
    shown=st.lists(made(), unique_by=attrgetter("run_id"), max_size=40),
    limit=st.integers(0, 12),
)
def test_pages_hold_every_passing_run_once_newest_first(shown: list[RunRecord], limit: int):
    wanted = sorted((record for record in shown if RunFilter().passes(record)), key=sort_key, reverse=True)
    got: list[RunRecord] = []
    before = None
    while True:
        page = Newest(limit, RunFilter().passes, before)
        for record in (*shown, *shown[:3]):  # a scan may show a record twice
            page.show(record)
        if not page.records():
            break
        assert len(page.records()) <= limit
        got.extend(page.records())
        before = sort_key(got[-1])
    assert got == (wanted if limit else [])


def test_text_is_looked_for_where_there_is_no_error_too():
    quiet = replace(RECORD, error=None)
    assert RunFilter(text=quiet.run_id).passes(quiet)
    assert not RunFilter(text="nothing like it").passes(quiet)
