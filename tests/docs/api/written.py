"""All pages of the reference, and where they lie."""

from __future__ import annotations

from functools import cache

import griffe

from tests.docs.api.render import anchor, page_text
from tests.docs.api.shelf import shelves
from tests.docs.pages import ROOT

FOLDER = ROOT / "docs" / "reference" / "api"


@cache
def texts() -> dict[str, str]:
    """Each page's text by its file name, and the page that lists them."""
    filled = shelves()
    places: dict[str, str] = {}
    for page, things in filled.items():
        for thing in things:
            if isinstance(thing, griffe.Class):
                places.setdefault(thing.name, f"{page.file}#{anchor(thing.name)}")
    pages = {page.file: page_text(page, things, places) for page, things in filled.items()}
    rows = [
        f"| [{page.title}]({page.file}) | {', '.join(f'`{thing.name}`' for thing in things)} |"
        for page, things in filled.items()
    ]
    listing = "\n".join(
        [
            "<!-- Written by `make reference` from signatures and docstrings; edit those. -->",
            "",
            "# The public names",
            "",
            "Everything to import from `jetjobs`, `jetjobs.sync`, `jetjobs.testing`, `jetjobs.errors` and",
            "`jetjobs.embedded`, the fixtures for pytest, and what those give. What isn't here may change",
            "in any release.",
            "",
            "| page | names |",
            "|---|---|",
            *rows,
        ]
    )
    return {"README.md": listing + "\n", **pages}
