from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs._core.intervals import Grid, IntervalTimetable, Piece, anchor_of

NOON = datetime(2030, 5, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)

steps = st.integers(1, 5_000).map(lambda n: n * SECOND)
instants = st.integers(-200_000, 200_000).map(lambda n: NOON + n * SECOND / 4)
pieces = st.builds(Piece, instants, steps, st.integers(0, 5))


@given(st.lists(pieces, max_size=3))
def test_a_grid_is_the_list_of_its_instants(parts: list[Piece]):
    grid = Grid(*parts)
    listed = [part.first + n * part.step for part in parts for n in range(part.count)]
    assert list(grid) == listed
    assert len(grid) == len(listed)
    assert [grid[n] for n in range(-len(listed), len(listed))] == listed * 2
    for start in (None, 0, 1, 3, -2):
        for stop in (None, 0, 2, 7, -1):
            assert list(grid[start:stop]) == listed[start:stop]
    assert list(grid + grid) == listed * 2


def test_a_grid_ends_where_it_ends():
    with pytest.raises(IndexError):
        Grid(Piece(NOON, SECOND, 2))[2]
    assert not Grid(Piece(NOON, SECOND, 0))
    assert "12, 0" in repr(Grid(Piece(NOON, SECOND, 2)))


@given(steps, instants, instants)
def test_next_and_last_are_neighbours_on_the_grid(step: timedelta, anchor: datetime, at: datetime):
    timetable = IntervalTimetable(step, anchor)
    later, earlier = timetable.next_after(at), timetable.last_before(at)
    assert later is not None
    assert earlier is not None
    assert earlier < at < later
    assert timetable.has(later)
    assert timetable.has(earlier)
    assert later - earlier == (2 * step if timetable.has(at) else step)


@given(steps, instants, instants, st.integers(0, 50))
def test_between_is_the_walk_from_one_to_the_next(step: timedelta, anchor: datetime, start: datetime, count: int):
    timetable = IntervalTimetable(step, anchor)
    end = start + count * step
    walk: list[datetime] = []
    at = timetable.next_after(start)
    while at is not None and at <= end:
        walk.append(at)
        at = timetable.next_after(at)
    assert list(timetable.between(start, end)) == walk
    assert len(walk) == count


def test_days_at_one_per_second_are_calculated():
    due = IntervalTimetable(SECOND, NOON).between(NOON, NOON + timedelta(days=3_000))
    assert len(due) == 3_000 * 86_400
    assert due[1_000_000] == NOON + 1_000_001 * SECOND


def test_there_is_nothing_past_the_calendar():
    timetable = IntervalTimetable(timedelta(days=36_500), NOON)
    assert timetable.next_after(datetime(9_950, 1, 1, tzinfo=UTC)) is None
    assert timetable.next_after(datetime(9_999, 1, 1, tzinfo=UTC)) is None
    assert timetable.last_before(datetime(1, 1, 2, tzinfo=UTC)) is None
    assert not timetable.between(datetime(9_999, 1, 1, tzinfo=UTC), datetime(9_999, 2, 1, tzinfo=UTC))


@pytest.mark.parametrize("milliseconds, second", [(0, 0), (499, 0), (500, 1), (999, 1)])
def test_the_broker_rounds_to_the_nearest_second(milliseconds: int, second: int):
    assert anchor_of(NOON + timedelta(milliseconds=milliseconds)) == NOON + second * SECOND
