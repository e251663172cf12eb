"""The page about schedules names a test for each row about outages; the tests are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "schedules.md"
FOLDERS = ("tests/faults", "tests/field", "tests/engine/host")


def test_each_row_names_tests_that_exist():
    table = PAGE.read_text(encoding="utf-8").split("| shown by |\n|---|---|---|\n", 1)[1].split("\n\n", 1)[0]
    rows = [line.strip("|").split("|") for line in table.splitlines()]
    assert len(rows) >= 12
    for row in rows:
        named = re.findall(r"`(test_\w+\.py)`", row[2])
        assert named, row[0]
        for name in named:
            assert any((ROOT / folder / name).exists() for folder in FOLDERS), name
