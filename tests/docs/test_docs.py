"""Every page says what is so: its code runs, its links lead somewhere, its tables are those of the code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, links, pages
from tests.docs.reader import Reader

_PAGES = pages()
_NAMES = [str(path.relative_to(ROOT)) for path in _PAGES]


@pytest.mark.integration
@pytest.mark.timeout(120)
@pytest.mark.parametrize("path", _PAGES, ids=_NAMES)
def test_what_a_page_shows_runs(path: Path, tmp_path: Path, nats_url: str, project: str):
    for data in path.parent.glob("*.json"):  # what the page's scripts read
        shutil.copy(data, tmp_path)
    reader = Reader(tmp_path, {"NATS_URL": nats_url, "JETJOBS_PROJECT": project})
    try:
        for block in blocks(path):
            reader.do(block)
    finally:
        reader.end()


@pytest.mark.parametrize("path", _PAGES, ids=_NAMES)
def test_links_lead_somewhere(path: Path):
    missing = [target for target in links(path) if not (path.parent / target).exists()]
    assert missing == []
