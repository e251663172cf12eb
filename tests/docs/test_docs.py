"""Every page says what is so: its code runs, its links lead somewhere, its tables are those of the code."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, anchors, blocks, links, pages, unnamed_files
from tests.docs.reader import Reader
from tests.docs.site import build as site
from tests.docs.site.build import BrokenLink, build

_PAGES = pages()
_NAMES = [str(path.relative_to(ROOT)) for path in _PAGES]


@pytest.mark.integration
@pytest.mark.long
@pytest.mark.timeout(300)
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
def test_a_reader_sees_what_files_are_called(path: Path):
    assert unnamed_files(path) == []


@pytest.mark.parametrize("path", [*_PAGES, ROOT / "CHANGELOG.md"], ids=[*_NAMES, "CHANGELOG.md"])
def test_links_lead_somewhere(path: Path):
    assert [link for link in links(path) if not _leads_somewhere(path, link)] == []


def test_links_that_lead_nowhere_are_noticed(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("# A `b`, c\n\n## Twice\n\n## Twice\n\n```text\n[x](no.md)\n# no heading\n```\n", encoding="utf-8")
    assert links(page) == []
    assert anchors(page) == ["a-b-c", "twice", "twice-1"]
    good = ["#a-b-c", "page.md", "page.md#twice-1", "https://example.org/a"]
    bad = ["#a", "other.md", "page.md#twice-2", "http://example.org", "https://"]
    assert [link for link in (*good, *bad) if _leads_somewhere(page, link)] == good


def _leads_somewhere(page: Path, link: str) -> bool:
    """Within the repository: the file and its heading are there. Elsewhere: it is an address; nobody asks there."""
    if "://" in link:
        return re.fullmatch(r"https://[a-z0-9-]+(\.[a-z0-9-]+)+(/[^\s]*)?", link) is not None
    name, _, anchor = link.partition("#")
    there = page.parent / name if name else page
    return there.exists() and (not anchor or anchor in anchors(there))


def test_the_site_is_whole(tmp_path: Path):
    written = build(tmp_path / "site")
    assert len(written) == len(pages()) + 1  # the changelog too
    whole = "".join(page.read_text(encoding="utf-8") for page in written)
    assert "src=" not in whole
    assert 'rel="stylesheet" href="http' not in whole
    for page in written:
        for target in re.findall(r'href="([^"#:]+)(?:#[^"]*)?"', page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_a_long_page_lists_its_sections(tmp_path: Path):
    build(tmp_path / "site")
    long = (tmp_path / "site" / "how-to" / "troubleshoot.html").read_text(encoding="utf-8")
    listed = re.findall(r'<p class="contents">(.*?)</p>', long)
    assert len(listed) == 1
    ways = re.findall(r'href="#([^"]+)"', listed[0])
    assert ways == re.findall(r'<h2 id="([^"]+)"', long)
    assert "a-run-stays-queued" in ways
    assert '"contents"' not in (tmp_path / "site" / "adr" / "0014-generated-reference.html").read_text(encoding="utf-8")


def test_a_link_that_leads_nowhere_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Map\n\n[there](gone.md)\n", encoding="utf-8")
    monkeypatch.setattr(site, "ROOT", tmp_path)
    monkeypatch.setattr(site, "_DOCS", tmp_path / "docs")
    with pytest.raises(BrokenLink, match=r"docs.index\.md links to gone\.md"):
        build(tmp_path / "site")
