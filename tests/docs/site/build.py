"""Pages of Markdown as pages of HTML. Strict: a link that leads nowhere ends it.

`docs/` is the root of the site; README and changelog lie beside its index. Other files of the repository that a page
links to are copied to `files/`.
"""

from __future__ import annotations

import os
import shutil
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers.python import PythonConsoleLexer, PythonLexer
from pygments.lexers.shell import BashSessionLexer

from tests.docs.pages import ROOT, anchors
from tests.docs.site.frame import STYLE, framed

_DOCS = ROOT / "docs"
_BESIDE = {"README.md": "readme.html", "CHANGELOG.md": "changelog.html"}
_LEXERS = {"console": BashSessionLexer, "py": PythonLexer, "pycon": PythonConsoleLexer, "python": PythonLexer}
_LONG = 5  # sections of a page that is worth a list of them
_FORMATTER = HtmlFormatter[str](nowrap=True)


class BrokenLink(Exception):
    """A page links to what isn't there."""


def build(target: Path) -> list[Path]:
    """Write the whole site into a folder, which is emptied first; the pages written.

    Raises:
        BrokenLink: a page links to a page, file or heading that isn't there.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    (target / "style.css").write_text(
        STYLE + cast("str", cast("Any", _FORMATTER).get_style_defs(".code")), encoding="utf-8"
    )
    sources = [*sorted(_DOCS.rglob("*.md")), *(ROOT / name for name in _BESIDE)]
    written: list[Path] = []
    for source in sources:
        place = target / _place(source)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_Page(source, target).html(), encoding="utf-8")
        written.append(place)
    return written


class _Page:
    """One page on its way to HTML."""

    def __init__(self, source: Path, target: Path) -> None:
        self._source = source
        self._target = target
        self._place = _place(source)

    def html(self) -> str:
        markdown = MarkdownIt("commonmark", {"highlight": _coloured}).enable("table")
        tokens = markdown.parse(self._source.read_text(encoding="utf-8"))
        self._mend(tokens)
        body = cast("str", markdown.renderer.render(tokens, markdown.options, {}))
        body = body.replace("</h1>\n", f"</h1>\n{_contents(tokens)}", 1)
        title = next(token.content for token in tokens if token.type == "inline")
        return framed(title.replace("`", ""), body, up=os.path.relpath(".", self._place.parent))

    def _mend(self, tokens: list[Token]) -> None:
        """Give headings their anchors, and links the places of the site."""
        names = iter(anchors(self._source))
        for token in tokens:
            if token.type == "heading_open":
                token.attrSet("id", next(names))
            for child in token.children or ():
                if child.type == "link_open":
                    child.attrSet("href", self._place_of(str(child.attrGet("href"))))

    def _place_of(self, link: str) -> str:
        if "://" in link or link.startswith("mailto:"):
            return link
        name, hash_, anchor = link.partition("#")
        there = (self._source.parent / name).resolve() if name else self._source
        if there.is_dir():
            there /= "README.md"
        if not there.is_file() or ROOT not in there.parents:
            raise BrokenLink(f"{self._source.relative_to(ROOT)} links to {link}, which isn't there")
        if there.suffix == ".md" and anchor and anchor not in anchors(there):
            raise BrokenLink(f"{self._source.relative_to(ROOT)} links to {link}, which has no such heading")
        return os.path.relpath(self._found(there), self._place.parent).replace(os.sep, "/") + hash_ + anchor

    def _found(self, there: Path) -> Path:
        if there.suffix == ".md" and (_DOCS in there.parents or there.name in _BESIDE):
            return _place(there)
        copy = Path("files", there.relative_to(ROOT))
        (self._target / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(there, self._target / copy)
        return copy


def _contents(tokens: list[Token]) -> str:
    """What a long page has, to go there at once; nothing for one that is seen as a whole."""
    found = [
        (str(token.attrGet("id")), after.content.replace("`", ""))
        for token, after in pairwise(tokens)
        if token.type == "heading_open" and token.tag == "h2"
    ]
    if len(found) < _LONG:
        return ""
    ways = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name in found)
    return f'<p class="contents">{ways}</p>\n'


def _place(source: Path) -> Path:
    if _DOCS in source.parents:
        return source.relative_to(_DOCS).with_suffix(".html")
    return Path(_BESIDE[source.name])


def _coloured(code: str, language: str, _attributes: str) -> str:
    lexer = _LEXERS.get(language)
    body = escape(code) if lexer is None else highlight(code, lexer(), _FORMATTER)
    return f'<pre class="code"><code>{body}</code></pre>\n'
