"""The protocol's page and its vectors are those of the code."""

from __future__ import annotations

from jetjobs._core import headers
from jetjobs._core.models import RunStatus
from tests.docs.pages import ROOT
from tests.docs.test_reference import rows
from tests.docs.vectors import FILE, as_text

_PAGE = ROOT / "docs" / "protocol.md"


def test_vectors_are_those_of_the_code():
    # `python -m tests.docs.vectors` writes them anew. A vector that changes is another protocol.
    assert FILE.read_text(encoding="utf-8") == as_text()


def test_every_header_is_explained():
    assert {row[0] for row in rows(_PAGE, "headers")} == set(headers.ALL)


def test_every_terminal_status_is_named():
    line = next(line for line in _PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("Terminal statuses"))
    assert all(status.value in line for status in RunStatus if status.is_terminal)
