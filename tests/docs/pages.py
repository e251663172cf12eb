"""Pages of Markdown as things to do: files to write, scripts and commands to run, what they should print.

A page is done from top to bottom, in one folder, against one server and one project, as a reader would. Comments
above a block say what a reader knows from the text around it:

==================================  ==================================================================
`<!-- file: shop.py -->`            the block is that file's content
`<!-- add: shop.py -->`             the block goes to the end of that file
`<!-- background -->`               its commands go on running; what they print is waited for
`<!-- not run: why -->`             not done here
nothing                             `python` is run as a script, `console` as commands with their output
==================================  ==================================================================

In output `…` stands for anything. Blocks of other languages without a `file:` or `add:` are there to be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"<!-- *(?P<word>file|add|background|not run)(?:: *(?P<value>[^>]*?))? *-->\s*\Z")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_LINK_TEXT = re.compile(r"\[([^\]]*)\]\([^)\s]*\)")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+)$", re.MULTILINE)
_RUNNABLE = frozenset({"python", "console"})

Kind = Literal["file", "add", "script", "commands", "background", "left"]


@dataclass(frozen=True, slots=True)
class Command:
    """One command and the lines it should print."""

    line: str
    output: str


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block: what to do with it, and where it is."""

    kind: Kind
    text: str
    place: str
    name: str = ""

    @property
    def commands(self) -> list[Command]:
        """The commands of a console block; lines without `$` are output of the one before."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)
        if parts[0].strip():
            raise ValueError(f"{self.place}: a console block starts with a command, `$ …`")
        split = (part.partition("\n") for part in parts[1:])
        return [Command(line.strip(), output.strip("\n")) for line, _, output in split]


def pages() -> list[Path]:
    """README and everything under docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(path: Path) -> Iterator[Block]:
    """The blocks of a page that are done, and those marked as not run."""
    page = path.read_text(encoding="utf-8")
    for found in _FENCE.finditer(page):
        indent, language = found["indent"], found["language"]
        text = "".join(line.removeprefix(indent) for line in found["text"].splitlines(keepends=True))
        place = f"{path.relative_to(ROOT)}:{page.count(chr(10), 0, found.start()) + 1}"
        mark = _MARK.search(page, max(0, found.start() - 300), found.start())
        word, value = (mark["word"], mark["value"] or "") if mark else ("", "")
        match word, language:
            case ("file" | "add") as kind, _:
                yield Block(kind, text, place, value)
            case "not run", _:
                yield Block("left", text, place, value)
            case "background", "console":
                yield Block("background", text, place)
            case "", "console":
                yield Block("commands", text, place)
            case "", "python":
                yield Block("script", text, place)
            case _:
                if language not in _RUNNABLE and not word:
                    continue
                raise ValueError(f"{place}: {word!r} means nothing above a {language} block")


def unnamed_files(path: Path) -> list[str]:
    """Files whose names only the marks tell, which a reader doesn't see: neither the paragraph above nor below does."""
    page = path.read_text(encoding="utf-8")
    found: list[str] = []
    for block in _FENCE.finditer(page):
        mark = _MARK.search(page, max(0, block.start() - 300), block.start())
        if mark is None or mark["word"] not in {"file", "add"}:
            continue
        above = page[: mark.start()].rstrip().rpartition("\n\n")[2]
        below = page[block.end() :].lstrip().partition("\n\n")[0]
        name = Path(mark["value"]).name
        if name not in above and name not in below:
            found.append(name)
    return found


def links(path: Path) -> list[str]:
    """Where a page links to, as written; code blocks are not looked at."""
    return [found["target"] for found in _LINK.finditer(_FENCE.sub("", path.read_text(encoding="utf-8")))]


def anchors(path: Path) -> list[str]:
    """The anchors of a page's headings, in their order, as GitHub makes them."""
    seen: dict[str, int] = {}
    found: list[str] = []
    for heading in _HEADING.finditer(_FENCE.sub("", path.read_text(encoding="utf-8"))):
        text = _LINK_TEXT.sub(r"\1", heading["text"]).strip().lower()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        number = seen[name] = seen.get(name, -1) + 1
        found.append(f"{name}-{number}" if number else name)
    return found


def pattern(output: str) -> re.Pattern[str]:
    """What matches an output in which `…` stands for anything."""
    lines = (".*?".join(map(re.escape, line.rstrip().split("…"))) for line in output.splitlines())
    return re.compile(r"[ \t]*\n".join(lines), re.DOTALL)
