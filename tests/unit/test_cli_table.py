import doctest
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jetjobs.cli import failures, options, shapes, sources
from jetjobs.cli import table as table_module
from jetjobs.cli.table import ago, cells, span, table

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("module", [table_module, failures, options, shapes, sources])
def test_doctests(module: object):
    found = doctest.testmod(module)  # pyright: ignore[reportArgumentType]
    assert found.attempted
    assert not found.failed


@given(st.lists(st.tuples(st.text(), st.text(), st.text()), min_size=1), st.integers(40, 200))
def test_every_row_is_one_line_and_columns_are_aligned(rows: list[tuple[str, str, str]], width: int):
    lines = table(["A", "BB", "CCC"], rows, width=width).split("\n")
    assert len(lines) == len(rows) + 1
    assert all(line.isprintable() for line in lines)


@given(st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), st.integers(30, 100))
def test_the_last_column_fits_into_the_width(text: str, width: int):
    lines = table(["NAME", "ERROR"], [["x", text]], width=width).split("\n")
    assert all(cells(line) <= width for line in lines)
    assert lines[1].endswith("…") == (len(text) > width - 6)


def test_wide_letters_take_two_columns():
    first, second, third = table(["A", "B"], [["日本", "x"], ["abcd", "y"]]).split("\n")
    assert first == "A     B"
    assert second == "日本  x"
    assert third == "abcd  y"


def test_control_characters_of_others_reach_no_terminal():
    assert "\x1b" not in table(["A"], [["\x1b[2Jgone\r\nnew"]])


@pytest.mark.parametrize(
    "seconds, text",
    [(0, "0ms"), (0.9994, "999ms"), (9.94, "9.9s"), (59.9, "59s"), (60, "1m"), (3600, "1h"), (90061, "1d1h")],
)
def test_spans(seconds: float, text: str):
    assert span(timedelta(seconds=seconds)) == text


def test_ages_of_clocks_that_differ():
    assert ago(NOW + timedelta(seconds=90), NOW) == "in 1m30s"
    assert span(timedelta(seconds=-5)) == "-5.0s"
