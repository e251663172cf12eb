from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from operator import attrgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core import wire
from jetjobs._core.glance import Glance, glance
from jetjobs._core.models import LogLine, RunError, RunRecord, RunStatus
from jetjobs._core.run_filter import Newest, RunFilter, Unrolling, parse_statuses, sort_key
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


def at_a_glance(record: RunRecord) -> Glance:
    return glance(wire.pack_record(record))


@st.composite
def filters(draw: st.DrawFn) -> RunFilter:
    return RunFilter(
        module=draw(st.sampled_from([None, "billing", "other"])),
        job=draw(st.sampled_from([None, "send", "other"])),
        statuses=draw(st.none() | st.frozensets(st.sampled_from(RunStatus), min_size=1)),
        since=draw(st.none() | st.just(NOW - timedelta(seconds=20))),
        until=draw(st.none() | st.just(NOW - timedelta(seconds=5))),
        schedule_id=draw(st.sampled_from([None, "s1", "s2"])),
        error_type=draw(st.sampled_from([None, "ValueError", "KeyError"])),
        text=draw(st.sampled_from([None, "INVOICE", "sending", "valueerror: no", "nothing like it"])),
        include_skipped=draw(st.booleans()),
    )


@given(wanted=filters(), record=made(), quiet=st.booleans(), silent=st.booleans())
def test_a_glance_agrees_with_the_record(wanted: RunFilter, record: RunRecord, *, quiet: bool, silent: bool):
    if quiet:
        record = replace(record, error=None)
    if silent:
        record = replace(record, logs=(), created_at=None)
    assert wanted.may_pass(at_a_glance(record)) or not wanted.passes(record)
    if record.created_at is not None:
        assert wanted.may_pass(at_a_glance(record)) == wanted.passes(record)


@pytest.mark.parametrize(
    "odd",
    [
        b"\xc1",
        b"\x93\x01\x02\x03",
        b"\x81\xa6status\x91\xa6FAILED",
        b"",
    ],
)
def test_what_a_glance_can_not_tell_is_read(odd: bytes):
    assert RunFilter(statuses=frozenset({RunStatus.MISSED}), since=NOW).may_pass(glance(odd))


def test_odd_errors_and_logs_say_nothing():
    seen = {"run_id": 7, "error": "ValueError", "logs": [3, {"message": 4}]}
    assert not RunFilter(text="value").may_pass(seen)
    assert not RunFilter(error_type="ValueError").may_pass(seen)


def test_nothing_before_since_is_to_come():
    assert RunFilter(since=NOW).is_past(NOW - timedelta(minutes=1))
    assert not RunFilter(since=NOW).is_past(NOW)
    assert not RunFilter().is_past(NOW - timedelta(days=1))


def test_a_page_is_complete_once_nothing_to_come_could_be_on_it():
    page = Newest(2, RunFilter().passes)
    early, late = (replace(RECORD, run_id=name, created_at=NOW + timedelta(seconds=n)) for n, name in enumerate("ab"))
    page.show(late)
    assert not page.complete(NOW - timedelta(days=1))
    page.show(early)
    assert page.complete(NOW - timedelta(minutes=1))
    assert not page.complete(NOW), "clocks may differ"
    assert not page.may_keep(at_a_glance(replace(RECORD, created_at=NOW - timedelta(seconds=1))))
    assert page.may_keep(at_a_glance(replace(RECORD, created_at=None)))
    assert page.may_keep(at_a_glance(late))
    assert Newest(0, RunFilter().passes).may_keep({})


@given(st.lists(made(), unique_by=attrgetter("run_id"), max_size=40), st.integers(1, 5), st.integers(1, 7))
def test_all_come_once_newest_first_whatever_is_held(shown: list[RunRecord], capacity: int, stretch: int):
    """As from a store: written at the earliest when they were made, last written first."""
    stored = sorted(shown, key=lambda record: (sort_key(record)[0], record.run_id), reverse=True)
    unrolling = Unrolling(RunFilter().passes, capacity)
    got: list[RunRecord] = []
    for _ in range(len(shown) + 1):
        unrolling.begin()
        for start in range(0, len(stored), stretch):
            for record in stored[start : start + stretch]:
                unrolling.show(record)
                unrolling.show(record)  # a scan may show one twice
            rest = stored[start + stretch :]
            if rest:
                got += unrolling.give(sort_key(rest[0])[0])
        got += unrolling.give()
        if not unrolling.cut:
            break
    assert got == sorted((record for record in shown if RunFilter().passes(record)), key=sort_key, reverse=True)
